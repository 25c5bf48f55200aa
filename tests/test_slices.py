"""Who had a run and when: a row with each claim, closed once, by whatever ends the slice."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test.utils import CaptureQueriesContext

from anvil_django import Agent, approvals, register, runs, start_run, tasks, tool
from anvil_django.agents import unregister
from anvil_django.checkpoint import AgentCheckpoint
from anvil_django.clock import FixedClock
from anvil_django.conf import get_settings
from anvil_django.errors import LeaseLostError
from anvil_django.leases import Lease
from anvil_django.models import Approval, Run, Slice
from anvil_django.states import RunStatus
from anvil_django.stores import DjangoStateStore
from anvil_django.testing import ScriptedMessagesAPI, fault, fixed_clock, say, tool_call

pytestmark = pytest.mark.django_db

BEGAN = datetime(2026, 12, 1, 9, 0, tzinfo=UTC)


class Died(BaseException):
    """The worker's process is gone."""


@tool
def look() -> str:
    """Look."""
    return "seen"


@tool(side_effect=True, requires_approval=True)
def pay() -> str:
    """Pay."""
    return "paid"


@pytest.fixture(autouse=True)
def agent() -> Iterator[None]:
    register(Agent(name="worker", model="claude-sonnet-5-5", system="Be good.", tools=[look, pay]))
    yield
    unregister("worker")


@pytest.fixture
def clock() -> Iterator[FixedClock]:
    with fixed_clock(BEGAN) as fixed:
        yield fixed


def begin(run_id: str = "r") -> Run:
    run = start_run("worker", "Go.", run_id=run_id)
    Run.objects.update(created_at=BEGAN)  # The one time that no clock of ours gives.
    return run


def claim(run_id: str = "r", **options: Any) -> tuple[AgentCheckpoint, Lease]:
    claimed = DjangoStateStore().claim(run_id, "host/1/1/1/x", get_settings().lease_seconds, **options)
    assert claimed is not None
    return claimed


def slices() -> list[Slice]:
    return list(Slice.objects.order_by("token"))


def minutes(moment: datetime | None) -> float | None:
    return None if moment is None else (moment - BEGAN).total_seconds() / 60


def test_a_slice_says_when_the_run_was_queued_when_it_was_claimed_and_how_it_was_left(
    clock: FixedClock, messages_api: ScriptedMessagesAPI
) -> None:
    messages_api.script(say("Done."))
    begin()
    clock.advance(120)
    assert tasks.advance("r") == "done"
    (row,) = slices()
    assert (minutes(row.waited_since), minutes(row.claimed_at), minutes(row.ended_at)) == (0, 2, 2)
    assert (row.token, row.ended_as, row.recovered, row.error) == (1, "done", False, "")
    assert row.owner


def test_a_run_that_is_advanced_has_one_open_slice(clock: FixedClock) -> None:
    begin()
    claim()
    (row,) = slices()
    assert (row.ended_at, row.ended_as) == (None, "")


def test_a_claim_that_fails_writes_no_slice(clock: FixedClock) -> None:
    begin()
    claim()
    assert DjangoStateStore().claim("r", "host/1/1/2/y", 60) is None
    assert len(slices()) == 1


def test_each_worker_of_a_run_that_waited_for_a_person_has_a_slice(
    clock: FixedClock, messages_api: ScriptedMessagesAPI
) -> None:
    messages_api.script(say(tool_call("pay", {})), say("Paid."))
    begin()
    tasks.advance("r")
    clock.advance(600)
    approvals.approve(Approval.objects.get(), user=get_user_model().objects.create_superuser("rita"))
    clock.advance(60)
    assert tasks.advance("r") == "done"
    first, second = slices()
    assert (first.ended_as, minutes(first.ended_at)) == ("suspended", 0)
    assert (minutes(second.waited_since), minutes(second.claimed_at)) == (10, 11)
    assert second.ended_as == "done"


def test_a_run_that_backs_off_says_why_and_waits_from_the_moment_it_is_due(
    clock: FixedClock, messages_api: ScriptedMessagesAPI
) -> None:
    messages_api.script(say("Done.").after(fault.overloaded()))
    begin()
    tasks.advance("r")
    due = Run.objects.get().next_attempt_at
    assert due is not None
    clock.advance(3600)
    assert tasks.advance("r") == "done"
    first, second = slices()
    assert (first.ended_as, first.error_code) == ("queued", "overloaded")
    assert first.error
    assert second.waited_since == due
    assert (second.error_code, second.recovered) == ("", False)


