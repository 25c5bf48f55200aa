"""What a model's answer does to a checkpoint: every stop reason, and the calls of a turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext_noop

from . import history
from .agents import Agent
from .calls import ToolCall
from .checkpoint import AgentCheckpoint, MessageMeta
from .clock import get_clock
from .conf import get_settings
from .cost import Usage, add_cost, price
from .endings import close_paused_turn
from .limits import FIELDS
from .model_call import Answer
from .states import ApprovalKind, Outcome, RunStatus
from .steps import CANCELLED, DECLINED, PAUSED
from .tools import InvalidToolInput, Tool, ToolContext

UNUSABLE_INPUT = (
    "The input of this call was not an object, or not one that can be stored as it is (nested too deeply, "
    "for example), so it was not run. Send an object that fits the schema."
)


# Stored with the run, for people.
REFUSED = gettext_noop("The model refused to answer.")
REFUSED_BECAUSE = gettext_noop("The model refused to answer: {said}")
CUT_OFF = gettext_noop(
    "The answer was cut off at max_tokens={room}; nothing of it was run. Raise max_tokens on the agent and "
    "resume the run."
)
TOO_LONG = gettext_noop(
    "The conversation no longer fits the model's context window; the cut-off answer was not used."
)
UNKNOWN_REASON = gettext_noop(
    "The model stopped for a reason this version does not know ({reason}); nothing of the answer was run. "
    "Upgrade anvil_django, then resume the run."
)


@dataclass(frozen=True)
class AnswerReader:
    """Applies answers to the checkpoint of one run.

    Args:
        agent: Whose tools may be called.
        context: Makes the ``ToolContext`` of a call, for its gate.
    """

    agent: Agent
    context: Callable[[ToolCall], ToolContext]

    def apply(self, checkpoint: AgentCheckpoint, answer: Answer, used_ids: set[str]) -> None:
        """Add the answer to the history and open the turn it starts, or end the run.

        The usage is counted whatever becomes of the turn: it was billed. A truncated or refused turn is not
        kept, so that the history stays one that can be sent again.
        """
        meta = self._count(checkpoint, answer)
        checkpoint.attempt, checkpoint.next_attempt_at = 0, None
        checkpoint.error_code = checkpoint.error = ""
        reason = answer.stop_reason
        if reason in {"end_turn", "stop_sequence", "tool_use", "pause_turn", "compaction"}:
            self._keep(checkpoint, answer, meta, used_ids)
        elif reason == "refusal":
            checkpoint.status, checkpoint.stop_reason = RunStatus.DONE, "refusal"
            checkpoint.error = _refusal_text(answer.stop_details)
            close_paused_turn(checkpoint)
        else:
            checkpoint.status = RunStatus.FAILED
            room = max(checkpoint.prefix["max_tokens"], self.agent.max_tokens)
            checkpoint.error_code, checkpoint.error = _failure(reason, room)

    def _count(self, checkpoint: AgentCheckpoint, answer: Answer) -> MessageMeta:
        model = answer.model or checkpoint.prefix["model"]
        cost = price(model, answer.usage, prices=get_settings().prices, at=get_clock().now())
        checkpoint.iterations += 1
        checkpoint.total_usage = checkpoint.total_usage + Usage.from_api(answer.usage)
        checkpoint.total_cost_usd = add_cost(checkpoint.total_cost_usd, cost)
        if answer.container:
            checkpoint.container = answer.container
        return MessageMeta(
            stop_reason=answer.stop_reason,
            usage=answer.usage,
            cost_usd=cost,
            model=model,
            message_id=answer.message_id,
            request_id=answer.request_id,
        )

    def _keep(
        self, checkpoint: AgentCheckpoint, answer: Answer, meta: MessageMeta, used_ids: set[str]
    ) -> None:
        seq = len(checkpoint.messages)
        content, unusable = history.storable_answer(answer.content, used_ids, seq)
        if content:
            checkpoint.append({"role": "assistant", "content": content}, meta)
        # Calls that came before a pause are still open, and answered together with those of this answer.
        seq = len(checkpoint.messages) - 1
        calls = [self._call(b, seq, i) for i, b in enumerate(history.open_calls(checkpoint.messages))]
        asked = {block["id"] for block in content if block["type"] == "tool_use"}
        if answer.stop_reason in {"end_turn", "stop_sequence"}:
            checkpoint.status, checkpoint.stop_reason = RunStatus.DONE, answer.stop_reason
            if calls:  # Calls in a turn that does not ask for results never run, but must be answered.
                for call in calls:
                    call.finish(Outcome.CANCELLED, CANCELLED, is_error=True)
                checkpoint.open_turn(calls)
                checkpoint.close_turn()
        elif answer.stop_reason == "tool_use" and calls:
            checkpoint.pauses = 0
            checkpoint.open_turn(calls)
            for call in calls:
                if call.call_id in asked:
                    self._admit(checkpoint, call, usable=call.call_id not in unusable)
                else:
                    call.finish(Outcome.CANCELLED, PAUSED, is_error=True)
        else:
            # A paused turn goes on when the same history is sent again; so does one that only waits for
            # tools of the API's own.
            checkpoint.pauses += 1

    def _call(self, block: dict[str, Any], seq: int, index: int) -> ToolCall:
        tool = self.agent.callable_tools.get(block["name"])
        return ToolCall(
            call_id=block["id"],
            name=block["name"],
            input=block["input"],
            seq=seq,
            index=index,
            effect=tool.effect if tool else "none",
            on_interrupt=tool.on_interrupt if tool else None,
        )

    def _admit(self, checkpoint: AgentCheckpoint, call: ToolCall, *, usable: bool) -> None:
        """Refuse the call, let it wait for a person, or leave it ready to run."""
        tool = self.agent.callable_tools.get(call.name)
        if tool is None:
            call.finish(Outcome.REFUSED, f"Tool {call.name!r} not found.", is_error=True)
        elif not usable:
            call.finish(Outcome.REFUSED, UNUSABLE_INPUT, is_error=True)
        elif call.subject in checkpoint.rejected:
            call.finish(Outcome.DECLINED, DECLINED, is_error=True)
        else:
            try:
                arguments = tool.validate(call.input)
            except InvalidToolInput as exc:
                call.finish(Outcome.REFUSED, exc.message, is_error=True)
                return
            # A yes is stored with the call and never asked again; a no is, by whoever takes the run over
            # before the call has begun: it may run other code.
            gate = tool.gate(arguments, self.context(call))
            if gate.required:
                ask(call, tool, {"reason": gate.reason} if gate.reason else None)


def ask(call: ToolCall, tool: Tool | None, payload: Any, kind: ApprovalKind = ApprovalKind.TOOL) -> None:
    """Let a call wait for a person, under the tool's rules of review."""
    call.wait(kind, payload)
    now, ttl = get_clock().now(), get_settings().default_approval_ttl()
    if tool is not None:
        ttl = tool.approval_ttl or ttl
        call.reviewers, call.needed = tool.reviewers, tool.approvals
        if tool.escalate_to is not None and tool.escalate_after is not None:
            call.escalate_to, call.escalate_at = tool.escalate_to, now + tool.escalate_after
    # An outcome in doubt does not become known by waiting: only a question for permission expires.
    call.expires_at = now + ttl if ttl and kind is not ApprovalKind.IN_DOUBT else None


