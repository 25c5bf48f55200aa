"""Where the time of a run went, from its rows alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anvil_django.timeline import (
    ApprovalRow,
    CallRow,
    Facts,
    Kind,
    MessageRow,
    SliceRow,
    spans,
    totals,
)

BEGAN = datetime(2026, 12, 1, 9, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def maybe(seconds: float | None) -> datetime | None:
    return None if seconds is None else at(seconds)


def answer(seq: int, seconds: float) -> MessageRow:
    return MessageRow(seq, "assistant", at(seconds), "tool_use")


def asked(seq: int = 0, seconds: float = 0) -> MessageRow:
    return MessageRow(seq, "user", at(seconds), "")


def call(
    seq: int,
    name: str = "look",
    started: float | None = None,
    finished: float | None = None,
    outcome: str | None = None,
) -> CallRow:
    said = ("returned" if finished is not None else "") if outcome is None else outcome
    status = "done" if finished is not None else "started" if started is not None else "ready"
    return CallRow(seq, name, "external", status, said, maybe(started), maybe(finished))


def worker(
    token: int, since: float, claimed: float, ended: float | None = None, left: str = "done", error: str = ""
) -> SliceRow:
    return SliceRow(
        token, at(since), at(claimed), maybe(ended), "" if ended is None else left, error if ended else ""
    )


def facts(status: str = "done", *, until: float = 0, now: float | None = None, **rows: Any) -> Facts:
    moments = {name: maybe(rows.pop(name, None)) for name in ("next_attempt_at", "lease_until")}
    ended = status in {"done", "failed", "cancelled"}
    return Facts(
        created_at=BEGAN,
        status=status,
        updated_at=at(until),
        finished_at=at(until) if ended else None,
        now=at(until if now is None else now),
        **moments,
        **rows,
    )


def told(found: Facts) -> list[tuple[str, float, float, str, str]]:
    return [
        (
            str(span.kind),
            (span.begin - BEGAN).total_seconds(),
            (span.end - BEGAN).total_seconds(),
            span.label,
            span.outcome,
        )
        for span in spans(found)
    ]


def test_a_run_waits_for_a_worker_asks_the_model_runs_tools_and_asks_again() -> None:
    found = facts(
        until=12,
        messages=[asked(), answer(1, 5), answer(3, 12)],
        calls=[call(1, "pay", 5, 9)],
        slices=[worker(1, 0, 2, 12)],
    )
    assert told(found) == [
        ("queue", 0, 2, "", ""),
        ("model", 2, 5, "", ""),
        ("tool", 5, 9, "pay", ""),
        ("model", 9, 12, "", ""),
    ]
    assert [(span.iteration, span.seq) for span in spans(found)] == [(0, 0), (1, 1), (1, 1), (2, 3)]


def test_read_only_calls_that_were_stored_together_are_one_span() -> None:
    calls = [call(1, "look", None, 7), call(1, "read", None, 7), call(1, "look", None, 7)]
    found = facts(until=9, messages=[answer(1, 5), answer(3, 9)], calls=calls, slices=[worker(1, 0, 0, 9)])
    assert told(found)[1] == ("tool", 5, 7, "look, read", "")


def test_a_call_that_failed_says_so_and_one_that_was_never_run_takes_no_time() -> None:
    calls = [call(1, "pay", 5, 6, "failed"), call(1, "wire", None, 8, "rejected")]
    found = facts(until=9, messages=[answer(1, 5), answer(3, 9)], calls=calls, slices=[worker(1, 0, 0, 9)])
    assert told(found)[1:] == [("tool", 5, 6, "pay", "failed"), ("model", 6, 9, "", "")]


def test_a_run_that_a_person_had_to_decide_about_waited_for_that_person_then_for_a_worker() -> None:
    found = facts(
        until=112,
        messages=[answer(1, 5), answer(3, 112)],
        calls=[call(1, "pay", 103, 106)],
        approvals=[ApprovalRow("pay", "approved", at(5), at(100))],
        slices=[worker(1, 0, 0, 5, "suspended"), worker(2, 100, 103, 112)],
    )
    assert told(found)[1:4] == [
        ("person", 5, 100, "pay", ""),
        ("queue", 100, 103, "", ""),
        ("tool", 103, 106, "pay", ""),
    ]


def test_a_run_that_waits_for_a_person_now_says_for_how_long() -> None:
    found = facts(
        "suspended",
        until=5,
        now=60,
        messages=[answer(1, 5)],
        calls=[call(1, "pay")],
        approvals=[ApprovalRow("pay", "pending", at(5), None)],
        slices=[worker(1, 0, 0, 5, "suspended")],
    )
    assert told(found)[-1] == ("person", 5, 60, "pay", "running")


def test_an_attempt_that_failed_is_followed_by_its_backing_off() -> None:
    found = facts(
        until=42,
        messages=[answer(1, 42)],
        slices=[worker(1, 0, 0, 3, "queued", "overloaded"), worker(2, 33, 34, 42)],
    )
    assert told(found) == [
        ("model", 0, 3, "", "overloaded"),
        ("backoff", 3, 33, "overloaded", ""),
        ("queue", 33, 34, "", ""),
        ("model", 34, 42, "", ""),
    ]


def test_a_run_that_backs_off_now_is_not_waiting_for_a_worker_yet() -> None:
    slices = [worker(1, 0, 0, 3, "queued", "overloaded")]
    found = facts("queued", until=3, now=10, next_attempt_at=33, slices=slices)
    assert told(found)[-1] == ("backoff", 3, 10, "overloaded", "running")
    late = facts("queued", until=3, now=40, next_attempt_at=33, slices=slices)
    assert told(late)[-2:] == [("backoff", 3, 33, "overloaded", ""), ("queue", 33, 40, "", "running")]


@pytest.mark.parametrize("left", ["lost", "given_up"])
def test_a_lost_worker_leaves_the_run_down_until_the_next_one_takes_it(left: str) -> None:
    found = facts(
        until=90,
        messages=[answer(1, 5), answer(3, 90)],
        calls=[call(1, "pay", 70, 80)],
        slices=[worker(1, 0, 0, 9, left), worker(2, 9, 70, 90)],
    )
    assert told(found) == [
        ("model", 0, 5, "", ""),
        ("tool", 5, 9, "pay", "interrupted"),
        ("down", 9, 70, "", ""),
        ("tool", 70, 80, "pay", ""),
        ("model", 80, 90, "", ""),
    ]


def test_a_side_effect_in_doubt_was_running_when_its_worker_was_lost() -> None:
    found = facts(
        until=90,
        messages=[answer(1, 5), answer(3, 90)],
        calls=[call(1, "pay", 5, 81, "answered")],
        slices=[worker(1, 0, 0, 9, "lost"), worker(2, 9, 20, 21, "suspended"), worker(3, 80, 80, 90)],
    )
    assert told(found)[1] == ("tool", 5, 9, "pay", "interrupted")
    assert [kind for kind, *_ in told(found)] == [
        "model",
        "tool",
        "down",
        "other",
        "person",
        "model",
    ]


def test_a_worker_whose_lease_has_run_out_is_down_although_nobody_has_noticed() -> None:
    found = facts("running", until=5, now=300, lease_until=65, slices=[worker(1, 0, 0)])
    assert told(found) == [("model", 0, 65, "", "running"), ("down", 65, 300, "", "running")]


def test_what_a_worker_is_at_now_is_running() -> None:
    rows = {"messages": [answer(1, 5)], "slices": [worker(1, 0, 0)]}
    found = facts("running", until=5, now=8, lease_until=60, calls=[call(1, "pay", 5)], **rows)
    assert told(found)[-1] == ("tool", 5, 8, "pay", "running")
    found = facts("running", until=6, now=8, lease_until=60, calls=[call(1, "pay", 5, 6)], **rows)
    assert told(found)[-1] == ("model", 6, 8, "", "running")


def test_a_pause_lasts_until_somebody_resumes_the_run() -> None:
    rows = {"messages": [answer(1, 5)], "slices": [worker(1, 0, 0, 5, "paused")]}
    assert told(facts("paused", until=5, now=50, **rows))[-1] == ("paused", 5, 50, "", "running")
    resumed = facts("queued", until=40, now=50, **rows)
    assert told(resumed)[-2:] == [("paused", 5, 40, "", ""), ("queue", 40, 50, "", "running")]


def test_a_run_that_was_paused_while_it_was_queued_waited_for_a_worker_before() -> None:
    assert told(facts("paused", until=10, now=50)) == [
        ("queue", 0, 10, "", ""),
        ("paused", 10, 50, "", "running"),
    ]


def test_a_run_that_had_ended_and_was_continued_did_nothing_in_between() -> None:
    found = facts(
        until=110,
        messages=[answer(1, 5), asked(2, 100), answer(3, 110)],
        slices=[worker(1, 0, 0, 5), worker(2, 100, 102, 110)],
    )
    assert told(found)[1:] == [
        ("ended", 5, 100, "", ""),
        ("queue", 100, 102, "", ""),
        ("model", 102, 110, "", ""),
    ]


def test_a_poisoned_run_was_down_until_it_was_failed() -> None:
    found = facts("failed", until=100, slices=[worker(1, 0, 0, 9, "lost")])
    assert told(found) == [("model", 0, 9, "", "interrupted"), ("down", 9, 100, "", "")]


def test_a_message_that_was_placed_begins_the_wait_for_the_model() -> None:
    found = facts(
        until=20,
        messages=[answer(1, 5), asked(3, 12), answer(4, 20)],
        calls=[call(1, "pay", 5, 9)],
        slices=[worker(1, 0, 0, 20)],
    )
    assert told(found)[2:] == [("other", 9, 12, "", ""), ("model", 12, 20, "", "")]


def test_clocks_that_differ_make_no_span_negative() -> None:
    found = facts(
        until=12,
        messages=[answer(1, 1.99), answer(3, 12.5)],
        calls=[call(1, "pay", 2.2, 2.1)],
        slices=[worker(1, 0, 2, 12)],
    )
    assert all(span.begin <= span.end for span in spans(found))
    assert told(found)[-1][2] == 12


def test_the_totals_are_the_time_of_the_run() -> None:
    found = spans(
        facts(
            until=112,
            messages=[answer(1, 5), answer(3, 112)],
            calls=[call(1, "pay", 103, 106)],
            slices=[worker(1, 0, 0, 5, "suspended"), worker(2, 100, 103, 112)],
        )
    )
    assert {str(kind): time.total_seconds() for kind, time in totals(found).items()} == {
        "person": 95,
        "model": 11,
        "queue": 3,
        "tool": 3,
    }
    assert next(iter(totals(found))) is Kind.PERSON


moment = st.floats(0, 1000, allow_nan=False)
some = st.none() | moment
LEFT = ["queued", "suspended", "paused", "done", "failed", "cancelled", "lost", "given_up"]


@given(
    status=st.sampled_from(["queued", "running", "suspended", "paused", "done", "failed", "cancelled"]),
    until=moment,
    now=moment,
    due=some,
    lease=some,
    answers=st.lists(moment, max_size=6),
    calls=st.lists(st.tuples(st.integers(0, 6), some, some), max_size=6),
    workers=st.lists(st.tuples(moment, moment, some, st.sampled_from(LEFT), st.booleans()), max_size=5),
)
def test_whatever_the_rows_hold_the_spans_follow_each_other(
    status: str,
    until: float,
    now: float,
    due: float | None,
    lease: float | None,
    answers: list[float],
    calls: list[tuple[int, float | None, float | None]],
    workers: list[tuple[float, float, float | None, str, bool]],
) -> None:
    found = spans(
        facts(
            status,
            until=until,
            now=now,
            next_attempt_at=due,
            lease_until=lease,
            messages=[answer(seq, seconds) for seq, seconds in enumerate(answers)],
            calls=[call(seq, "t", begun, done) for seq, begun, done in calls],
            slices=[
                worker(n, since, claimed, ended, left, "e" if bad else "")
                for n, (since, claimed, ended, left, bad) in enumerate(workers)
            ],
        )
    )
    for span in found:
        assert span.begin <= span.end
    for one, other in pairwise(found):
        assert one.end == other.begin
