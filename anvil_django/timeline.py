"""Where the time of a run went: its rows as spans of time, one after the other.

Nothing here asks the database or draws anything. The rows come from different clocks (a worker's, and the
database's), so every span is clipped to the slice or the gap that it lies in: none is negative and no two
overlap.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import zip_longest
from operator import attrgetter
from typing import NamedTuple

from .states import TERMINAL, CallStatus, Outcome, RunStatus, SliceEnd


class Kind(StrEnum):
    """What a run did with a stretch of time."""

    MODEL = "model"
    """Asked the model."""
    TOOL = "tool"
    """Ran a tool."""
    PERSON = "person"
    """Waited for a person's decision."""
    QUEUE = "queue"
    """Waited for a worker."""
    BACKOFF = "backoff"
    """Waited before another attempt."""
    PAUSED = "paused"
    """Waited for an operator to resume it."""
    DOWN = "down"
    """Its worker was lost, and no other had taken it yet."""
    ENDED = "ended"
    """Had ended, until somebody had it go on."""
    OTHER = "other"
    """A worker had it between two steps: loading, saving, and what cannot be told."""


WORK = frozenset({Kind.MODEL, Kind.TOOL, Kind.OTHER})
"""What a worker does; in all else the run only waits."""


class MessageRow(NamedTuple):
    """A message."""

    seq: int
    role: str
    created_at: datetime
    stop_reason: str
    """Only an answer of the model has one."""

    @property
    def is_answer(self) -> bool:
        """Whether the model has said it in this run; the input may hold turns of the assistant too."""
        return self.role == "assistant" and self.stop_reason != ""


class CallRow(NamedTuple):
    """A tool call."""

    seq: int
    name: str
    effect: str
    status: str
    outcome: str
    started_at: datetime | None
    finished_at: datetime | None


class ApprovalRow(NamedTuple):
    """A question to a person."""

    tool: str
    status: str
    requested_at: datetime
    decided_at: datetime | None


class SliceRow(NamedTuple):
    """A worker's stretch on the run."""

    token: int
    waited_since: datetime
    claimed_at: datetime
    ended_at: datetime | None
    ended_as: str
    error_code: str


@dataclass(frozen=True)
class Facts:
    """The rows of one run, each list in the order of its keys, and the run's own columns."""

    created_at: datetime
    status: str
    updated_at: datetime | None
    finished_at: datetime | None
    next_attempt_at: datetime | None
    lease_until: datetime | None
    now: datetime
    iterations_before: int = 0
    """Answers before those of ``messages``."""
    messages: Sequence[MessageRow] = ()
    calls: Sequence[CallRow] = ()
    approvals: Sequence[ApprovalRow] = ()
    slices: Sequence[SliceRow] = ()


@dataclass(frozen=True)
class Span:
    """A stretch of time that a run spent on one thing."""

    kind: Kind
    begin: datetime
    end: datetime
    label: str = ""
    """The tools that were run or asked about; "" where the kind says all."""
    iteration: int = 0
    """The iteration it belongs to; 0: before the first answer."""
    seq: int = 0
    """The number of the message it belongs to, or came after."""
    outcome: str = ""
    """How it ended, where that is not plain success: an outcome of a call, an error code, "interrupted"; of
    what still goes on "running"."""

    @property
    def duration(self) -> timedelta:
        """How long it was."""
        return self.end - self.begin


RUNNING = "running"
INTERRUPTED = "interrupted"

_RAN = ("", str(Outcome.RETURNED), str(Outcome.FAILED))
"""Outcomes of calls whose tool was run, or may be."""
_SAME = timedelta(seconds=1)
"""Moments that are no further apart are one: they were written by different statements or clocks."""


def spans(facts: Facts) -> list[Span]:
    """The spans of a run from its creation until its end, or until now; in their order."""
    kept = (Kind.MODEL, Kind.TOOL)
    found = [span for span in _History(facts).spans() if span.end > span.begin or span.kind in kept]
    if found and facts.status not in TERMINAL and not found[-1].outcome:
        found[-1] = replace(found[-1], outcome=RUNNING)
    return found


def totals(found: Iterable[Span]) -> dict[Kind, timedelta]:
    """The time of each kind, the longest first; kinds without any are left out."""
    sums: dict[Kind, timedelta] = {}
    for span in found:
        sums[span.kind] = sums.get(span.kind, timedelta()) + span.duration
    return dict(sorted(((k, t) for k, t in sums.items() if t), key=lambda item: item[1], reverse=True))