def test_a_slice_whose_worker_died_ends_with_its_last_sign_of_life(
    clock: FixedClock, messages_api: ScriptedMessagesAPI
) -> None:
    begin()
    _, lease = claim()
    clock.advance(300)
    DjangoStateStore().renew(lease)
    clock.advance(1800)
    assert len(list(runs.recover())) == 1
    (lost,) = slices()
    assert (lost.ended_as, minutes(lost.ended_at)) == ("lost", 5)
    clock.advance(60)
    messages_api.script(say("Done."))
    assert tasks.advance("r") == "done"
    _, second = slices()
    assert second.recovered
    assert (minutes(second.waited_since), minutes(second.claimed_at)) == (5, 36)


def test_a_claim_that_takes_an_expired_lease_closes_the_slice_of_the_one_before(clock: FixedClock) -> None:
    begin()
    checkpoint, lease = claim()
    checkpoint.append({"role": "assistant", "content": "Hello."})
    clock.advance(30)
    DjangoStateStore().save(checkpoint, lease, progress=True)
    clock.advance(1800)
    claim()
    lost, second = slices()
    assert (lost.ended_as, minutes(lost.ended_at)) == ("lost", 0.5)
    assert second.recovered
    assert (minutes(second.waited_since), second.ended_at) == (0.5, None)


def test_a_worker_that_lost_the_run_does_not_reopen_or_close_anything(clock: FixedClock) -> None:
    begin()
    checkpoint, lease = claim()
    clock.advance(1800)
    claim()
    before = list(Slice.objects.order_by("token").values())
    checkpoint.status = RunStatus.PAUSED
    with pytest.raises(LeaseLostError):
        DjangoStateStore().save(checkpoint, lease, progress=False)
    DjangoStateStore().release(lease)
    assert list(Slice.objects.order_by("token").values()) == before


def test_a_worker_that_raises_gives_the_slice_up(
    clock: FixedClock, messages_api: ScriptedMessagesAPI
) -> None:
    begin()
    _, lease = claim()
    clock.advance(60)
    DjangoStateStore().release(lease)
    (row,) = slices()
    assert (row.ended_as, minutes(row.ended_at)) == ("given_up", 1)
    messages_api.script(say("Done."))
    assert len(list(runs.recover())) == 1
    tasks.advance("r")
    given_up, second = slices()
    assert (given_up.ended_as, minutes(given_up.ended_at)) == ("given_up", 1)
    assert second.recovered


def test_a_poisoned_run_leaves_no_slice_open(clock: FixedClock) -> None:
    begin()
    for _ in range(get_settings().max_recoveries + 1):
        claim()
        clock.advance(1800)
    list(runs.recover())
    if Run.objects.get().status == "queued":
        claim()
        clock.advance(1800)
        list(runs.recover())
    assert Run.objects.get().status == "failed"
    assert {row.ended_as for row in slices()} == {"lost"}


def test_cancelling_a_paused_run_is_a_slice_that_nobody_waited_for(clock: FixedClock) -> None:
    begin()
    clock.advance(60)
    runs.pause("r")
    clock.advance(600)
    runs.cancel("r")
    (row,) = slices()
    assert (minutes(row.waited_since), minutes(row.claimed_at), row.ended_as) == (11, 11, "cancelled")


def test_slices_go_with_their_run(clock: FixedClock) -> None:
    begin()
    claim()
    assert DjangoStateStore().delete("r")
    assert not Slice.objects.exists()


def test_an_iteration_writes_nothing_about_slices(messages_api: ScriptedMessagesAPI) -> None:
    def written(iterations: int) -> int:
        turns = [say(tool_call("look", {})) for _ in range(iterations)]
        run_id = f"r{iterations}"
        messages_api.script(*turns, say("Done."), match=run_id)
        start_run("worker", run_id, run_id=run_id)
        with CaptureQueriesContext(connection) as captured:
            assert tasks.advance(run_id) == "done"
        return sum("anvil_django_slice" in query["sql"] for query in captured.captured_queries)

    assert written(2) == written(6) == 2
