"""Between a checkpoint and its rows; the only place that knows both."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .. import exactjson
from ..calls import Decision, ToolCall
from ..checkpoint import CHECKPOINT_VERSION, AgentCheckpoint, MessageMeta
from ..cost import Usage
from ..history import final_text, results_message
from ..limits import Limits
from ..models import Approval as ApprovalRow
from ..models import Decision as DecisionRow
from ..models import Message as MessageRow
from ..models import Run
from ..models import ToolCall as ToolCallRow
from ..states import ApprovalKind, ApprovalStatus, CallStatus, Outcome, RunStatus
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


def read_checkpoint(run: Run) -> AgentCheckpoint:
    """The checkpoint of a run, whose ``version`` should be loaded with it.

    Raises:
        NewerCheckpointError: It was saved by a later version of this package.
    """
    run.check_readable()
    rows = _read_calls(run)
    calls = [call for call in rows if call.effect != "limit"]
    messages, open_calls = _read_messages(run, calls)
    return AgentCheckpoint(
        run_id=run.run_id,
        agent=run.agent,
        prefix=exactjson.loads(run.version.prefix),
        messages=messages,
        status=RunStatus(run.status),
        calls=open_calls,
        iterations=run.iterations,
        total_usage=Usage(run.input_tokens, run.output_tokens, run.cache_read_tokens, run.cache_write_tokens),
        total_cost_usd=run.cost_usd,
        approvals=_decided(calls),
        stop_reason=run.stop_reason,
        error_code=run.error_code,
        error=run.error,
        limits=Limits.from_dict(exactjson.loads(run.limits)),
        question=next((call for call in reversed(rows) if call.effect == "limit"), None),
        rejected=[call.subject for call in calls if _is_rejected(call)],
        metadata=exactjson.loads(run.metadata),
        active_seconds=run.active_seconds,
        pauses=run.pauses,
        attempt=run.attempt,
        next_attempt_at=run.next_attempt_at,
        container=exactjson.loads(run.container) if run.container else None,
        recoveries=run.recoveries,
        token=run.token,
        revision=run.revision,
        updated_at=run.updated_at,
        saved_count=run.message_count,
        requested=request_of(run.cancel_requested, run.pause_requested, run.steering_waits),
        store_key=run.pk,
    )


def _read_messages(run: Run, calls: list[ToolCall]) -> tuple[list[dict[str, Any]], list[ToolCall]]:
    """The history in order, and the calls of a turn that is not answered yet."""
    by_seq: dict[int, list[ToolCall]] = {}
    for call in calls:
        by_seq.setdefault(call.seq, []).append(call)
    rows = MessageRow.objects.using(run._state.db).filter(run_id=run.pk).order_by("seq")
    messages: list[dict[str, Any]] = []
    for seq, role, content in rows.values_list("seq", "role", "content"):
        if seq > len(messages):  # The number left free for the results of the turn before.
            messages.append(results_message(by_seq[len(messages) - 1], messages))
        messages.append({"role": role, "content": exactjson.loads(content)})
    if run.message_count > len(messages):
        messages.append(results_message(by_seq[len(messages) - 1], messages))
    return messages, by_seq.get(len(messages) - 1, [])


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


def _read_calls(run: Run) -> list[ToolCall]:
    rows = ToolCallRow.objects.using(run._state.db).filter(run_id=run.pk).order_by("seq", "index", "id")
    # Not as instances: they take as long again as all the JSON of a long run.
    rows = rows.values_list("pk", *_CALL_COLUMNS, named=True)
    calls = {row.pk: read_call(row) for row in rows}
    approvals = (
        ApprovalRow.objects.using(run._state.db)
        .filter(run_id=run.pk)
        .prefetch_related("decisions")
        .order_by("id")
    )
    for approval in approvals:  # The last one about a call is the one in force.
        _attach(calls[approval.call_id], approval)
    return list(calls.values())


_CALL_COLUMNS = (
    "call_id",
    "name",
    "input",
    "seq",
    "index",
    "effect",
    "on_interrupt",
    "status",
    "attempts",
    "started_token",
    "outcome",
    "result",
    "is_error",
)


def read_call(row: ToolCallRow) -> ToolCall:
    """A stored tool call, without its approval."""
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
        is_error=row.is_error,
        stored=True,
    )


def _attach(call: ToolCall, approval: ApprovalRow) -> None:
    call.kind = ApprovalKind(approval.kind)
    call.payload = exactjson.loads(approval.payload) if approval.payload else None
    call.reviewers = approval.reviewers or None
    call.needed = approval.needed
    call.escalate_to, call.escalate_at = approval.escalate_to or None, approval.escalate_at
    call.expires_at = approval.expires_at
    call.approval_id = approval.pk
    decided = list(approval.decisions.all())
    if approval.status == ApprovalStatus.PENDING or approval.needed > 1:
        call.agreed = [read_decision(row) for row in approval.agreeing()]
    stands = approval.status in {ApprovalStatus.APPROVED, ApprovalStatus.REJECTED, ApprovalStatus.EXPIRED}
    call.decision = read_decision(decided[-1]) if stands and decided else None


def _is_rejected(call: ToolCall) -> bool:
    decision = call.decision
    return call.outcome is Outcome.REJECTED and decision is not None and decision.approved is False


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


def _decided(calls: Iterable[ToolCall]) -> dict[str, dict[str, Any]]:
    return {
        call.call_id: call.decided_result()
        for call in calls
        if call.decision and call.status is CallStatus.DONE
    }
