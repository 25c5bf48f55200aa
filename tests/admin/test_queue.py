"""The queue: its filters and numbers, the front page, and many cases at once."""

from __future__ import annotations

import html
import re
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from django.contrib import admin
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from anvil_django import approvals, reviewers
from anvil_django.clock import get_clock
from anvil_django.models import Approval, Decision, Run, ToolCall

from .teller import APPROVALS, Ask, confirm, logged_in, person, post, status, told

pytestmark = pytest.mark.django_db


def shown(client: Client, query: str = "") -> list[Approval]:
    return list(client.get(f"{APPROVALS}?{query}").context["cl"].result_list)


def plain(response: Any) -> str:
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", response.text)))


def copies(approval: Approval, number: int) -> list[Approval]:
    """The same case in as many more runs, without the time it takes to advance them."""
    made = []
    for n in range(number):
        run = Run.objects.get(pk=approval.run_id)
        run.pk, run.run_id = None, f"copy-{n}"
        run.save(force_insert=True)
        call = ToolCall.objects.get(pk=approval.call_id)
        call.pk, call.run = None, run
        call.save(force_insert=True)
        copy = Approval.objects.get(pk=approval.pk)
        copy.pk, copy.run, copy.call, copy.open_key = None, run, call, str(call.pk)
        copy.digest = approvals.read_call(call).digest(run.run_id)
        copy.save(force_insert=True)
        made.append(copy)
    return made


# What is listed.


def test_the_queue_lists_what_waits_and_everything_else_by_choice(ask: Ask, rita: Any) -> None:
    waiting, rejected = ask("DE-1"), ask("DE-2")
    approvals.reject(rejected, user=rita, reason="No.")
    client = logged_in(rita)
    assert shown(client) == [waiting]
    assert shown(client, "status=rejected") == [rejected]
    assert shown(client, "status=all") == [rejected, waiting]
    assert "<th" in client.get(f"{APPROVALS}?status=all").text


def test_each_row_says_what_who_for_whom_and_how_far(ask: Ask, rita: Any) -> None:
    case = ask("DE-1", name="transfer", user=person("carl"))
    approvals.approve(case, user=person("otto", "decide_approval"))
    approvals.claim(case, user=rita)
    ask("DE-2", name="borrow")
    page = plain(logged_in(rita).get(APPROVALS))
    for text in (
        "teller wants to run transfer (account: DE-1, amount: 50)",
        "permission ",
        "carl",
        "1 of 2",
        "rita",
        "treasury",
        "0 minutes",
    ):
        assert text in page


def test_claims_filter_the_queue(ask: Ask, rita: Any) -> None:
    free, mine, theirs, stale = (ask(f"DE-{n}") for n in range(4))
    approvals.claim(mine, user=rita)
    otto = person("otto", "decide_approval")
    for case in (theirs, stale):
        approvals.claim(case, user=otto)
    Approval.objects.filter(pk=stale.pk).update(claimed_at=get_clock().now() - timedelta(hours=1))
    client = logged_in(rita)
    assert shown(client, "claim=mine") == [mine]
    assert shown(client, "claim=nobody") == [free, stale]


def test_what_i_may_decide_is_what_a_decision_would_be_allowed_for(ask: Ask, rita: Any) -> None:
    """The filter's query and the rule that guards the door must not drift apart."""
    olga = person("olga", "decide_approval", group="treasury")
    people = [rita, olga, person("sam", "view_approval")]
    cases = [
        ask(name=name, user=user)
        for name, user in product(["wire", "transfer", "borrow"], [None, rita, olga])
    ]
    approvals.approve(cases[3], user=olga)
    escalated = ask(name="borrow")
    permitted = ask(name="borrow")
    Approval.objects.filter(pk=escalated.pk).update(
        reviewers="nobody", escalate_to="treasury", escalate_at=get_clock().now() - timedelta(minutes=1)
    )
    Approval.objects.filter(pk=permitted.pk).update(reviewers="anvil_django.view_run")
    late = ask()
    Approval.objects.filter(pk=late.pk).update(expires_at=get_clock().now() - timedelta(minutes=1))
    for user in people:
        rows = Approval.objects.select_related("run").order_by("id")
        may = [row for row in rows if not reviewers.why_not_now(user, row)]
        assert shown(logged_in(user), "for=me") == may
    assert len(shown(logged_in(rita), "for=me")) == 5
    assert len(shown(logged_in(olga), "for=me")) == 6


