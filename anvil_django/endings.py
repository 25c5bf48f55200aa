"""How a run stops between two steps: handed back, paused, cancelled, or failed as poison."""

from __future__ import annotations

from django.utils.translation import gettext_noop

from . import history
from .calls import ToolCall
from .checkpoint import AgentCheckpoint
from .states import CallStatus, Outcome, RunStatus
from .steps import CANCELLED, CANCELLED_UNKNOWN
from .steps import PAUSED as TURN_PAUSED

SLICE_OVER = gettext_noop("Waits for a worker: its last one handed it back between two steps.")
PAUSED = gettext_noop("Paused by an operator. Resume it to go on.")
ENDED = gettext_noop("Cancelled by a person.")
POISON = gettext_noop(
    "The worker died {recoveries} times in a row while advancing this run, before a step was finished (out "
    "of memory, a crash in a tool, or a killed task?). Look at the worker's log, then resume."
)


def hand_back(checkpoint: AgentCheckpoint) -> None:
    """Back to the queue, for any worker to go on with."""
    checkpoint.status, checkpoint.error = RunStatus.QUEUED, SLICE_OVER


def take_back(checkpoint: AgentCheckpoint) -> None:
    """Running still, whatever the last step made of it; it is not stored yet, and follows again."""
    checkpoint.status, checkpoint.stop_reason = RunStatus.RUNNING, ""
    checkpoint.error_code = checkpoint.error = ""


def pause(checkpoint: AgentCheckpoint) -> None:
    """Stop until an operator resumes it."""
    checkpoint.status, checkpoint.error_code = RunStatus.PAUSED, ""
    checkpoint.error = PAUSED


def cancel(checkpoint: AgentCheckpoint) -> None:
    """End the run with a history that stays valid: every open call is answered."""
    for call in checkpoint.calls:
        if call.status is not CallStatus.DONE:
            begun = call.status in {CallStatus.STARTED, CallStatus.IN_DOUBT} and call.effect == "external"
            told = CANCELLED_UNKNOWN if begun else CANCELLED
            call.finish(Outcome.UNKNOWN if begun else Outcome.CANCELLED, told, is_error=True)
            checkpoint.touch(call)
    if checkpoint.calls:
        checkpoint.close_turn()
    close_paused_turn(checkpoint)
    close_question(checkpoint, CANCELLED)
    checkpoint.status, checkpoint.stop_reason = RunStatus.CANCELLED, "cancelled"
    checkpoint.error_code, checkpoint.error = "", ENDED


def close_paused_turn(checkpoint: AgentCheckpoint) -> None:
    """Answer the calls of a turn that the model has only paused: it never comes to them now.

    A history that ends with them could not go on with a further message.
    """
    asked = [] if checkpoint.calls else history.open_calls(checkpoint.messages)
    if not asked:
        return
    calls = [
        ToolCall(
            call_id=block["id"],
            name=block["name"],
            input=block["input"],
            seq=len(checkpoint.messages) - 1,
            index=index,
            effect="none",
        )
        for index, block in enumerate(asked)
    ]
    for call in calls:
        call.finish(Outcome.CANCELLED, TURN_PAUSED, is_error=True)
    checkpoint.open_turn(calls)
    checkpoint.close_turn()


def close_question(checkpoint: AgentCheckpoint, told: str) -> None:
    """Nobody needs to decide about a limit any more."""
    question = checkpoint.question
    if question is not None and question.status is not CallStatus.DONE:
        question.finish(Outcome.REJECTED, told, is_error=True)
        checkpoint.touch(question)


def fail_as_poison(checkpoint: AgentCheckpoint) -> None:
    """Stop a run that takes its workers down."""
    checkpoint.status, checkpoint.error_code = RunStatus.FAILED, "poison"
    checkpoint.error = POISON.format(recoveries=checkpoint.recoveries)
