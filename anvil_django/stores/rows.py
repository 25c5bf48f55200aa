"""Between a checkpoint and its rows; the only place that knows both."""

from __future__ import annotations

from typing import Any

from .. import exactjson
from ..calls import Decision, ToolCall
from ..checkpoint import CHECKPOINT_VERSION, AgentCheckpoint, MessageMeta
from ..history import final_text
from ..models import Approval as ApprovalRow
from ..models import Decision as DecisionRow
from ..models import Message as MessageRow
from ..models import Run
from ..states import CallStatus, Outcome, RunStatus
from .base import Request

ERROR_LIMIT = 4_000
"""Most characters of the sentence that says why a run waits or ended."""


def _fit(text: str, length: int) -> str:
    """The text as every database keeps it in a column of that length: PostgreSQL refuses NUL, for one."""
    return exactjson.clean_text(text)[:length]


def request_of(cancel: bool, pause: bool, steer: bool) -> Request | None:
    """What was asked of a run, the weightiest first."""
    return "cancel" if cancel else "pause" if pause else "steer" if steer else None


def run_values(checkpoint: AgentCheckpoint) -> dict[str, Any]:
    """The columns of the run that follow from its checkpoint."""
    usage = checkpoint.total_usage
    return {
        "status": str(checkpoint.status),
        "stop_reason": _fit(checkpoint.stop_reason, 64),
        "error_code": _fit(checkpoint.error_code, 64),
        "error": _fit(checkpoint.error, ERROR_LIMIT),
        "iterations": checkpoint.iterations,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
        "cost_usd": checkpoint.total_cost_usd,
        "active_seconds": checkpoint.active_seconds,
        "pauses": checkpoint.pauses,
        "container": exactjson.dumps(checkpoint.container) if checkpoint.container else "",
        "message_count": len(checkpoint.messages),
        "attempt": checkpoint.attempt,
        "checkpoint_version": CHECKPOINT_VERSION,
        "revision": checkpoint.revision + 1,
    }


def message_values(
    run_pk: int, seq: int, message: dict[str, Any], meta: MessageMeta, revision: int, now: Any
) -> dict[str, Any]:
    """The columns of a new message."""
    return {
        "run_id": run_pk,
        "seq": seq,
        "role": message["role"],
        "content": exactjson.dumps(message["content"]),
        "stop_reason": _fit(meta.stop_reason, 64),
        "model": _fit(meta.model, 100),
        "usage": exactjson.dumps(meta.usage) if meta.usage else "",
        "cost_usd": meta.cost_usd,
        "message_id": _fit(meta.message_id, 100),
        "request_id": _fit(meta.request_id, 100),
        "revision": revision,
        "created_at": now,
    }


def new_call_values(run_pk: int, call: ToolCall, revision: int, now: Any) -> dict[str, Any]:
    """The columns of a new tool call."""
    return {
        "run_id": run_pk,
        "seq": call.seq,
        "index": call.index,
        "call_id": call.call_id,
        "name": call.name[:128],
        "input": exactjson.dumps(call.input),
        "created_revision": revision,
        "created_at": now,
        **dict.fromkeys(("started_at", "started_revision", "finished_at", "finished_revision")),
        **call_values(call, revision, now),
    }


def call_values(call: ToolCall, revision: int, now: Any) -> dict[str, Any]:
    """The columns of a tool call that change."""
    done = call.status is CallStatus.DONE
    values: dict[str, Any] = {
        "effect": call.effect,
        "on_interrupt": call.on_interrupt or "",
        "status": str(call.status),
        "outcome": str(call.outcome) if call.outcome else "",
        "attempts": call.attempts,
        "started_token": call.started_token,
        "result": exactjson.dumps(call.content) if done else None,
        "is_error": call.is_error,
    }
    if call.status is CallStatus.STARTED:
        values.update(started_at=now, started_revision=revision)
    if done:
        values.update(finished_at=now, finished_revision=revision)
    return values


def approval_row(
    run_pk: int, call_pk: int, call: ToolCall, run_id: str, revision: int, now: Any
) -> ApprovalRow:
    """A new question about a call."""
    return ApprovalRow(
        run_id=run_pk,
        call_id=call_pk,
        open_key=str(call_pk),
        kind=str(call.kind),
        tool=call.name[:128],
        payload="" if call.payload is None else exactjson.dumps(call.payload),
        digest=call.digest(run_id),
        reviewers=call.reviewers or "",
        needed=call.needed,
        escalate_to=call.escalate_to or "",
        escalate_at=call.escalate_at,
        revision=revision,
        requested_at=now,
        expires_at=call.expires_at,
    )


def read_final_text(run: Run) -> str:
    """``AgentCheckpoint.final_text`` of a run, without reading the rest of its history."""
    if run.status != str(RunStatus.DONE):
        return ""
    # The number is asked for, so that a turn that ends the history with its calls' results has no text.
    last = MessageRow.objects.using(run._state.db).filter(run_id=run.pk, seq=run.message_count - 1)
    return final_text(
        [
            {"role": role, "content": exactjson.loads(text)}
            for role, text in last.values_list("role", "content")
        ]
    )


def read_call(row: Any) -> ToolCall:
    """A stored tool call, without its approval; ``row`` has the columns of ``models.ToolCall``."""
    return ToolCall(
        call_id=row.call_id,
        name=row.name,
        input=exactjson.loads(row.input),
        seq=row.seq,
        index=row.index,
        effect=row.effect,
        on_interrupt=row.on_interrupt or None,
        status=CallStatus(row.status),
        attempts=row.attempts,
        started_token=row.started_token,
        outcome=Outcome(row.outcome) if row.outcome else None,
        content=None if row.result is None else exactjson.loads(row.result),
        is_error=bool(row.is_error),
        stored=True,
    )


def read_decision(row: DecisionRow) -> Decision:
    """A stored decision."""
    return Decision(
        approved=row.approved,
        reviewer=row.reviewer,
        reason=row.reason,
        edited_input=exactjson.loads(row.edited_input) if row.edited_input else None,
        answer=exactjson.loads(row.answer) if row.answer else None,
        decided_at=row.created_at,
        channel=row.channel,
        digest=row.digest,
    )
