"""No page of ours has anything that axe-core finds fault with: in light, in dark, and on a narrow screen."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from anvil_django import Agent, register, start_run, tasks
from anvil_django.agents import unregister
from anvil_django.clock import get_clock
from anvil_django.models import Approval, Run, Slice
from anvil_django.testing import ScriptedMessagesAPI, say, thinking, tool_call

from ..admin.long_runs import long_run
from ..admin.teller import APPROVALS, RUNS, TOOLS
from .axe import violations
from .conftest import SIZE
from .test_approvals import log_in, person

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

DJANGOS_OWN = [
    ("link-in-text-block", ".breadcrumbs"),  # Told from the text around by the color alone.
    ("link-in-text-block", "#changelist-search"),  # "Show all", behind the number of results.
]
"""A rule, and the part of Django's own pages that breaks it: the same in the admin of any app."""
NARROW = {"width": 390, "height": 800}


@pytest.fixture(params=["light"])
def page(request: pytest.FixtureRequest, browser: Any, site: str) -> Iterator[Any]:
    """A page in which axe-core may measure by inline styles; that ours have none, the other tests see to."""
    context = browser.new_context(
        base_url=site, viewport=SIZE, color_scheme=request.param, locale="en-US", bypass_csp=True
    )
    opened = context.new_page()
    opened.set_default_timeout(20_000)
    yield opened
    context.close()


@pytest.fixture(autouse=True)
def agent() -> Iterator[None]:
    register(Agent(name="teller", model="claude-sonnet-5-5", system="Be good.", tools=TOOLS))
    yield
    unregister("teller")


@pytest.fixture
def cases(messages_api: ScriptedMessagesAPI) -> list[Approval]:
    """Two that a reviewer may decide, and one that was asked long ago."""
    carl = person("carl", "Carl", "Clerk")
    for number, account in enumerate(("DE-1", "DE-2", "p\u0430y\u202eDE")):
        text = f"Please pay bill {number}." + " It is a long story." * 200 * (number == 0)
        call = tool_call("wire", {"account": account, "amount": 50})
        messages_api.script(say(thinking("It is due."), "I pay it.", call), match=f"bill {number}.")
        run = start_run("teller", text, user=carl, run_id=f"bill-{number}")
        tasks.advance(run.run_id)
    late = Approval.objects.order_by("id").last()
    assert late is not None
    Approval.objects.filter(pk=late.pk).update(requested_at=get_clock().now() - timedelta(days=3))
    return list(Approval.objects.order_by("id"))


@pytest.fixture
def ended() -> Run:
    """A run that failed after some steps, and that was lost by a worker before."""
    run = long_run(12, status="failed", stop_reason="", error_code="quota", error="The account is empty.")
    lost = get_clock().now() - timedelta(minutes=2)
    Slice.objects.create(run=run, token=2, owner="web-1", claimed_at=lost, ended_at=lost, ended_as="lost",
                         waited_since=lost)  # fmt: skip
    return run


@pytest.fixture
def visited(page: Any, cases: list[Approval], ended: Run) -> Any:
    rights = ("control_run", "view_run", "add_run", "decide_approval", "view_approval")
    person("rita", "Rita", "Reviewer", *rights, is_staff=True)
    log_in(page)
    return page


def faults(page: Any) -> list[str]:
    return violations(page, allowed=DJANGOS_OWN)


def walk(page: Any, cases: list[Approval], ended: Run) -> Iterator[str]:
    """To each of our pages, and to the states that they can be in; the name of each."""
    yield "front page"
    page.goto("/admin/anvil_django/")
    yield "app"
    page.goto(APPROVALS)
    yield "queue"
    page.goto(f"{APPROVALS}?status=all")
    yield "history"
    page.goto(f"{APPROVALS}{cases[0].pk}/change/")
    yield "case"
    page.get_by_role("link", name="Approve with edits").click()
    yield "edit"
    arguments = page.get_by_label("Arguments:")
    arguments.fill("{")
    page.get_by_role("button", name="Show what will change").click()
    page.get_by_text("This is not JSON").wait_for()
    yield "edit, refused"
    page.get_by_label("Arguments:").fill('{"account": "DE-1", "amount": 40}')
    page.get_by_role("button", name="Show what will change").click()
    page.get_by_role("button", name="Approve with these edits").wait_for()
    yield "edit, shown"
    page.goto(f"{APPROVALS}{cases[1].pk}/decide/reject/")
    yield "reject"
    page.goto(APPROVALS)
    for box in page.locator("#result_list tbody").get_by_role("checkbox").all():
        box.check()
    page.get_by_label("Action:").select_option("approve")
    page.get_by_role("button", name="Go", exact=False).click()
    page.get_by_role("button", name="Approve", exact=True).wait_for()
    yield "bulk"
    page.get_by_role("button", name="Approve", exact=True).click()
    page.get_by_text("cases were approved").wait_for()
    yield "outcome"
    page.goto(f"{APPROVALS}{cases[0].pk}/change/")
    yield "decided case"
    page.goto(RUNS)
    yield "runs"
    page.goto(f"{RUNS}{ended.pk}/change/")
    for folded in page.locator("details").all():
        folded.evaluate("(details) => details.open = true")
    yield "run"
    page.goto(f"{RUNS}{cases[0].run_id}/change/")
    yield "live run"
    page.goto(f"{RUNS}{ended.pk}/fork/")
    yield "fork"
    page.goto(f"{RUNS}{cases[0].run_id}/change/")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Yes, cancel").wait_for()
    yield "cancel"
    page.goto(f"{RUNS}dashboard/?period=7d")
    for folded in page.locator("details").all():
        folded.evaluate("(details) => details.open = true")
    yield "dashboard"
    page.goto(f"{RUNS}dashboard/?period=7d&agent=nobody")
    yield "dashboard, refused"


@pytest.mark.parametrize("page", ["light", "dark"], indirect=True)
def test_no_page_has_a_fault(visited: Any, cases: list[Approval], ended: Run) -> None:
    assert {name: found for name in walk(visited, cases, ended) if (found := faults(visited))} == {}


def test_no_page_has_a_fault_on_a_narrow_screen(visited: Any, cases: list[Approval], ended: Run) -> None:
    visited.set_viewport_size(NARROW)
    assert {name: found for name in walk(visited, cases, ended) if (found := faults(visited))} == {}


def test_a_fault_is_found(visited: Any) -> None:
    visited.goto(RUNS)
    image = '<img src="/static/admin/img/search.svg">'
    visited.evaluate(f"document.querySelector('#content').insertAdjacentHTML('beforeend', '{image}')")
    assert [line.partition(":")[0] for line in faults(visited)] == ["image-alt"]
