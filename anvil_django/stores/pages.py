"""A stretch of a run's history, without reading the rest of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Any

from .. import exactjson, history
from ..models import Message as MessageRow
from ..models import Run
from ..models import ToolCall as ToolCallRow
from .rows import read_call


@dataclass(frozen=True, kw_only=True)
class SentMessage:
    """One message as it is sent, and what is known about it."""

    seq: int
    role: str
    content: Any
    composed: bool = False
    """Made of the results of tool calls, which have no other home."""
    stop_reason: str = ""
    model: str = ""
    usage: dict[str, Any] | None = None
    cost_usd: Decimal | None = None
    created_at: datetime | None = None
    tools: Mapping[str, str] = field(default_factory=dict)
    """The tools whose results a composed message holds, by the ids of the calls."""


def read_messages(run: Run, first: int, count: int) -> list[SentMessage]:
    """Up to ``count`` messages of a run from number ``first`` on, in three queries or four."""
    alias, end = run._state.db, min(first + count, run.message_count)
    rows = MessageRow.objects.using(alias).filter(run_id=run.pk, seq__gte=first - 1, seq__lt=end)
    stored = {row.seq: row for row in rows.order_by("seq")}
    calls: dict[int, list[ToolCallRow]] = {}
    asked = ToolCallRow.objects.using(alias).filter(run_id=run.pk, seq__gte=first - 1, seq__lt=end)
    for call in asked.exclude(effect="limit").order_by("seq", "index", "id"):
        calls.setdefault(call.seq, []).append(call)
    if first not in stored and first < end:
        stored |= _turn_before(run, first)
    return [
        _stored(stored[seq]) if seq in stored else _composed(seq, stored, calls.get(seq - 1, []))
        for seq in range(first, end)
    ]


def _turn_before(run: Run, seq: int) -> dict[int, MessageRow]:
    """The assistant messages right before a number: a turn that was paused has more than one."""
    found = {}
    rows = MessageRow.objects.using(run._state.db).filter(run_id=run.pk, seq__lt=seq).order_by("-seq")
    for row in rows[:50]:
        if row.role != "assistant":
            break
        found[row.seq] = row
    return found


def _stored(row: MessageRow) -> SentMessage:
    return SentMessage(
        seq=row.seq,
        role=row.role,
        content=exactjson.loads(row.content),
        stop_reason=row.stop_reason,
        model=row.model,
        usage=exactjson.loads(row.usage) if row.usage else None,
        cost_usd=row.cost_usd,
        created_at=row.created_at,
    )


def _composed(seq: int, stored: dict[int, MessageRow], calls: list[ToolCallRow]) -> SentMessage:
    turn: list[history.Message] = []
    while (row := stored.get(seq - 1 - len(turn))) is not None and row.role == "assistant":
        turn.append({"role": row.role, "content": exactjson.loads(row.content)})
    message = history.results_message([read_call(call) for call in calls], turn[::-1])
    times = [call.finished_at for call in calls if call.finished_at is not None]
    return SentMessage(
        seq=seq,
        role=message["role"],
        content=message["content"],
        composed=True,
        created_at=max(times, default=None),
        tools={call.call_id: call.name for call in calls},
    )
