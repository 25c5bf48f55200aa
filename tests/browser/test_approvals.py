"""A reviewer's day in a real browser, under a strict Content-Security-Policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission

from anvil_django import Agent, approvals, register, start_run, tasks, tool
from anvil_django.agents import unregister
from anvil_django.clock import get_clock
from anvil_django.models import Approval, Decision, Run
from anvil_django.testing import ScriptedMessagesAPI, say, tool_call

from .conftest import Shoot

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

APPROVALS = "/admin/anvil_django/approval/"
PASSWORD = "correct horse battery staple"

refunded: list[tuple[str, Decimal]] = []
Ask = Callable[..., Approval]


@tool(side_effect=True, requires_approval=True)
def refund_order(number: str, amount: Decimal, reason: str) -> str:
    """Refund an order."""
    refunded.append((number, amount))
    return f"Refunded {amount} of {number}."


@tool(side_effect=True, requires_approval=True, approvals=2, reviewers="treasury")
def pay_supplier(account: str, amount: Decimal) -> str:
    """Pay a supplier; two people of the treasury have to agree."""
    return "paid"


@tool(side_effect=True, requires_approval=True)
def send_mail(to: str, subject: str) -> str:
    """Send a mail."""
    return "sent"


def person(username: str, first: str, last: str, *permissions: str, **values: Any) -> Any:
    user = get_user_model().objects.create_user(
        username, password=PASSWORD, first_name=first, last_name=last, **values
    )
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return user


@pytest.fixture
def rita() -> Any:
    user = person("rita", "Rita", "Reviewer", "decide_approval", "view_approval", "view_run", is_staff=True)
    user.groups.add(Group.objects.create(name="treasury"))
    return user


@pytest.fixture
def ask(messages_api: ScriptedMessagesAPI) -> Iterator[Ask]:
    """Have the agent ask for one call."""
    refunded.clear()
    tools = [refund_order, pay_supplier, send_mail]
    register(
        Agent(
            name="helpdesk",
            model="claude-sonnet-5-5",
            system="You help customers.",
            tools=tools,
            max_cost_usd=Decimal("0.50"),
            max_iterations=20,
        )
    )

    def case(
        name: str, arguments: dict[str, Any], question: str, *, hours: float = 0, user: Any = None
    ) -> Approval:
        messages_api.script(say("I have looked into it.", tool_call(name, arguments)), match=question)
        run = start_run("helpdesk", question, user=user)
        tasks.advance(run.run_id)
        approval = Approval.objects.get(run=run)
        asked = get_clock().now() - timedelta(hours=hours)
        Approval.objects.filter(pk=approval.pk).update(
            requested_at=asked, expires_at=get_clock().now() + timedelta(hours=72)
        )
        return approval

    yield case
    unregister("helpdesk")


@pytest.fixture
def queue(ask: Ask, rita: Any) -> list[Approval]:
    """What waits this morning; the oldest first."""
    carl = person("carl", "Carl", "Clerk")
    otto = person("otto", "Otto", "Officer", "decide_approval", is_staff=True)
    otto.groups.add(Group.objects.get(name="treasury"))
    cases = [
        ask(
            "refund_order",
            {"number": "A-1042", "amount": "1250.00", "reason": "The lamp arrived broken."},
            "Order A-1042 came broken, please refund 125.00.",
            hours=30,
            user=carl,
        ),
        ask(
            "pay_supplier",
            {"account": "DE89 3704 0044 0532 0130 00", "amount": "8400.00"},
            "Pay the October invoice of Lumen GmbH.",
            hours=5,
            user=carl,
        ),
        ask(
            "send_mail",
            {"to": "p\u0430yments@example.com", "subject": "Your order\u202etxt.exe"},
            "Tell the customer that the parcel is on its way.",
            hours=2,
            user=carl,
        ),
        ask(
            "send_mail",
            {"to": "everybody@example.com", "subject": "Winter sale"},
            "Announce the winter sale.",
            hours=1,
            user=carl,
        ),
    ]
    approvals.approve(cases[1], user=otto)
    approvals.claim(cases[3], user=otto)
    return cases


def log_in(page: Any, username: str = "rita") -> None:
    page.goto("/admin/")
    page.get_by_label("Username:").fill(username)
    page.get_by_label("Password:").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("heading", name="Site administration").wait_for()


def case_link(page: Any, text: str) -> Any:
    return page.locator("#result_list").get_by_role("link", name=text)


def test_a_case_is_read_edited_and_approved(
    page: Any, queue: list[Approval], shoot: Shoot, messages_api: ScriptedMessagesAPI
) -> None:
    log_in(page)
    shoot("index")
    page.get_by_role("link", name="3 approvals wait for your decision").click()
    page.get_by_role("heading", name="Select approval").wait_for()
    assert page.locator("#result_list tbody tr").count() == 3
    page.goto(APPROVALS)
    waiting = page.locator(".anvil-waiting").inner_text().replace("\xa0", " ")
    assert waiting == "4 cases wait; the oldest for 1 day, 6 hours. 3 are for you to decide."
    shoot("queue")
    case_link(page, "A-1042").click()
    page.get_by_text("Order A-1042 came broken").first.wait_for()
    shoot("case")
    page.get_by_role("link", name="Approve with edits").click()
    arguments = page.get_by_label("Arguments:")
    arguments.fill(arguments.input_value().replace("1250.00", "much"))
    page.get_by_role("button", name="Show what will change").click()
    page.get_by_text("The edited arguments do not fit the tool").wait_for()
    shoot("edit-error")
    arguments.fill(arguments.input_value().replace("much", "125.00"))
    page.get_by_role("textbox", name="Reason:").fill("The customer paid 125.00.")
    page.get_by_role("button", name="Show what will change").click()
    assert page.locator(".anvil-removed").inner_text().strip() == '-   "amount": "1250.00",'
    assert page.locator(".anvil-added").inner_text().strip() == '+   "amount": "125.00",'
    shoot("edit")
    assert not Decision.objects.filter(approval=queue[0]).exists()
    page.get_by_role("button", name="Approve with these edits").click()
    page.get_by_text("1 case was approved with edited arguments.").wait_for()
    page.get_by_text("Approved with edited arguments by Rita Reviewer (rita)").first.wait_for()
    shoot("decided")
    messages_api.script(say("Refunded."), match="Order A-1042 came broken, please refund 125.00.")
    assert tasks.advance(queue[0].run.run_id) == "done", Run.objects.get(pk=queue[0].run_id).error
    assert refunded == [("A-1042", Decimal("125.00"))]


def test_a_case_is_claimed_and_released(page: Any, queue: list[Approval]) -> None:
    log_in(page)
    page.goto(APPROVALS)
    case_link(page, "A-1042").click()
    page.get_by_role("button", name="Claim").click()
    page.get_by_text("You have claimed this case.").wait_for()
    queue[0].refresh_from_db()
    assert queue[0].claimed_name == "Rita Reviewer (rita)"
    page.get_by_role("button", name="Release").click()
    page.get_by_text("The case is released.").wait_for()
    queue[0].refresh_from_db()
    assert queue[0].claimed_name == ""


def test_a_quorum_shows_what_the_other_person_agreed_to(
    page: Any, queue: list[Approval], shoot: Shoot
) -> None:
    log_in(page)
    page.goto(f"{APPROVALS}{queue[1].pk}/change/")
    panel = page.locator(".anvil-panel").inner_text()
    assert "2 people have to agree; these have: Otto Officer (otto)." in panel
    page.get_by_role("link", name="Approve", exact=True).click()
    page.get_by_role("button", name="Approve", exact=True).click()
    page.get_by_text("1 case was approved.").wait_for()


def test_several_cases_are_rejected_with_a_reason(page: Any, queue: list[Approval], shoot: Shoot) -> None:
    log_in(page)
    page.goto(APPROVALS)
    for row in page.locator("#result_list tbody tr").filter(has_text="send_mail").all():
        row.get_by_role("checkbox").check()
    page.get_by_label("Action:").select_option("reject")
    page.get_by_role("button", name="Go", exact=False).click()
    page.get_by_text("It is claimed by Otto Officer (otto)").wait_for()
    assert "⟦U+202E⟧" in page.locator(".anvil-case").inner_text()
    page.get_by_role("textbox", name="Reason:").fill("The address is not the customer's.")
    shoot("bulk")
    page.get_by_role("button", name="Reject").click()
    page.get_by_text("1 case was rejected.").wait_for()
    page.get_by_text("1 was skipped and left as it is.").wait_for()
    shoot("outcome")
    decision = Decision.objects.get(approval=queue[2])
    assert (decision.reviewer, decision.reason) == (
        "Rita Reviewer (rita)",
        "The address is not the customer's.",
    )
    page.goto(f"{APPROVALS}{queue[2].pk}/change/")
    page.get_by_text("Rejected by Rita Reviewer (rita)").first.wait_for()


@pytest.mark.parametrize("page", ["dark"], indirect=True)
def test_the_pages_follow_the_dark_theme(page: Any, queue: list[Approval], shoot: Shoot) -> None:
    log_in(page)
    page.goto(APPROVALS)
    shoot("queue-dark")
    case_link(page, "A-1042").click()
    page.get_by_role("link", name="Approve with edits").wait_for()
    shoot("case-dark")
    lightness = page.evaluate(
        "getComputedStyle(document.querySelector('.anvil-json')).backgroundColor.match(/\\d+/g).map(Number)"
    )
    assert max(lightness[:3]) < 80


def test_everything_works_without_javascript(browser: Any, site: str, queue: list[Approval]) -> None:
    context = browser.new_context(base_url=site, java_script_enabled=False)
    page = context.new_page()
    page.set_default_timeout(20_000)
    log_in(page)
    page.goto(f"{APPROVALS}{queue[0].pk}/change/")
    page.get_by_role("link", name="Reject").click()
    page.get_by_role("textbox", name="Reason:").fill("No.")
    page.get_by_role("button", name="Reject").click()
    page.get_by_text("1 case was rejected.").wait_for()
    context.close()
    queue[0].refresh_from_db()
    assert queue[0].status == "rejected"
