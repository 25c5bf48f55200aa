"""Two people at the same instant: one decides, the other is told who decided what, and the run wakes once."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connections
from django_q.models import OrmQ

from anvil_django import approvals, models, tasks
from anvil_django.errors import AlreadyDecidedError, ClaimedError, DecisionError
from anvil_django.models import Approval, Decision
from anvil_django.testing import ScriptedMessagesAPI, say

from .waiting import case, desk, effects, go, on, pay, pay_by_two, paying, person, run
from .world import reviewer

pytestmark = pytest.mark.django_db(transaction=True)

ROUNDS = int(os.environ.get("ANVIL_TEST_ROUNDS", "3"))


def at_once(*acts: Callable[[], Any]) -> list[Any]:
    """Do all of these in threads with connections of their own; what each returned or raised."""
    outcomes: list[Any] = [None] * len(acts)
    barrier = threading.Barrier(len(acts))

    def work(number: int, act: Callable[[], Any]) -> None:
        try:
            connections["default"].ensure_connection()
            barrier.wait(30)
            outcomes[number] = act()
        except Exception as exc:
            outcomes[number] = exc
        finally:
            connections.close_all()

    threads = [threading.Thread(target=work, args=(i, act)) for i, act in enumerate(acts)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return outcomes


def asked(number: int) -> str:
    """A run that waits, and an empty queue."""
    run_id = f"r{number}"
    assert go(run_id).status == "suspended"
    OrmQ.objects.all().delete()
    return run_id


def said_no(outcome: Any) -> bool:
    return isinstance(outcome, DecisionError)


@pytest.mark.parametrize("second", ["approve", "reject", "answer"])
def test_of_two_people_one_decides_and_the_other_is_told_who_decided_what(
    messages_api: ScriptedMessagesAPI, second: str
) -> None:
    messages_api.script(say(paying()), say("Done."))
    rita, sam = reviewer(), person("sam")
    more = {"reject": {"reason": "No."}, "answer": {"answer": "Paid in cash."}}.get(second, {})
    won: Counter[str] = Counter()
    with desk(pay):
        for number in range(ROUNDS):
            run_id = asked(number)
            mine, theirs = case(run_id=run_id), case(run_id=run_id)

            outcomes = at_once(
                lambda mine=mine: approvals.approve(mine, user=rita),
                lambda theirs=theirs: getattr(approvals, second)(theirs, user=sam, **more),
            )

            (refused,) = filter(said_no, outcomes)
            (decided,) = [outcome for outcome in outcomes if not said_no(outcome)]
            decision = Decision.objects.get(approval=decided)
            assert isinstance(refused, AlreadyDecidedError)
            assert refused.by == decision.reviewer
            assert (refused.status, decided.status) == (case(run_id=run_id).status,) * 2
            assert decided.status in refused.message
            assert (run(run_id).status, OrmQ.objects.count()) == ("queued", 1)
            won[decision.reviewer] += 1
            before = len(effects())
            assert on(run_id).status == "done"
            assert len(effects()) - before == (decision.verdict == "approved")
    assert sum(won.values()) == ROUNDS


def test_a_double_click_decides_once(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say(paying()), say("Done."))
    rita = reviewer()
    with desk(pay):
        for number in range(ROUNDS):
            run_id = asked(number)
            clicks = [case(run_id=run_id) for _ in range(2)]

            outcomes = at_once(*[lambda click=click: approvals.approve(click, user=rita) for click in clicks])

            (refused,) = filter(said_no, outcomes)
            assert isinstance(refused, AlreadyDecidedError)
            assert refused.by == "Rita (rita)"
            assert (Decision.objects.filter(approval=clicks[0]).count(), OrmQ.objects.count()) == (1, 1)
            assert on(run_id).status == "done"
    assert len(effects()) == ROUNDS


def test_the_last_two_calls_of_a_turn_decided_at_once_wake_the_run_once(
    messages_api: ScriptedMessagesAPI,
) -> None:
    messages_api.script(say(paying(), paying(to="bob", id="toolu_2")), say("Done."))
    rita, sam = reviewer(), person("sam")
    with desk(pay):
        for number in range(ROUNDS):
            run_id = asked(number)
            first, second = case(run_id=run_id), case("toolu_2", run_id)

            outcomes = at_once(
                lambda first=first: approvals.approve(first, user=rita),
                lambda second=second: approvals.approve(second, user=sam),
            )

            assert [outcome.status for outcome in outcomes] == ["approved", "approved"]
            assert (run(run_id).status, OrmQ.objects.count()) == ("queued", 1)
            assert on(run_id).status == "done"
    assert len(effects()) == 2 * ROUNDS


def test_two_people_who_agree_at_once_make_a_quorum_of_two(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say(paying("pay_by_two")), say("Done."))
    rita, sam = reviewer(), person("sam")
    with desk(pay_by_two):
        for number in range(ROUNDS):
            run_id = asked(number)
            cases = [case(run_id=run_id) for _ in range(2)]

            outcomes = at_once(
                lambda one=cases[0]: approvals.approve(one, user=rita),
                lambda two=cases[1]: approvals.approve(two, user=sam),
            )

            assert not any(map(said_no, outcomes)), outcomes
            assert (case(run_id=run_id).status, OrmQ.objects.count()) == ("approved", 1)
            assert on(run_id).status == "done"
    assert len(effects()) == ROUNDS


def test_one_person_who_agrees_twice_at_once_is_one_person(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say(paying("pay_by_two")))
    rita = reviewer()
    with desk(pay_by_two):
        for number in range(ROUNDS):
            run_id = asked(number)
            clicks = [case(run_id=run_id) for _ in range(2)]

            outcomes = at_once(*[lambda click=click: approvals.approve(click, user=rita) for click in clicks])

            assert len(list(filter(said_no, outcomes))) == 1, outcomes
            assert case(run_id=run_id).status == "pending"
            assert Decision.objects.filter(approval=clicks[0]).count() == 1


def test_nobody_agrees_to_an_edit_made_at_the_same_instant(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say(paying("pay_by_two")))
    rita, sam = reviewer(), person("sam")
    with desk(pay_by_two):
        for number in range(ROUNDS):
            run_id = asked(number)
            cases = [case(run_id=run_id) for _ in range(2)]

            outcomes = at_once(
                lambda one=cases[0]: approvals.approve(one, user=rita),
                lambda two=cases[1]: approvals.approve(
                    two, user=sam, edited_input={"to": "sam", "amount": 9}
                ),
            )

            # Either the yes came first and the edit began a new round, or it is refused.
            assert case(run_id=run_id).status == "pending"
            assert not said_no(outcomes[1])
            assert len(case(run_id=run_id).agreeing()) == 1


def test_one_of_two_people_claims_a_case(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say(paying()))
    rita, sam = reviewer(), person("sam")
    with desk(pay):
        for number in range(ROUNDS):
            run_id = asked(number)
            cases = [case(run_id=run_id) for _ in range(2)]

            outcomes = at_once(
                lambda one=cases[0]: approvals.claim(one, user=rita),
                lambda two=cases[1]: approvals.claim(two, user=sam),
            )

            (refused,) = filter(said_no, outcomes)
            assert isinstance(refused, ClaimedError)
            assert refused.by == case(run_id=run_id).claimed_name


def test_a_decision_and_a_cancel_at_once_leave_nothing_half_done(messages_api: ScriptedMessagesAPI) -> None:
    from anvil_django import runs

    messages_api.add(lambda request: say("Done.") if request.assistant_turns else say(paying()))
    rita = reviewer()
    with desk(pay):
        for number in range(ROUNDS):
            run_id = asked(number)
            waiting = case(run_id=run_id)

            at_once(
                lambda waiting=waiting: approvals.approve(waiting, user=rita),
                lambda run_id=run_id: runs.cancel(run_id),
            )
            tasks.advance(run_id)

            assert run(run_id).status == "cancelled"
            assert not Approval.objects.filter(status="pending").exists()
            assert models.ToolCall.objects.get(run__run_id=run_id).outcome == "cancelled"
    assert effects() == []


def test_the_sweep_and_a_person_at_the_last_moment_do_not_both_decide(
    messages_api: ScriptedMessagesAPI,
) -> None:
    from datetime import timedelta

    from anvil_django.clock import get_clock

    messages_api.script(say(paying()), say("Done."))
    rita = reviewer()
    with desk(pay):
        for number in range(ROUNDS):
            run_id = asked(number)
            ends = get_clock().now() + timedelta(milliseconds=20)
            Approval.objects.filter(run__run_id=run_id).update(expires_at=ends)
            waiting = case(run_id=run_id)

            def sweep(ends: Any = ends) -> None:
                while get_clock().now() < ends + timedelta(milliseconds=40):
                    approvals.expire_overdue()

            outcomes = at_once(lambda waiting=waiting: approvals.approve(waiting, user=rita), sweep)
            approvals.expire_overdue()

            decision = Decision.objects.get(approval=waiting)
            assert (decision.verdict == "expired") is said_no(outcomes[0])
            assert (run(run_id).status, OrmQ.objects.count()) == ("queued", 1)
            assert on(run_id).status == "done"