def test_nobody_without_the_permission_has_cases_to_decide(ask: Ask) -> None:
    ask()
    client = logged_in(person("vera", "view_approval"))
    assert len(shown(client)) == 1
    assert shown(client, "for=me") == []


# How much waits.


def test_the_top_of_the_queue_says_how_long_the_oldest_has_waited(ask: Ask, rita: Any) -> None:
    client = logged_in(rita)
    assert "Nothing waits for a decision." in plain(client.get(APPROVALS))
    old = ask(user=rita)
    ask()
    Approval.objects.filter(pk=old.pk).update(requested_at=get_clock().now() - timedelta(hours=3))
    page = plain(client.get(APPROVALS))
    assert "2 cases wait; the oldest for 3 hours." in page
    assert "1 is for you to decide." in page


def test_the_front_page_counts_the_cases_for_those_who_may_decide_them(ask: Ask, rita: Any) -> None:
    ask(user=rita)
    ask(name="borrow")
    ask()
    client = logged_in(rita)
    for address in ("/admin/", "/admin/anvil_django/"):
        page = client.get(address)
        assert "1 approval waits for your decision; the oldest for 0 minutes." in plain(page)
        assert f'href="{APPROVALS}?for=me"' in page.text
        assert "anvil_django/admin.css" in page.text
    olga = person("olga", "decide_approval", group="treasury")
    assert "3 approvals wait for your decision" in plain(logged_in(olga).get("/admin/"))


def test_the_front_page_says_when_nothing_waits_for_a_reviewer_and_nothing_to_others(
    ask: Ask, rita: Any
) -> None:
    ask(user=rita)
    assert "No approval waits for your decision." in plain(logged_in(rita).get("/admin/"))
    for name, permissions in (("sam", []), ("vera", ["view_approval", "view_run"])):
        page = logged_in(person(name, *permissions)).get("/admin/")
        assert page.status_code == 200
        assert "anvil-waiting" not in page.text
    assert "anvil-waiting" not in Client().get("/admin/login/").text


def test_the_front_page_of_a_site_with_its_own_is_left_alone() -> None:
    assert admin.site.index_template == "admin/anvil_django/index.html"
    assert admin.AdminSite(name="other").index_template is None


# Cost.


@pytest.mark.parametrize("query", ["", "status=all", "for=me", "claim=nobody", "q=wire"])
def test_the_queue_takes_the_same_queries_however_many_cases_wait(ask: Ask, rita: Any, query: str) -> None:
    case = ask(name="transfer")
    approvals.approve(case, user=person("otto", "decide_approval"))
    client = logged_in(rita)

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert client.get(f"{APPROVALS}?{query}").status_code == 200
        return len(captured)

    client.get(APPROVALS)
    few = queries()
    copies(case, 30)
    assert queries() == few


@pytest.mark.parametrize(("action", "most"), [("approve", 20), ("reject", 20), ("claim", 5)])
def test_deciding_200_cases_takes_a_bounded_number_of_queries_per_case(
    ask: Ask, rita: Any, action: str, most: int
) -> None:
    case = ask(name="borrow")
    group = reviewers.Approval.objects.get(pk=case.pk).reviewers
    rita.groups.create(name=group)
    cases = [case, *copies(case, 199)]
    client = logged_in(rita)
    with CaptureQueriesContext(connection) as captured:
        response = confirm(client, APPROVALS, action, *cases, reason="All of them.")
    verb = {"approve": "approved", "reject": "rejected", "claim": "claimed by you"}[action]
    assert told(response) in ([f"200 cases were {verb}."], [f"200 cases are {verb}."])
    assert len(captured) <= 200 * most + 20
    if action != "claim":
        assert Decision.objects.filter(user=rita).count() == 200
        assert Run.objects.filter(status="queued").count() == 200


