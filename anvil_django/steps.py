"""``next_step``: what to do next, as a pure function of the checkpoint.

There is no resume code. A fresh run, a resumed one, one taken over by another worker and one woken by a
decision all ask this function; whoever wants to know what happens after a crash reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext_noop

from .calls import ToolCall
from .checkpoint import AgentCheckpoint
from .states import ApprovalKind, CallStatus, Channel, Outcome, RunStatus

REJECTED = (
    "A reviewer did not approve this call, so it was not run. Do not call it again with these arguments."
)
EXPIRED = "Nobody approved this call in time, so it was not run."
UNKNOWN = (
    "This call was started and then interrupted. Whether it took effect is unknown. "
    "It was not run again; do not assume either outcome."
)
DECLINED = (
    "A reviewer has already rejected this same call in this run. It was not run, and nobody was asked again."
)
MISMATCH = "The approval does not match this call, so it was not run."
CANCELLED = "Cancelled before completion."
NOT_RAISED = "The limit was not raised."
PAUSED = "The turn was paused, so this call was not run. Call it again if it is still needed."
CANCELLED_UNKNOWN = (
    "The run was cancelled while this call was in progress. Whether it took effect is unknown."
)
EDITED = "Note: a reviewer changed the arguments of this call. It was run with: {arguments}"
# So far for the model, whose language is the prompt's; from here for people.
COST_UNKNOWN = gettext_noop(
    "A price of this run (model {model}) is not known, so max_cost_usd cannot be kept. Add the model to "
    "ANVIL['PRICES'] and resume the run; if it was billed before that, start a new one."
)
PAUSE_LIMIT = gettext_noop(
    "The model paused its turn {pauses} times in a row. Resume the run to let it go on; a higher max_pauses "
    "on the agent holds for new runs."
)


@dataclass(frozen=True)
class CallModel:
    """Ask the model for the next turn."""


@dataclass(frozen=True)
class RunTool:
    """Run a tool."""

    call: ToolCall


@dataclass(frozen=True)
class AnswerCall:
    """Answer a call without running its tool."""

    call: ToolCall
    outcome: Outcome
    content: Any
    is_error: bool = True


@dataclass(frozen=True)
class AskPerson:
    """Ask a person about a call."""

    call: ToolCall
    kind: ApprovalKind
    payload: Any = None


@dataclass(frozen=True)
class CloseTurn:
    """Every call of the turn is done: answer the model."""


@dataclass(frozen=True)
class Wait:
    """Nothing is left to do until a person decides."""


@dataclass(frozen=True)
class AskLimit:
    """Ask a person whether the run may use more."""

    reached: str
    used: str


@dataclass(frozen=True)
class RaiseLimit:
    """A person has let the run use more."""

    question: ToolCall


@dataclass(frozen=True)
class Finish:
    """The run is over."""

    status: RunStatus
    stop_reason: str = ""
    error_code: str = ""
    error: str = ""


Step = CallModel | RunTool | AnswerCall | AskPerson | CloseTurn | Wait | AskLimit | RaiseLimit | Finish


def next_step(checkpoint: AgentCheckpoint) -> Step:
    """The next step of a running checkpoint.

    Calls of a turn go in block order; those that wait for a person do not hold up the others. The model is
    asked only when every call of its last turn has a result, and only inside the limits.
    """
    if checkpoint.calls:
        waiting = False
        for call in checkpoint.calls:
            step = _call_step(checkpoint, call)
            if step is not None and not isinstance(step, Wait):
                return step
            waiting = waiting or isinstance(step, Wait)
        return Wait() if waiting else CloseTurn()
    return _model_step(checkpoint)


def _call_step(checkpoint: AgentCheckpoint, call: ToolCall) -> Step | None:
    match call.status:
        case CallStatus.DONE:
            return None
        case CallStatus.READY:
            return _run_step(checkpoint, call)
        case CallStatus.STARTED:
            return _started_step(checkpoint, call)
    if call.decision is None:
        return Wait()
    return _decided_step(checkpoint, call)


def _is_bound(checkpoint: AgentCheckpoint, call: ToolCall) -> bool:
    """Whether the decision is about this very call, as it is stored now."""
    decision = call.decision
    if decision is None:
        return True
    return decision.digest == call.digest(checkpoint.run_id, decision.edited_input, decision.answer)


def _run_step(checkpoint: AgentCheckpoint, call: ToolCall) -> Step:
    """Run it, unless what is stored is no longer what a person let run."""
    if _is_bound(checkpoint, call):
        return RunTool(call)
    if call.status is CallStatus.STARTED and call.effect == "external":
        return AnswerCall(call, Outcome.UNKNOWN, UNKNOWN)
    return AnswerCall(call, Outcome.REJECTED, MISMATCH)


def _started_step(checkpoint: AgentCheckpoint, call: ToolCall) -> Step:
    if call.started_token == checkpoint.token:
        return RunTool(call)
    # Whoever started it is gone. What a read-only tool or a rolled back transaction did cannot matter.
    if call.effect != "external" or call.on_interrupt == "retry":
        return _run_step(checkpoint, call)
    if call.on_interrupt == "fail":
        return AnswerCall(call, Outcome.UNKNOWN, UNKNOWN)
    return AskPerson(call, ApprovalKind.IN_DOUBT)


def _decided_step(checkpoint: AgentCheckpoint, call: ToolCall) -> Step:
    decision = call.decision
    assert decision is not None
    if not _is_bound(checkpoint, call):
        return AnswerCall(call, Outcome.REJECTED, MISMATCH)
    if decision.approved is True:
        if decision.answer is not None:
            return AnswerCall(call, Outcome.ANSWERED, decision.answer, is_error=False)
        return RunTool(call)
    if call.kind is ApprovalKind.IN_DOUBT:
        return AnswerCall(call, Outcome.UNKNOWN, _with_reason(UNKNOWN, decision.reason))
    if decision.channel == Channel.EXPIRY:
        return AnswerCall(call, Outcome.EXPIRED, EXPIRED)
    return AnswerCall(call, Outcome.REJECTED, _with_reason(REJECTED, decision.reason))


def _with_reason(sentence: str, reason: str) -> str:
    return f"{sentence} Reason given: {reason}" if reason else sentence


def needs_intent(call: ToolCall, token: int) -> bool:
    """Whether the start of this call must be stored before it runs.

    A side effect's must, so that an interruption is seen; an approved call's must, so that the approval is
    used up. The effects of an atomic tool commit together with its result, or not at all.
    """
    if call.status is CallStatus.STARTED:
        return call.started_token != token
    return call.effect == "external" or call.decision is not None


def _model_step(checkpoint: AgentCheckpoint) -> Step:
    limits = checkpoint.limits
    if checkpoint.messages[-1]["role"] == "assistant" and not checkpoint.pauses:
        return Finish(RunStatus.DONE, checkpoint.stop_reason or "end_turn")
    if limits.max_cost_usd is not None and checkpoint.total_cost_usd is None:
        return Finish(
            RunStatus.FAILED,
            error_code="cost_unknown",
            error=COST_UNKNOWN.format(model=repr(checkpoint.prefix["model"])),
        )
    for reached, used, allowed in _uses(checkpoint):
        if allowed is not None and used >= allowed:
            return _limit_step(checkpoint, reached, str(used))
    if checkpoint.pauses > limits.max_pauses:
        return Finish(
            RunStatus.FAILED,
            error_code="pause_limit",
            error=PAUSE_LIMIT.format(pauses=checkpoint.pauses),
        )
    return CallModel()


def _uses(checkpoint: AgentCheckpoint) -> list[tuple[str, Any, Any]]:
    """Each limit: the stop reason it gives, what is used, and what is allowed."""
    limits = checkpoint.limits
    return [
        ("max_iterations", checkpoint.iterations, limits.max_iterations),
        ("max_tokens_total", checkpoint.total_usage.total, limits.max_tokens_total),
        ("max_seconds", checkpoint.active_seconds, limits.max_seconds),
        ("max_cost", checkpoint.total_cost_usd, limits.max_cost_usd),
    ]


def _limit_step(checkpoint: AgentCheckpoint, reached: str, used: str) -> Step:
    question = checkpoint.question
    if checkpoint.limits.on_limit != "ask":
        return Finish(RunStatus.DONE, reached)
    if question is None or question.status is CallStatus.DONE:
        return AskLimit(reached, used)
    decision = question.decision
    if decision is None:
        return Wait()
    if _is_bound(checkpoint, question) and decision.approved is True and decision.answer is None:
        return RaiseLimit(question)
    # The one that was asked about: another may have been reached since.
    return Finish(RunStatus.DONE, question.name)