# What came out of the run, in order: answers and finished calls.


@dataclass(frozen=True)
class _Event:
    at: datetime
    kind: Kind | None
    """None: a person's message was placed; whatever comes next begins there."""
    seq: int
    iteration: int
    begin: datetime | None = None
    label: str = ""
    outcome: str = ""


def _events(facts: Facts) -> list[_Event]:
    iterations: dict[int, int] = {}
    found: list[_Event] = []
    iteration = facts.iterations_before
    for message in facts.messages:
        iteration += message.is_answer
        iterations[message.seq] = iteration
        kind = Kind.MODEL if message.is_answer else None
        found.append(_Event(message.created_at, kind, message.seq, iteration))
    ran = [call for call in facts.calls if _was_run(call) and call.finished_at is not None]
    found += _together(ran, iterations)
    return sorted(found, key=attrgetter("at", "seq"))


def _was_run(call: CallRow) -> bool:
    return call.effect != "limit" and call.outcome in _RAN


def _is_at_work(call: CallRow, begin: datetime, end: datetime) -> bool:
    """Whether its tool was started between two moments and not finished by then."""
    if call.started_at is None or not begin - _SAME <= call.started_at <= end:
        return False
    return call.finished_at is None or call.finished_at > end


def _together(calls: Sequence[CallRow], iterations: dict[int, int]) -> Iterator[_Event]:
    """Calls as events; read-only ones that were stored together are one, since only their end is known."""
    before: list[CallRow] = []
    for call in calls:
        if before and not _is_joined(before[-1], call):
            yield _event_of(before, iterations)
            before = []
        before.append(call)
    if before:
        yield _event_of(before, iterations)


def _is_joined(one: CallRow, other: CallRow) -> bool:
    return (
        one.started_at is None
        and other.started_at is None
        and (one.seq, one.finished_at) == (other.seq, other.finished_at)
    )


def _event_of(calls: Sequence[CallRow], iterations: dict[int, int]) -> _Event:
    first, at = calls[0], calls[0].finished_at
    assert at is not None
    bad = next((c.outcome for c in calls if c.outcome != str(Outcome.RETURNED)), "")
    return _Event(
        at, Kind.TOOL, first.seq, iterations.get(first.seq, 0), first.started_at, _names(calls), bad
    )


def _names(rows: Iterable[CallRow]) -> str:
    return ", ".join(dict.fromkeys(row.name for row in rows))


# Slices and the gaps between them.


