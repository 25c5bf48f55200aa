"""A stored run, read back: one statement for the run, one for its calls, one for its messages.

Written out here, since the ORM takes longer to build each of them than a database to answer it; and of the
calls of a long run hardly any is more than the answer that was sent to the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, NamedTuple

from django.db import connections

from .. import exactjson
from ..calls import ToolCall, result_block
from ..checkpoint import AgentCheckpoint
from ..cost import Usage
from ..history import results_message
from ..limits import Limits
from ..models import AgentVersion, Approval, Message, Run
from ..models import ToolCall as ToolCallRow
from ..states import ApprovalKind, ApprovalStatus, CallStatus, Outcome, RunStatus
from .rows import read_call, read_decision, request_of


class StoredRun(NamedTuple):
    """The row of a run, and what is read with it of other tables."""

    alias: str
    run: Run
    prefix: str
    """Of its agent version."""
    was_asked: bool
    """Whether people were ever asked about one of its calls."""


def find_run(alias: str, run_id: str) -> StoredRun | None:
    """The run of that ``run_id``, if there is one."""
    rows: Iterable[Any] = Run.objects.using(alias).raw(_run_sql(alias), [str(run_id)])
    for run in rows:
        return StoredRun(alias, run, run.read_prefix, bool(run.was_asked))
    return None


def read_checkpoint(stored: StoredRun) -> AgentCheckpoint:
    """The checkpoint of a run.

    Raises:
        NewerCheckpointError: It was saved by a later version of this package.
    """
    run = stored.run
    run.check_readable()
    answers, known = _read_calls(stored)
    calls = [call for call in known if call.effect != "limit"]
    messages = _read_messages(stored, answers)
    return AgentCheckpoint(
        run_id=run.run_id,
        agent=run.agent,
        prefix=exactjson.loads(stored.prefix),
        messages=messages,
        status=RunStatus(run.status),
        calls=[call for call in calls if call.seq == len(messages) - 1],
        iterations=run.iterations,
        total_usage=Usage(run.input_tokens, run.output_tokens, run.cache_read_tokens, run.cache_write_tokens),
        total_cost_usd=run.cost_usd,
        approvals=_decided(calls),
        stop_reason=run.stop_reason,
        error_code=run.error_code,
        error=run.error,
        limits=Limits.from_dict(exactjson.loads(run.limits)),
        question=next((call for call in reversed(known) if call.effect == "limit"), None),
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


class _Answer(NamedTuple):
    """A call of an answered turn: all that the history needs of it."""

    call_id: str
    content: Any
    is_error: bool

    def result_block(self, toolset: str | None = None) -> dict[str, Any]:
        return result_block(self.call_id, self.content, self.is_error, toolset)


def _read_messages(stored: StoredRun, answers: dict[int, list[_Answer]]) -> list[dict[str, Any]]:
    """The history in order, with the results of calls where no message is stored."""
    messages: list[dict[str, Any]] = []
    names_toolsets = False

    def add_results() -> None:
        # Looking through the turn again for what a result has of its call is worth it for that alone.
        turn = messages if names_toolsets else []
        messages.append(results_message(answers[len(messages) - 1], turn))

    # What a worker has added since the run's row was read would have results that were read too early.
    for seq, role, content in _rows(_messages_sql, stored, stored.run.message_count):
        if seq > len(messages):  # The number left free for the results of the turn before.
            add_results()
        names_toolsets = names_toolsets or "toolset_name" in content
        messages.append({"role": role, "content": exactjson.loads(content)})
    if stored.run.message_count > len(messages):
        add_results()
    return messages


def _read_calls(stored: StoredRun) -> tuple[dict[int, list[_Answer]], list[ToolCall]]:
    """The answers by the number of their turn, and the calls themselves of which more than that matters.

    Those are the ones of a turn that is not answered yet, and all that people were asked about.
    """
    last = stored.run.message_count - 1
    approvals = _approvals(stored) if stored.was_asked else []
    asked = {approval.call_id for approval in approvals}
    answers: dict[int, list[_Answer]] = {}
    known: dict[int, ToolCall] = {}
    for row in _rows(_calls_sql, stored):
        pk, call_id, seq, effect, result, is_error, *_ = row
        if seq == last or pk in asked or effect == "limit":
            known[pk] = read_call(SimpleNamespace(**dict(zip(_CALL_COLUMNS, row, strict=True))))
        if effect != "limit":
            content = None if result is None else exactjson.loads(result)
            answers.setdefault(seq, []).append(_Answer(call_id, content, bool(is_error)))
    for approval in approvals:  # The last one about a call is the one in force.
        _attach(known[approval.call_id], approval)
    return answers, list(known.values())


def _approvals(stored: StoredRun) -> list[Approval]:
    rows = Approval.objects.using(stored.alias).filter(run_id=stored.run.pk)
    return list(rows.prefetch_related("decisions").order_by("id"))


def _attach(call: ToolCall, approval: Approval) -> None:
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


def _decided(calls: Iterable[ToolCall]) -> dict[str, dict[str, Any]]:
    return {
        call.call_id: call.decided_result()
        for call in calls
        if call.decision and call.status is CallStatus.DONE
    }


# The statements.


_CALL_COLUMNS = (
    "id",
    "call_id",
    "seq",
    "effect",
    "result",
    "is_error",
    "index",
    "name",
    "input",
    "on_interrupt",
    "status",
    "attempts",
    "started_token",
    "outcome",
)


def _rows(sql: Callable[[str], str], stored: StoredRun, *more: Any) -> Sequence[tuple[Any, ...]]:
    with connections[stored.alias].cursor() as cursor:
        cursor.execute(sql(stored.alias), [stored.run.pk, *more])
        rows: Sequence[tuple[Any, ...]] = cursor.fetchall()
        return rows


@lru_cache
def _run_sql(alias: str) -> str:
    quote = connections[alias].ops.quote_name
    columns = ", ".join(f"r.{quote(str(field.column))}" for field in Run._meta.concrete_fields)
    asked = f"SELECT 1 FROM {quote(Approval._meta.db_table)} a WHERE a.run_id = r.id"
    return " ".join(
        (
            f"SELECT {columns}, v.prefix AS read_prefix, EXISTS ({asked}) AS was_asked",
            f"FROM {quote(Run._meta.db_table)} r",
            f"JOIN {quote(AgentVersion._meta.db_table)} v ON v.id = r.version_id",
            "WHERE r.run_id = %s",
        )
    )


@lru_cache
def _messages_sql(alias: str) -> str:
    table = connections[alias].ops.quote_name(Message._meta.db_table)
    return f"SELECT seq, role, content FROM {table} WHERE run_id = %s AND seq < %s ORDER BY seq"


@lru_cache
def _calls_sql(alias: str) -> str:
    quote = connections[alias].ops.quote_name
    columns = ", ".join(quote(name) for name in _CALL_COLUMNS)
    table = quote(ToolCallRow._meta.db_table)
    return f"SELECT {columns} FROM {table} WHERE run_id = %s ORDER BY seq, {quote('index')}, id"