def test_the_page_that_asks_about_200_cases_takes_few_queries(ask: Ask, rita: Any) -> None:
    case = ask(name="borrow")
    rita.groups.create(name="treasury")
    cases = [case, *copies(case, 199)]
    client = logged_in(rita)
    with CaptureQueriesContext(connection) as captured:
        page = post(client, APPROVALS, "approve", *cases)
    assert page.text.count('class="module anvil-case"') == 200
    assert len(captured) <= 25


# Several at once.


def test_the_page_that_asks_says_before_anything_is_decided_what_will_be_skipped_and_why(
    ask: Ask, rita: Any
) -> None:
    fine, own, foreign, claimed = ask("DE-1"), ask("DE-2", user=rita), ask("DE-3", name="borrow"), ask("DE-4")
    approvals.claim(claimed, user=person("otto", "decide_approval"))
    client = logged_in(rita)
    page = post(client, APPROVALS, "approve", fine, own, foreign, claimed)
    assert page.text.count('class="module anvil-case"') == 1
    text = plain(page)
    assert "(account: DE-2, amount: 50): You started this run, so somebody else has to decide." in text
    assert "(account: DE-3, amount: 50): This case is for treasury." in text
    assert "(account: DE-4, amount: 50): It is claimed by otto" in text
    response = confirm(client, APPROVALS, "approve", fine, own, foreign, claimed)
    assert told(response)[:2] == ["1 case was approved.", "3 were skipped and left as they are."]
    assert [status(row) for row in (fine, own, foreign, claimed)] == ["approved", *["pending"] * 3]


@pytest.mark.parametrize("action", ["approve", "reject", "answer", "claim"])
def test_the_requester_and_outsiders_change_nothing_from_the_list(ask: Ask, rita: Any, action: str) -> None:
    own, foreign = ask("DE-2", user=rita), ask("DE-3", name="borrow")
    response = confirm(logged_in(rita), APPROVALS, action, own, foreign, reason="x", answer="x")
    assert told(response)[0] == "2 were skipped and left as they are."
    assert "You started this run" in "".join(told(response))
    assert "This case is for treasury." in "".join(told(response))
    assert [status(row) for row in (own, foreign)] == ["pending"] * 2
    assert own.claimed_by is None
    assert not Decision.objects.exists()


def test_several_cases_are_claimed_and_released_at_once(ask: Ask, rita: Any) -> None:
    first, second = ask("DE-1"), ask("DE-2")
    approvals.claim(second, user=person("otto", "decide_approval"))
    client = logged_in(rita)
    response = post(client, APPROVALS, "claim", first, second)
    assert told(response)[0] == "1 case is claimed by you."
    assert "claimed by otto" in told(response)[-1]
    assert told(post(client, APPROVALS, "release", first, second))[0] == "1 case is released."
    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.claimed_name, second.claimed_name) == ("", "otto")


def test_agreeing_to_several_cases_of_a_quorum_is_told_apart_from_deciding_them(ask: Ask, rita: Any) -> None:
    one, two = ask("DE-1"), ask("DE-2", name="transfer")
    client = logged_in(rita)
    seen = re.findall(r'name="seen" value="([^"]+)"', post(client, APPROVALS, "approve", one, two).text)
    response = confirm(client, APPROVALS, "approve", one, two, seen=seen)
    assert sorted(told(response)) == [
        "1 case has your agreement and waits for another person's.",
        "1 case was approved.",
    ]
    assert [status(row) for row in (one, two)] == ["approved", "pending"]
