"""The verdicts the admin offers: what is asked for, what it means, and what it calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from .. import approvals
from ..models import Approval
from ..states import ApprovalKind, Channel
from . import cases
from .forms import AnswerForm, EditForm, RaiseForm, RejectForm, VerdictForm

TOOL, IN_DOUBT, LIMIT = (str(kind) for kind in (ApprovalKind.TOOL, ApprovalKind.IN_DOUBT, ApprovalKind.LIMIT))


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One way to decide."""

    action: str
    """Its name in addresses and forms."""
    title: Promise
    """What it is called where cases of several kinds are decided together."""
    titles: Mapping[str, Promise]
    """What it is called for one case, by the case's kind."""
    means: Mapping[str, Promise]
    """What it means, for the kinds of approval it fits."""
    form: type[VerdictForm]
    """What is asked for."""
    forms: Mapping[str, type[VerdictForm]] = field(default_factory=dict)
    """The same for one case, where that is more, by its kind."""
    done: Any
    """How many were decided so."""
    decide: Callable[[Approval, Any, dict[str, Any]], Approval]
    is_yes: bool = True
    has_preview: bool = False
    """Whether what was filled in is shown once more before it counts."""

    def title_for(self, approval: Approval) -> Promise:
        """What it is called for this case."""
        return self.titles.get(approval.kind, self.title)

    def means_for(self, approval: Approval) -> Promise:
        """What it means for this case: a plain yes is to what the others have agreed to."""
        if self is APPROVE and cases.answer_in_force(approval):
            return AGREE_TO_ANSWER
        return self.means[approval.kind]

    def form_for(self, approval: Approval) -> type[VerdictForm]:
        """What is asked for about this case."""
        return self.forms.get(approval.kind, self.form)


def _approve(approval: Approval, user: Any, data: dict[str, Any]) -> Approval:
    edited = None
    amount = data.get("raise_by")
    if amount is not None and amount != cases.raise_in_force(approval):
        edited = {"raise_by": amount}
    return approvals.approve(
        approval, user=user, reason=data["reason"], edited_input=edited, channel=Channel.ADMIN
    )


def _edit(approval: Approval, user: Any, data: dict[str, Any]) -> Approval:
    return approvals.approve(
        approval, user=user, reason=data["reason"], edited_input=data["arguments"], channel=Channel.ADMIN
    )


def _answer(approval: Approval, user: Any, data: dict[str, Any]) -> Approval:
    return approvals.answer(
        approval, user=user, answer=data["answer"], reason=data["reason"], channel=Channel.ADMIN
    )


def _reject(approval: Approval, user: Any, data: dict[str, Any]) -> Approval:
    return approvals.reject(approval, user=user, reason=data["reason"], channel=Channel.ADMIN)


APPROVE = Verdict(
    action="approve",
    title=_("Approve"),
    titles={IN_DOUBT: _("It did not happen: run it"), LIMIT: _("Raise the limit")},
    form=VerdictForm,
    forms={LIMIT: RaiseForm},
    means={
        TOOL: _("The tool is run once, with exactly these arguments."),
        IN_DOUBT: _(
            "You say that it did NOT happen: the tool is run again with these arguments. "
            "If it did happen, this makes it happen twice."
        ),
        LIMIT: _("The run may use so much more, and goes on."),
    },
    done=ngettext_lazy("%(count)d case was approved.", "%(count)d cases were approved.", "count"),
    decide=_approve,
)
EDIT = Verdict(
    action="edit",
    title=_("Approve with edits"),
    titles={},
    form=EditForm,
    means={
        TOOL: _(
            "The tool is run once, with arguments that you change; the agent is told that a reviewer "
            "changed them."
        ),
    },
    done=ngettext_lazy(
        "%(count)d case was approved with edited arguments.",
        "%(count)d cases were approved with edited arguments.",
        "count",
    ),
    decide=_edit,
    has_preview=True,
)
ANSWER = Verdict(
    action="answer",
    title=_("Give the result"),
    titles={TOOL: _("Answer in the tool's place"), IN_DOUBT: _("It happened: give its result")},
    form=AnswerForm,
    means={
        TOOL: _("The tool is not run; the agent is told what you write as the result of the call."),
        IN_DOUBT: _("You say that it DID happen: nothing is run again, and the agent is told this result."),
    },
    done=ngettext_lazy("%(count)d case was answered.", "%(count)d cases were answered.", "count"),
    decide=_answer,
)
REJECT = Verdict(
    action="reject",
    title=_("Reject"),
    titles={IN_DOUBT: _("Tell the agent that it is unknown"), LIMIT: _("Stop here")},
    form=RejectForm,
    means={
        TOOL: _("The tool is not run; the agent is told so, with your reason, and goes on."),
        IN_DOUBT: _(
            "Nothing is run again; the agent is told that the outcome is unknown, with your reason, "
            "and goes on."
        ),
        LIMIT: _("The run ends at its limit."),
    },
    done=ngettext_lazy("%(count)d case was rejected.", "%(count)d cases were rejected.", "count"),
    decide=_reject,
    is_yes=False,
)
VERDICTS = (APPROVE, EDIT, ANSWER, REJECT)
AGREE_TO_ANSWER = _(
    "The tool is not run: you agree to the answer that another reviewer gave, and the agent is told it."
)
AGREED = ngettext_lazy(
    "%(count)d case has your agreement and waits for another person's.",
    "%(count)d cases have your agreement and wait for another person's.",
    "count",
)


def fitting(approval: Approval) -> list[Verdict]:
    """How a case of this kind can be decided."""
    return [verdict for verdict in VERDICTS if approval.kind in verdict.means]
