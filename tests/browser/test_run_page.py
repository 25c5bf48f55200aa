"""An operator watches a run in a real browser, under a strict Content-Security-Policy."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from anvil_django import Agent, approvals, register, runs, start_run, tasks, tool
from anvil_django.agents import unregister
from anvil_django.clock import Clock, FixedClock, set_clock
from anvil_django.leases import owner_name
from anvil_django.models import Approval, Run, Slice
from anvil_django.stores import DjangoStateStore
from anvil_django.testing import ScriptedMessagesAPI, fault, say, thinking, tool_call

from ..admin.long_runs import long_run
from ..admin.teller import RUNS
from .conftest import TOO_WIDE, Shoot
from .test_approvals import log_in, person

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


class PacedClock(FixedClock):
    """Stands still for whoever looks, and goes on a little whenever a worker asks for the time."""

    pace = 0.0

    def now(self) -> datetime:
        self.advance(self.pace)
        return super().now()


clock = PacedClock()


@tool
def lookup_order(number: str) -> dict[str, str]:
    """Look up an order."""
    clock.advance(2.4)
    return {"number": number, "item": "Espresso machine", "status": "delivered broken"}


@tool(side_effect=True, requires_approval=True)
def refund_order(number: str, amount: Decimal) -> str:
    """Refund an order."""
    clock.advance(6.1)
    return f"Refunded {amount} of {number}."


@pytest.fixture(autouse=True)
def agent(messages_api: ScriptedMessagesAPI) -> Iterator[None]:
    register(
        Agent(
            name="helpdesk",
            model="claude-sonnet-5-5",
            system="You help customers.",
            tools=[lookup_order, refund_order],
            max_cost_usd=Decimal("0.50"),
            max_iterations=20,
        )
    )
    yield
    unregister("helpdesk")


@pytest.fixture
def olga() -> Any:
    rights = ("control_run", "view_run", "view_approval", "decide_approval", "add_run")
    return person("olga", "Olga", "Operator", *rights, is_staff=True)


@pytest.fixture
def time() -> Iterator[PacedClock]:
    """An hour ago."""
    global clock
    clock = PacedClock(Clock().now() - timedelta(hours=1))
    before = set_clock(clock)
    yield clock
    set_clock(before)


QUESTION = "Order A-1001 came broken. Please refund it."


def eventful(api: ScriptedMessagesAPI, time: PacedClock, olga: Any) -> Run:
    """A run that had to wait for the API, for a worker that died, and for a person."""
    carl = person("carl", "Carl", "Clerk")
    look = tool_call("lookup_order", {"number": "A-1001"})
    pay = tool_call("refund_order", {"number": "A-1001", "amount": "149.90"})
    api.script(
        say(thinking("First I look at the order."), "I will look it up.", look).after(fault.overloaded()),
        say(thinking("It was broken, so a refund is due."), "It arrived broken: I refund it.", pay),
        say("I have refunded the 149.90 for your espresso machine."),
        match=QUESTION,
    )
    run = start_run("helpdesk", QUESTION, user=carl, run_id="refund-a-1001")
    Run.objects.update(created_at=time.now())
    time.advance(4)
    advance(run)
    time.advance(40)
    store = DjangoStateStore()
    claimed = store.claim(run.run_id, owner_name(), 30)
    assert claimed is not None
    time.advance(45)
    assert len(list(runs.recover(run_id=run.run_id))) == 1
    time.advance(3)
    advance(run)
    return run


def advance(run: Run) -> str | None:
    clock.pace = 0.8
    try:
        return tasks.advance(run.run_id)
    finally:
        clock.pace = 0.0


def badge(page: Any, text: str) -> Any:
    return page.locator(".anvil-badge", has_text=text)


def decide(run: Run, user: Any) -> None:
    approval = Approval.objects.get(run=run, status="pending")
    approvals.approve(approval, user=user, reason="The customer sent a picture of it.")


def test_a_run_is_watched_paused_resumed_and_seen_to_end(
    page: Any, time: PacedClock, olga: Any, shoot: Shoot, messages_api: ScriptedMessagesAPI
) -> None:
    run = eventful(messages_api, time, olga)
    log_in(page, "olga")
    page.goto(f"{RUNS}dashboard/")
    page.get_by_role("link", name="Runs", exact=True).first.click()
    page.get_by_role("link", name="refund-a-1001").click()
    badge(page, "Waiting for a decision").wait_for()
    page.get_by_role("link", name="helpdesk wants to run refund_order").wait_for()
    shoot("run-waiting")
    # What is unfolded stays so, and nothing jumps, while the page goes on by itself.
    page.get_by_text("Thinking").first.click()
    page.get_by_text("First I look at the order.").wait_for()
    page.evaluate("window.sameDocument = true; window.scrollTo(0, 300)")
    before = page.evaluate("document.querySelector('#m1').getBoundingClientRect().top")
    time.advance(240)
    decide(run, olga)
    badge(page, "Queued").wait_for()
    page.get_by_text("Approved by Olga Operator (olga)").wait_for()
    assert page.get_by_role("status").first.inner_text().startswith("Queued.")
    assert page.get_by_text("First I look at the order.").is_visible()
    assert page.evaluate("window.sameDocument")
    assert abs(page.evaluate("document.querySelector('#m1').getBoundingClientRect().top") - before) < 60
    page.get_by_role("button", name="Pause").click()
    page.get_by_text("1 run was paused.").wait_for()
    badge(page, "Paused").wait_for()
    time.advance(20)
    page.get_by_role("button", name="Resume").click()
    page.get_by_text("1 run goes on.").wait_for()
    page.evaluate("window.sameDocument = true")
    time.advance(1)
    assert advance(run) == "done"
    badge(page, "Done").wait_for()
    page.get_by_text("I have refunded the 149.90").wait_for()
    assert page.evaluate("window.sameDocument")
    assert page.get_by_role("button", name="Pause").count() == 0
    page.get_by_role("link", name="Fork").wait_for()
    page.reload()
    page.get_by_text("The worker was lost.").wait_for()
    shoot("run")
    page.set_viewport_size({"width": 400, "height": 800})
    shoot("run-narrow")


@pytest.mark.parametrize("page", ["dark"], indirect=True)
def test_the_page_of_a_run_follows_the_dark_theme(
    page: Any, time: PacedClock, olga: Any, shoot: Shoot, messages_api: ScriptedMessagesAPI
) -> None:
    run = eventful(messages_api, time, olga)
    time.advance(240)
    decide(run, olga)
    time.advance(2)
    assert advance(run) == "done"
    log_in(page, "olga")
    page.goto(f"{RUNS}{run.pk}/change/")
    badge(page, "Done").wait_for()
    shoot("run-dark")


@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_that_others_wrote_makes_the_page_wider(page: Any, olga: Any, width: int) -> None:
    long = "x" * 150
    run = long_run(
        2,
        agent="helpdesk",
        tool=long[:128],
        text=long,
        run_id=f"failed-{long[:100]}",
        status="failed",
        stop_reason="",
        error_code="refused",
        error=f"The key {long} was revoked. Put in another one.",
        user_name=long,
    )
    Slice.objects.update(owner=long, error_code="refused", error=long)
    page.set_viewport_size({"width": width, "height": 800})
    log_in(page, "olga")
    page.goto(f"{RUNS}{run.pk}/change/")
    page.locator(".anvil-lines summary").click()
    assert page.evaluate(TOO_WIDE) == []
    page.get_by_role("link", name="Fork").click()
    page.get_by_role("button", name="Fork").wait_for()
    assert page.evaluate(TOO_WIDE) == []


def test_a_segment_leads_to_its_step(page: Any, olga: Any) -> None:
    run = long_run(120, agent="helpdesk", tool="lookup_order")
    log_in(page, "olga")
    page.goto(f"{RUNS}{run.pk}/change/")
    assert page.locator("#m1").count() == 0
    page.locator(".anvil-drawing a").first.click()
    page.locator("#m0").wait_for()
    assert "from=1" in page.url
    page.get_by_role("link", name="Later").first.click()
    page.get_by_text("Steps 51 to 100 of 120").first.wait_for()


def test_a_run_is_paused_without_javascript(browser: Any, site: str, olga: Any) -> None:
    run = start_run("helpdesk", QUESTION)
    context = browser.new_context(base_url=site, java_script_enabled=False)
    page = context.new_page()
    page.set_default_timeout(20_000)
    log_in(page, "olga")
    page.goto(f"{RUNS}{run.pk}/change/")
    assert not page.get_by_text("This page updates itself.").is_visible()
    page.get_by_role("button", name="Pause").click()
    page.get_by_text("1 run was paused.").wait_for()
    context.close()
    run.refresh_from_db()
    assert run.status == "paused"
