"""Approvals that nobody decides: they expire, are escalated, and are otherwise left alone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django_q.models import OrmQ

from anvil_django import approvals, models, runs, tasks, tool
from anvil_django.errors import ApprovalExpiredError, NotAllowedError
from anvil_django.testing import ScriptedMessagesAPI

from .waiting import ask, call, case, desk, effects, on, pay, paying, person, run, told
from .world import reviewer

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clock")]

EXPIRED = "Nobody approved this call in time, so it was not run."


def short(**options: Any) -> Any:
    """A tool whose approvals wait for a minute."""
    values = {"side_effect": True, "requires_approval": True, "approval_ttl": 60, "name": "short"}
    return tool(**{**values, **options})(pay.fn)


def test_it_can_be_decided_until_its_time_is_over(messages_api: ScriptedMessagesAPI, clock: Any) -> None:
    with desk(short()):
        ask(messages_api, paying("short"))
        clock.advance(59.999)
        assert tasks.recover() == 0
        approvals.approve(case(), user=reviewer())
        clock.advance(10_000)  # Once approved it does not expire.
        assert approvals.expire_overdue() == []
        assert on().status == "done"

    assert effects() == ["500 to ann"]


@pytest.mark.parametrize("verdict", ["approve", "reject", "answer"])
def test_its_time_is_over_at_the_decision_even_before_any_sweep(
    messages_api: ScriptedMessagesAPI, clock: Any, verdict: str
) -> None:
    more = {"reject": {"reason": "No."}, "answer": {"answer": "x"}}.get(verdict, {})
    with desk(short()):
        ask(messages_api, paying("short"), then=())
        clock.advance(60)
        with pytest.raises(ApprovalExpiredError, match=r"ended at 2026-01-01 00:01 UTC; it counts as a no"):
            getattr(approvals, verdict)(case(), user=reviewer(), **more)

    assert (case().status, case().decisions.count(), run().status) == ("pending", 0, "suspended")


def test_the_sweep_counts_it_as_a_no_and_the_run_goes_on(
    messages_api: ScriptedMessagesAPI, clock: Any
) -> None:
    with desk(short()):
        ask(messages_api, paying("short"))
        OrmQ.objects.all().delete()
        clock.advance(60)
        tasks.recover()
        assert (run().status, OrmQ.objects.count()) == ("queued", 1)
        tasks.recover()
        assert OrmQ.objects.count() == 1
        assert on().status == "done"

    assert (told(), call().outcome, effects()) == ({"toolu_1": EXPIRED}, "expired", [])
    decision = case().decisions.get()
    assert (decision.verdict, decision.channel, decision.reviewer, decision.user) == (
        "expired",
        "expiry",
        "nobody in time",
        None,
    )


def test_a_run_goes_on_only_when_its_other_cases_are_decided(
    messages_api: ScriptedMessagesAPI, clock: Any
) -> None:
    with desk(short(), pay):
        ask(messages_api, paying("short"), paying(to="bob", id="toolu_2"))
        clock.advance(60)
        tasks.recover()
        assert (case().status, case("toolu_2").status, on().status) == ("expired", "pending", "suspended")
        approvals.approve(case("toolu_2"), user=reviewer())
        assert on().status == "done"

    assert effects() == ["500 to bob"]


def test_the_sites_setting_is_the_default(
    messages_api: ScriptedMessagesAPI, clock: Any, settings: Any
) -> None:
    settings.ANVIL = {"APPROVAL_TTL": timedelta(hours=1)}
    with desk(pay, short()):
        ask(messages_api, paying(), paying("short", id="toolu_2"), then=())

    assert case().expires_at - case().requested_at == timedelta(hours=1)
    assert case("toolu_2").expires_at - case("toolu_2").requested_at == timedelta(minutes=1)


def test_cases_without_a_time_and_runs_that_wait_are_left_alone(
    messages_api: ScriptedMessagesAPI, clock: Any
) -> None:
    with desk(pay):
        ask(messages_api, paying(), then=())
        OrmQ.objects.all().delete()
        before = models.Run.objects.values().get(), models.Approval.objects.values().get()
        for _ in range(3):
            clock.advance(100_000_000)
            assert tasks.recover() == 0
            assert tasks.advance("r") == "not taken"

    assert (models.Run.objects.values().get(), models.Approval.objects.values().get()) == before
    assert OrmQ.objects.count() == 0


def test_a_quorum_that_is_not_complete_in_time_is_a_no(messages_api: ScriptedMessagesAPI, clock: Any) -> None:
    sam = person("sam")
    with desk(short(approvals=2)):
        ask(messages_api, paying("short"))
        approvals.approve(case(), user=reviewer())
        approvals.approve(case(), user=sam, edited_input={"to": "sam", "amount": 1})
        clock.advance(60)
        with pytest.raises(ApprovalExpiredError):
            approvals.approve(case(), user=reviewer())
        tasks.recover()
        assert on().status == "done"

    assert (effects(), told()) == ([], {"toolu_1": EXPIRED})


def test_a_case_expires_whatever_has_become_of_its_run(messages_api: ScriptedMessagesAPI, clock: Any) -> None:
    with desk(short(), pay):
        ask(messages_api, paying("short"), paying(to="bob", id="toolu_2"), then=())
        runs.cancel("r")
        clock.advance(60)
        assert approvals.expire_overdue() == []

    assert (case().status, run().status) == ("void", "cancelled")


def test_one_broken_case_does_not_keep_the_others_from_expiring(
    messages_api: ScriptedMessagesAPI, clock: Any
) -> None:
    with desk(short()):
        ask(messages_api, paying("short"), paying("short", to="bob", id="toolu_2"), then=())
        models.ToolCall.objects.filter(call_id="toolu_1").update(input="not JSON")
        clock.advance(60)
        assert [expired.call.call_id for expired in approvals.expire_overdue()] == ["toolu_2"]

    assert case("toolu_2").status == "expired"


# Escalation


def escalating(**options: Any) -> Any:
    return short(
        approval_ttl=None,
        reviewers="Finance",
        escalate_to="Board",
        escalate_after=timedelta(hours=1),
        **options,
    )


def test_the_second_group_may_decide_once_the_first_has_had_its_time(
    messages_api: ScriptedMessagesAPI, clock: Any
) -> None:
    bea = person("bea", groups=["Board"])
    with desk(escalating()):
        ask(messages_api, paying("short"))
        clock.advance(3599)
        with pytest.raises(NotAllowedError, match=r"This case is for Finance\."):
            approvals.approve(case(), user=bea)
        clock.advance(1)
        with pytest.raises(NotAllowedError, match="This case is for Finance or Board"):
            approvals.approve(case(), user=reviewer())
        approvals.approve(case(), user=bea)
        assert on().status == "done"


def test_the_first_group_may_still_decide_after_the_escalation(
    messages_api: ScriptedMessagesAPI, clock: Any
) -> None:
    with desk(escalating()):
        ask(messages_api, paying("short"))
        clock.advance(100_000)
        approvals.approve(case(), user=person("frida", groups=["Finance"]))
        assert on().status == "done"


def test_an_escalation_is_told_once(messages_api: ScriptedMessagesAPI, clock: Any) -> None:
    with desk(escalating()):
        ask(messages_api, paying("short"), then=())
        assert list(approvals.overdue_escalations()) == []
        clock.advance(3600)
        assert [told.pk for told in approvals.overdue_escalations()] == [case().pk]
        assert list(approvals.overdue_escalations()) == []


def test_people_of_both_groups_make_a_quorum(messages_api: ScriptedMessagesAPI, clock: Any) -> None:
    with desk(escalating(approvals=2)):
        ask(messages_api, paying("short"))
        approvals.approve(case(), user=person("frida", groups=["Finance"]))
        clock.advance(3600)
        approvals.approve(case(), user=person("bea", groups=["Board"]))
        assert on().status == "done"

    assert effects() == ["500 to ann"]


def test_the_age_of_the_oldest_case_can_be_read(messages_api: ScriptedMessagesAPI, clock: Any) -> None:
    with desk(pay):
        ask(messages_api, paying(), then=())
        asked_at = clock.now()
        clock.advance(100)

    assert models.Approval.objects.pending().earliest("requested_at").requested_at == asked_at
