"""The verdicts the admin offers: what is asked for, what it means, and what it calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django import forms
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from .. import approvals
from ..models import Approval
from ..states import ApprovalKind

REASON_LENGTH = 2_000
ANSWER_LENGTH = 20_000


class ApproveForm(forms.Form):
    """A reason is welcome."""

    reason = forms.CharField(
        label=_("Reason"),
        required=False,
        max_length=REASON_LENGTH,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text=_("Kept with the decision."),
    )


class RejectForm(forms.Form):
    """A reason is needed: the agent is told."""

    reason = forms.CharField(
        label=_("Reason"),
        max_length=REASON_LENGTH,
        widget=forms.Textarea(attrs={"rows": 3, "required": True}),
        help_text=_("Kept with the decision and told to the agent."),
        error_messages={"required": _("Give a reason for the rejection; it is told to the agent.")},
    )


class AnswerForm(ApproveForm):
    """What the tool would have returned."""

    answer = forms.CharField(
        label=_("Result"),
        max_length=ANSWER_LENGTH,
        widget=forms.Textarea(attrs={"rows": 5, "required": True}),
        help_text=_("Told to the agent as the result of the call, for example a receipt number."),
        error_messages={"required": _("Give the result of the call; the agent goes on from it.")},
    )
    field_order = ("answer", "reason")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One way to decide."""

    action: str
    """Name of the admin action."""
    title: Promise
    """Heading of the page that asks."""
    submit: Promise
    """Its button."""
    form: type[forms.Form]
    means: dict[str, Promise]
    """What it means, for the kinds of approval it fits."""
    done: Any
    """How many were decided so."""
    decide: Callable[[Approval, Any, dict[str, Any]], Approval]


APPROVE = Verdict(
    action="approve",
    title=_("Approve"),
    submit=_("Approve"),
    form=ApproveForm,
    means={
        ApprovalKind.TOOL: _("The tool is run once, with exactly these arguments."),
        ApprovalKind.IN_DOUBT: _(
            "You say that it did NOT happen: the tool is run again with these arguments. "
            "If it did happen, this makes it happen twice."
        ),
    },
    done=ngettext_lazy("%(count)d case was approved.", "%(count)d cases were approved.", "count"),
    decide=lambda approval, user, data: approvals.approve(
        approval, user=user, reason=data["reason"], channel="admin"
    ),
)
REJECT = Verdict(
    action="reject",
    title=_("Reject"),
    submit=_("Reject"),
    form=RejectForm,
    means={
        ApprovalKind.TOOL: _("The tool is not run; the agent is told so, with your reason, and goes on."),
        ApprovalKind.IN_DOUBT: _(
            "Nothing is run again; the agent is told that the outcome is unknown, with your reason, "
            "and goes on."
        ),
    },
    done=ngettext_lazy("%(count)d case was rejected.", "%(count)d cases were rejected.", "count"),
    decide=lambda approval, user, data: approvals.reject(
        approval, user=user, reason=data["reason"], channel="admin"
    ),
)
ANSWER = Verdict(
    action="answer",
    title=_("It happened: give its result"),
    submit=_("It happened, with this result"),
    form=AnswerForm,
    means={
        ApprovalKind.IN_DOUBT: _(
            "You say that it DID happen: nothing is run again, and the agent is told this result."
        ),
    },
    done=ngettext_lazy("%(count)d case was answered.", "%(count)d cases were answered.", "count"),
    decide=lambda approval, user, data: approvals.approve(
        approval, user=user, reason=data["reason"], answer=data["answer"], channel="admin"
    ),
)
VERDICTS = (APPROVE, REJECT, ANSWER)