def ask_for_more(checkpoint: AgentCheckpoint, agent: Agent, reached: str, used: str) -> ToolCall:
    """Ask a person whether the run may use more than its limit; the question, in the form of a call."""
    allowed = getattr(checkpoint.limits, FIELDS[reached])
    # By default as much again as the agent begins with.
    more = getattr(agent.limits, FIELDS[reached]) or allowed
    question = ToolCall(
        # No id of the model's has a colon.
        call_id=f"limit:{checkpoint.revision}",
        name=reached,
        input={"limit": reached, "used": used, "allowed": str(allowed), "raise_by": str(more)},
        seq=len(checkpoint.messages),
        index=0,
        effect="limit",
    )
    ask(question, None, None, ApprovalKind.LIMIT)
    checkpoint.question = question
    return question


def _refusal_text(details: dict[str, Any] | None) -> str:
    details = details or {}
    parts = [str(details[key]) for key in ("category", "explanation") if details.get(key)]
    return REFUSED_BECAUSE.format(said=": ".join(parts)) if parts else REFUSED


def _failure(reason: str, room: int) -> tuple[str, str]:
    if reason == "max_tokens":
        return "max_tokens", CUT_OFF.format(room=room)
    if reason == "model_context_window_exceeded":
        return "context_window", TOO_LONG
    return "unknown_stop_reason", UNKNOWN_REASON.format(reason=repr(reason))
