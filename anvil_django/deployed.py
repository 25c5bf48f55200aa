"""A stored call, met by a process that may run other code than the one that stored it.

The run keeps its calls over a deploy; the tools are those of the process. A call is run only if the tool as
it is now takes its arguments, and under the stricter of what the tool promised then and what it promises now.
"""

from __future__ import annotations

from .calls import ToolCall
from .states import ApprovalKind, CallStatus, Outcome
from .steps import UNKNOWN, AnswerCall, AskPerson, RunTool
from .tools import InvalidToolInput, Tool, ToolContext

Step = RunTool | AnswerCall | AskPerson

NOT_FOUND = "Tool {name!r} not found."
EDITED_BEFORE = "These are the arguments as a reviewer changed them; the call was not run."


def as_deployed(call: ToolCall, token: int, tool: Tool | None, context: ToolContext) -> Step:
    """What to do with a call that is due to run and was stored by another slice of the run.

    Args:
        call: The call.
        token: The fencing token of this worker's lease.
        tool: The tool as this process knows it; None if it does not.
        context: The call's context, for the tool's approval rule.
    """
    # Started by a worker that is gone. What has a person's word that it did not happen is not.
    begun = call.status is CallStatus.STARTED and call.started_token != token
    effects = {call.effect, tool.effect if tool is not None else "none"}
    may_have_happened = begun and "external" in effects
    if tool is None:
        return _not_run(call, NOT_FOUND.format(name=call.name), may_have_happened)
    try:
        arguments = tool.validate(call.arguments)
    except InvalidToolInput as exc:
        edited = call.decision is not None and call.decision.edited_input is not None
        told = f"{exc.message} {EDITED_BEFORE}" if edited else exc.message
        return _not_run(call, told, may_have_happened)
    if begun and tool.effect == "external" and tool.on_interrupt != "retry":
        # It would have been run again by what its tool promised when it was started.
        if tool.on_interrupt == "fail":
            return AnswerCall(call, Outcome.UNKNOWN, UNKNOWN)
        return AskPerson(call, ApprovalKind.IN_DOUBT)
    if call.decision is None and (gate := tool.gate(arguments, context)).required:
        if may_have_happened:
            return AskPerson(call, ApprovalKind.IN_DOUBT)
        return AskPerson(call, ApprovalKind.TOOL, {"reason": gate.reason} if gate.reason else None)
    return RunTool(call)


def _not_run(call: ToolCall, why: str, may_have_happened: bool) -> AnswerCall:
    if may_have_happened:
        return AnswerCall(call, Outcome.UNKNOWN, UNKNOWN)
    return AnswerCall(call, Outcome.REFUSED, why)