class _History:
    """Goes through the slices of a run and the gaps between them."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._events = _events(facts)
        self._calls: dict[int, list[CallRow]] = defaultdict(list)
        for call in facts.calls:
            self._calls[call.seq].append(call)
        self._iteration, self._seq = facts.iterations_before, 0

    def spans(self) -> Iterator[Span]:
        """All of them, empty ones too."""
        facts, at, taken = self._facts, self._facts.created_at, 0
        before: SliceRow | None = None
        for row, after in zip_longest(facts.slices, facts.slices[1:]):
            begin = max(at, row.claimed_at)
            yield from self._gap(before, row, at, begin)
            until = taken
            while until < len(self._events) and (after is None or self._events[until].at < after.claimed_at):
                until += 1
            at = max(begin, _end_of(facts, row))
            yield from self._inside(row, self._events[taken:until], self._events[until:][:1], begin, at)
            taken, before = until, row
        yield from self._gap(before, None, at, max(at, _until(facts)))

    def _inside(
        self, row: SliceRow, events: Sequence[_Event], later: Sequence[_Event], at: datetime, end: datetime
    ) -> Iterator[Span]:
        """What a worker did between two moments."""
        for event in events:
            until = _clipped(event.at, at, end)
            since = until if event.kind is None else min(_clipped(event.begin, at, end), until)
            yield self._span(Kind.OTHER, at, since)
            self._iteration, self._seq = event.iteration, event.seq
            if event.kind is not None:
                yield self._span(event.kind, since, until, event.label, event.outcome)
            at = until
        yield self._tail(row, later, at, end)

    def _tail(self, row: SliceRow, later: Sequence[_Event], at: datetime, end: datetime) -> Span:
        """What the worker was at when the slice ended, or is at now."""
        was_broken_off = row.ended_at is None or row.ended_as in list(SliceEnd)
        if row.error_code:
            return self._span(Kind.MODEL, at, end, outcome=row.error_code, ahead=1)
        if not was_broken_off:
            return self._span(Kind.OTHER, at, end)
        outcome = RUNNING if row.ended_at is None else INTERRUPTED
        calls = self._calls[self._seq]
        begun = [call for call in calls if _is_at_work(call, at, end)]
        if begun:
            return self._span(Kind.TOOL, at, end, begun[-1].name, outcome)
        if later and later[0].kind is not None:
            # Whatever was interrupted is what was finished next.
            ahead = later[0].iteration - self._iteration
            return self._span(later[0].kind, at, end, later[0].label, outcome, ahead=ahead)
        open_calls = [call for call in calls if call.status != CallStatus.DONE and _was_run(call)]
        if open_calls:
            return self._span(Kind.TOOL, at, end, open_calls[0].name, outcome)
        return self._span(Kind.MODEL, at, end, outcome=outcome, ahead=1)

    def _gap(
        self, before: SliceRow | None, after: SliceRow | None, begin: datetime, end: datetime
    ) -> Iterator[Span]:
        """What the run waited for between two slices, before the first, or after the last."""
        paused_at = end
        left = "" if before is None else before.ended_as
        if after is None and self._facts.status == RunStatus.PAUSED and left != RunStatus.PAUSED:
            # Somebody paused it while it was queued.
            paused_at = _clipped(self._facts.updated_at, begin, end)
        for kind, since, until, label in _waits(self._facts, before, after, begin, paused_at):
            yield self._span(kind, since, until, label)
        yield self._span(Kind.PAUSED, paused_at, end)

    def _span(
        self,
        kind: Kind,
        begin: datetime,
        end: datetime,
        label: str = "",
        outcome: str = "",
        *,
        ahead: int = 0,
    ) -> Span:
        return Span(kind, begin, end, label, self._iteration + ahead, self._seq, outcome)


def _until(facts: Facts) -> datetime:
    if facts.status in TERMINAL:
        return facts.finished_at or facts.updated_at or facts.now
    return facts.now


def _end_of(facts: Facts, row: SliceRow) -> datetime:
    if row.ended_at is not None:
        return row.ended_at
    # Nobody has renewed an expired lease: whoever held it is gone, and nobody has noticed yet.
    return facts.now if facts.lease_until is None else min(facts.now, facts.lease_until)


_RESTS = {
    str(RunStatus.SUSPENDED): Kind.PERSON,
    str(RunStatus.PAUSED): Kind.PAUSED,
    **{str(status): Kind.ENDED for status in TERMINAL},
}


def _waits(
    facts: Facts, before: SliceRow | None, after: SliceRow | None, begin: datetime, end: datetime
) -> Iterator[tuple[Kind, datetime, datetime, str]]:
    left = "" if before is None else before.ended_as
    if before is not None and (before.ended_at is None or left in list(SliceEnd)):
        yield Kind.DOWN, begin, end, ""
        return
    if after is None and left in TERMINAL and facts.status in TERMINAL:
        return
    due = _due(facts, left, after, begin, end)
    if left in _RESTS:
        yield _RESTS[left], begin, due, _asked(facts.approvals, begin, due) if left == "suspended" else ""
    elif before is not None and before.error_code:
        yield Kind.BACKOFF, begin, due, before.error_code
    elif due - begin > _SAME:
        yield Kind.PAUSED, begin, due, ""  # Nothing else keeps a queued run from being due.
    else:
        due = begin
    yield Kind.QUEUE, due, end, ""


def _due(facts: Facts, left: str, after: SliceRow | None, begin: datetime, end: datetime) -> datetime:
    """From when on the run waited for a worker alone."""
    if after is not None:
        return _clipped(after.waited_since, begin, end)
    if facts.status == RunStatus.QUEUED:
        return _clipped(_latest(facts.updated_at, facts.next_attempt_at), begin, end)
    if left in _RESTS:
        return end
    return _clipped(facts.next_attempt_at, begin, end)


def _clipped(moment: datetime | None, begin: datetime, end: datetime) -> datetime:
    return begin if moment is None else min(max(moment, begin), end)


def _latest(*moments: datetime | None) -> datetime | None:
    return max((moment for moment in moments if moment is not None), default=None)


def _asked(approvals: Iterable[ApprovalRow], begin: datetime, end: datetime) -> str:
    """The tools that people were asked about between two moments."""
    return ", ".join(
        dict.fromkeys(
            row.tool
            for row in approvals
            if row.requested_at <= end and (row.decided_at is None or row.decided_at >= begin)
        )
    )
