"""The rows of a run without their contents, for its timeline and its pages."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from django.db.models import QuerySet

from ..clock import get_clock
from ..models import Approval, Message, Run, Slice, ToolCall
from ..timeline import ApprovalRow, CallRow, Facts, MessageRow, SliceRow, Span, spans

MOST_ROWS = 10_000
"""Rows of each table that are read for one page, the latest."""


@dataclass(frozen=True)
class Outline:
    """A run in outline: its spans of time and the numbers of its answers."""

    facts: Facts
    spans: list[Span]
    earlier: int = 0
    """Answers before those that were read."""

    @cached_property
    def answers(self) -> list[int]:
        """The message numbers of the answers."""
        return [row.seq for row in self.facts.messages if row.is_answer]

    @property
    def iterations(self) -> int:
        """How many answers there are."""
        return self.earlier + len(self.answers)

    def iteration_of(self, seq: int) -> int:
        """The iteration of an answer; 0: the message is none."""
        return self._numbers.get(seq, 0)

    @cached_property
    def _numbers(self) -> dict[int, int]:
        return {seq: self.earlier + n for n, seq in enumerate(self.answers, start=1)}

    def messages_of(self, first: int, last: int) -> tuple[int, int | None]:
        """The numbers of the messages that these iterations are told with: from, and to (None: the end).

        What was said before the first answer belongs to it, and what follows the last answer to that.
        """
        begin, end = first - self.earlier - 2, last - self.earlier - 1
        since = 0 if begin < 0 else self.answers[begin] + 1
        return since, None if end >= len(self.answers) - 1 else self.answers[end]


def read(run: Run) -> Outline:
    """The outline of a run, in four queries, and a fifth where it is too long to be read whole."""
    using = run._state.db
    messages: list[MessageRow] = _latest(
        Message.objects.using(using).filter(run_id=run.pk), MessageRow, order=("-seq",)
    )
    calls = ToolCall.objects.using(using).filter(run_id=run.pk)
    approvals = Approval.objects.using(using).filter(run_id=run.pk)
    slices = Slice.objects.using(using).filter(run_id=run.pk)
    earlier, began = 0, run.created_at
    if len(messages) == MOST_ROWS:
        first = messages[0]
        began = first.created_at
        before = Message.objects.using(using).filter(run_id=run.pk, seq__lt=first.seq, role="assistant")
        earlier = before.exclude(stop_reason="").count()
        calls, slices = calls.filter(seq__gte=first.seq), slices.exclude(ended_at__lt=began)
    facts = Facts(
        created_at=began,
        status=run.status,
        updated_at=run.updated_at,
        finished_at=run.finished_at,
        next_attempt_at=run.next_attempt_at,
        lease_until=run.lease_until,
        now=get_clock().now(),
        iterations_before=earlier,
        messages=messages,
        calls=_latest(calls, CallRow, order=("-seq", "-index")),
        approvals=_latest(approvals, ApprovalRow, order=("-id",)),
        slices=_latest(slices, SliceRow, order=("-token",)),
    )
    return Outline(facts, spans(facts), earlier)


def _latest(rows: QuerySet[Any], kind: Any, *, order: tuple[str, ...]) -> Any:
    return [kind(*row) for row in rows.order_by(*order).values_list(*kind._fields)[:MOST_ROWS]][::-1]
