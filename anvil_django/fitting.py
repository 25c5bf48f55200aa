"""Whether what a decision carries fits the case: one rule, for ``approvals`` and for ``resume_agent``."""

from __future__ import annotations

from django.utils.translation import gettext as _

from .calls import Decision
from .errors import DecisionError, UnfitDecisionError
from .limits import check_decision
from .states import ApprovalKind
from .tools import InvalidToolInput, Tool, ToolContext


def check_fit(decision: Decision, kind: str, name: str, tool: Tool | None, context: ToolContext) -> None:
    """Refuse edited arguments or an answer that the case cannot take.

    Args:
        decision: What a person said.
        kind: What was asked (``ApprovalKind``).
        name: The tool, or the limit.
        tool: The tool as this process knows it; None if it does not.
        context: The call's own context, without the decision, for the tool's approval rule.

    Raises:
        UnfitDecisionError: It does not fit; the message says why.
        DecisionError: The tool is not known here, so edited arguments cannot be checked.
    """
    if kind == str(ApprovalKind.LIMIT):
        check_decision(name, edited_input=decision.edited_input, answer=decision.answer)
    elif decision.edited_input is not None:
        if kind == str(ApprovalKind.IN_DOUBT):
            raise UnfitDecisionError(
                _("The arguments of a call in doubt cannot be edited: it may have happened with them."),
                field="edited_input",
            )
        _check_edited(decision, name, tool, context)


def _check_edited(decision: Decision, name: str, tool: Tool | None, context: ToolContext) -> None:
    if tool is None:
        raise DecisionError(
            _("The tool %(tool)r is not available here, so edits cannot be checked.") % {"tool": name}
        )
    try:
        arguments = tool.validate(decision.storable().edited_input)
    except InvalidToolInput as exc:
        raise UnfitDecisionError(
            _("The edited arguments do not fit the tool: %(why)s") % {"why": exc.message},
            field="edited_input",
        ) from exc
    # The rule is asked about the new arguments too. Its yes is this person's to give; a rule that fails for
    # them leaves nobody knowing whether one person is enough.
    gate = tool.gate(arguments, context)
    if gate.failed:
        raise UnfitDecisionError(
            _("%(why)s Edit them otherwise, or reject the call.") % {"why": gate.reason},
            field="edited_input",
        )
