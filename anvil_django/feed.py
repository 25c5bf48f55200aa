"""What happened in a run, in order, read from its rows: there is no second copy to fall behind or grow.

Every row says at which revision of its run it was written, and revisions are given out under the run's row
lock. So the order is total, nothing appears before something that was seen already, and a cursor is a place
in it: revision, rank within the revision, number within the rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import OuterRef, Q, Subquery

from . import exactjson
from .errors import BadInputError
from .models import Approval, Decision, Message, Run, ToolCall
from .states import TERMINAL

# Within one save: results of the step before, then the answer, then what the answer asks for, and the end if
# it is one. Decisions are written after the save whose revision they carry, also where that failed the run.
_FINISHED, _MESSAGE, _ASKED, _STARTED, _APPROVAL, _ENDED, _DECISION = range(1, 8)


@dataclass(frozen=True, order=True)
class Cursor:
    """A place in the feed; written ``revision.rank.number``."""

    revision: int = 0
    rank: int = 0
    number: int = 0

    def __str__(self) -> str:
        return f"{self.revision}.{self.rank}.{self.number}"

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """The reverse of ``str``; "" and "0" are the beginning.

        Raises:
            BadInputError: It is no cursor of ours.
        """
        parts = (text or "0").split(".")
        if len(parts) not in {1, 3} or not all(part.isascii() and part.isdigit() for part in parts):
            raise BadInputError(f"{text!r} is not a cursor: use the id of an event, or 0 for the beginning.")
        return cls(*(int(part[:18]) for part in parts))


@dataclass(frozen=True)
class FeedEvent:
    """One thing that happened."""

    cursor: Cursor
    type: str
    at: datetime | None
    data: dict[str, Any]


@dataclass(frozen=True)
class Page:
    """A stretch of the feed, and the run as it stood when it was read."""

    events: list[FeedEvent]
    cursor: Cursor
    """Where the next page begins."""
    run: Run
    more: bool
    """Whether there are further events already."""

    @property
    def ended(self) -> bool:
        """Whether this is all there will be, unless somebody has the run go on."""
        return self.run.status in TERMINAL and not self.more


def mark(run: Run) -> tuple[Any, ...]:
    """A value that differs once there is anything new to read or to say about a run; costs one query."""
    decisions = Decision.objects.filter(approval__run=OuterRef("pk")).order_by("-id").values("pk")[:1]
    rows = Run.objects.using(run._state.db).filter(pk=run.pk).annotate(last_decision=Subquery(decisions))
    found = rows.values_list("revision", "last_decision", "status", "error", "error_code").first()
    return found or ()


def read(run: Run, after: Cursor, *, limit: int = 200) -> list[FeedEvent]:
    """The events of ``page``."""
    return page(run, after, limit=limit).events


def page(run: Run, after: Cursor, *, limit: int = 200) -> Page:
    """The next events of a run after a cursor, oldest first: about ``limit`` at most, in a few queries.

    A revision is never cut in two, so that what belongs together comes together.
    """
    # The revision is read first: whatever was written up to it is there by now, and what a worker commits
    # between two of the queries below belongs to a later one.
    now = Run.objects.using(run._state.db).get(pk=run.pk)
    size = limit + 1
    while True:
        found, known = _collect(now, after, size)
        complete = sorted((e for e in found if e.cursor.revision <= known), key=lambda e: e.cursor)
        if complete or known >= now.revision:
            break
        size *= 4  # One revision has more rows than that: a turn with very many calls.
    events = complete
    if len(complete) > limit:
        last = complete[limit - 1].cursor.revision
        events = [event for event in complete if event.cursor.revision <= last]
    more = len(events) < len(complete) or known < now.revision
    return Page(events, events[-1].cursor if events else after, now, more)


def _collect(run: Run, after: Cursor, size: int) -> tuple[list[FeedEvent], int]:
    """Events from the cursor's revision on, and up to which revision they are all there."""
    alias, since = run._state.db, after.revision
    known = run.revision
    found: list[FeedEvent] = []
    messages = Message.objects.using(alias).filter(run=run, revision__gte=since)
    calls = ToolCall.objects.using(alias).filter(run=run).exclude(effect="limit")
    recent = Q(created_revision__gte=since) | Q(started_revision__gte=since) | Q(finished_revision__gte=since)
    approvals = Approval.objects.using(alias).filter(run=run, revision__gte=since)
    decisions = Decision.objects.using(alias).filter(approval__run=run, revision__gte=since)
    sources: list[tuple[Any, str, Any]] = [
        (messages.order_by("revision", "seq"), "revision", lambda row: [_message(row)]),
        (calls.filter(recent).order_by("created_revision", "id"), "created_revision", _call),
        (
            approvals.select_related("call").order_by("revision", "id"),
            "revision",
            lambda row: [_approval(row)],
        ),
        (
            decisions.select_related("approval__call").order_by("revision", "id"),
            "revision",
            lambda row: [_decision(row)],
        ),
    ]
    for rows, stamp, events in sources:
        page = list(rows[:size])
        if len(page) == size:
            # Rows that were left off are from this revision or a later one.
            known = min(known, getattr(page[-1], stamp) - 1)
        for row in page:
            found.extend(event for event in events(row) if event.cursor > after)
    if run.status in TERMINAL and (ended := _ended(run)).cursor > after:
        found.append(ended)
    return found, known


def _message(row: Message) -> FeedEvent:
    data: dict[str, Any] = {"seq": row.seq, "role": row.role, "content": exactjson.loads(row.content)}
    if row.stop_reason:
        data["stop_reason"] = row.stop_reason
    return FeedEvent(Cursor(row.revision, _MESSAGE, row.seq), "message", row.created_at, data)


def _call(row: ToolCall) -> Iterator[FeedEvent]:
    about = {"call_id": row.call_id, "tool": row.name}
    asked = {**about, "input": exactjson.loads(row.input)}
    yield FeedEvent(Cursor(row.created_revision, _ASKED, row.pk), "tool.requested", row.created_at, asked)
    if row.started_revision is not None:
        started = {**about, "attempt": row.attempts}
        yield FeedEvent(
            Cursor(row.started_revision, _STARTED, row.pk), "tool.started", row.started_at, started
        )
    if row.finished_revision is not None and row.result is not None:
        result = {
            **about,
            "outcome": row.outcome,
            "is_error": row.is_error,
            "content": exactjson.loads(row.result),
        }
        cursor = Cursor(row.finished_revision, _FINISHED, row.pk)
        yield FeedEvent(cursor, "tool.finished", row.finished_at, result)


def _approval(row: Approval) -> FeedEvent:
    data = {
        "approval": row.pk,
        "kind": row.kind,
        "call_id": row.call.call_id,
        "tool": row.tool,
        "payload": exactjson.loads(row.payload) if row.payload else None,
    }
    return FeedEvent(Cursor(row.revision, _APPROVAL, row.pk), "approval.requested", row.requested_at, data)


def _decision(row: Decision) -> FeedEvent:
    data = {
        "approval": row.approval_id,
        "call_id": row.approval.call.call_id,
        "verdict": row.verdict,
        "reviewer": row.reviewer,
        "reason": row.reason,
    }
    return FeedEvent(Cursor(row.revision, _DECISION, row.pk), "approval.decided", row.created_at, data)


def _ended(run: Run) -> FeedEvent:
    data = {
        "status": run.status,
        "stop_reason": run.stop_reason,
        "error": run.error if run.error_code else "",
    }
    return FeedEvent(Cursor(run.revision, _ENDED, 0), "run.ended", run.finished_at, data)
