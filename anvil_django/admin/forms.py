"""What a person is asked for with each verdict."""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from .. import approvals, exactjson
from ..errors import AnvilError
from ..limits import check_raise
from ..models import Approval
from ..states import ApprovalKind
from . import cases
from .rendering import editable

REASON_LENGTH = 2_000
ANSWER_LENGTH = 20_000
ARGUMENTS_LENGTH = 1_000_000


class VerdictForm(forms.Form):
    """A verdict; on the page of one case it knows the case and the person.

    Args:
        approval: The case, or None where one verdict holds for several.
        user: Who decides.
    """

    reason = forms.CharField(
        label=_("Reason"),
        required=False,
        max_length=REASON_LENGTH,
        widget=forms.Textarea(attrs={"rows": 3, "cols": 80}),
        help_text=_("Kept with the decision."),
    )

    def __init__(
        self, *args: Any, approval: Approval | None = None, user: Any = None, **options: Any
    ) -> None:
        self.approval, self.user = approval, user
        super().__init__(*args, **options)


class RejectForm(VerdictForm):
    """A reason is needed: the agent is told."""

    reason = forms.CharField(
        label=_("Reason"),
        max_length=REASON_LENGTH,
        widget=forms.Textarea(attrs={"rows": 3, "cols": 80, "required": True}),
        help_text=_("Kept with the decision and told to the agent."),
        error_messages={"required": _("Give a reason for the rejection; it is told to the agent.")},
    )


class AnswerForm(VerdictForm):
    """What the tool would have returned."""

    answer = forms.CharField(
        label=_("Result"),
        max_length=ANSWER_LENGTH,
        widget=forms.Textarea(attrs={"rows": 5, "cols": 80, "required": True}),
        help_text=_("Told to the agent as the result of the call, for example a receipt number."),
        error_messages={"required": _("Give the result of the call; the agent goes on from it.")},
    )
    field_order = ("answer", "reason")


class EditForm(VerdictForm):
    """Other arguments for the same tool."""

    arguments = forms.CharField(
        label=_("Arguments"),
        max_length=ARGUMENTS_LENGTH,
        widget=forms.Textarea(
            attrs={"rows": 16, "cols": 80, "class": "anvil-edit", "spellcheck": "false", "dir": "ltr"}
        ),
        help_text=_("A JSON object that fits the tool. What changes is shown before anything is decided."),
        error_messages={"required": _("Give the arguments as a JSON object.")},
    )
    field_order = ("arguments", "reason")

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if self.approval is not None:
            shown = cases.shown_arguments(self.approval, cases.arguments_in_force(self.approval))
            self.initial.setdefault("arguments", editable(shown))

    def clean_arguments(self) -> dict[str, Any]:
        """The arguments as a value, if they are JSON, differ from those in force and fit the tool.

        Raises:
            ValidationError: What is wrong with them, and where.
        """
        arguments = _json_object(self.cleaned_data["arguments"])
        if self.approval is None:
            return arguments
        try:
            arguments = approvals.with_originals(self.approval, arguments)
        except AnvilError as exc:
            raise ValidationError(exc.message) from exc
        unchanged = arguments == cases.arguments_in_force(self.approval)
        if unchanged and not cases.answer_in_force(self.approval):
            raise ValidationError(
                gettext("Nothing is changed: change something, or approve the call as it is.")
            )
        try:
            approvals.check_edited(self.approval, arguments, user=self.user)
        except AnvilError as exc:
            raise ValidationError(exc.message) from exc
        return arguments


class RaiseForm(VerdictForm):
    """By how much a limit is raised."""

    raise_by = forms.CharField(
        label=_("Raise by"),
        max_length=40,
        widget=forms.TextInput(attrs={"inputmode": "decimal", "required": True}),
        help_text=_("Added to the limit of this run alone."),
        error_messages={"required": _("Give the amount to raise the limit by.")},
    )
    field_order = ("raise_by", "reason")

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if self.approval is not None:
            self.initial.setdefault("raise_by", cases.raise_in_force(self.approval))

    def clean_raise_by(self) -> str:
        """The amount as it was typed, if it is one.

        Raises:
            ValidationError: It is not, or not a whole number where things are counted.
        """
        amount: str = self.cleaned_data["raise_by"]
        if self.approval is not None and self.approval.kind == str(ApprovalKind.LIMIT):
            try:
                check_raise(self.approval.tool, amount)
            except AnvilError as exc:
                raise ValidationError(exc.message) from exc
        return amount


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = exactjson.loads(text)
    except json.JSONDecodeError as exc:
        where = {"why": exc.msg, "line": exc.lineno, "column": exc.colno}
        raise ValidationError(
            gettext("This is not JSON: %(why)s, in line %(line)d at character %(column)d.") % where
        ) from exc
    except (ValueError, RecursionError) as exc:
        raise ValidationError(gettext("This is not JSON: %(why)s.") % {"why": exc}) from exc
    if not isinstance(value, dict):
        raise ValidationError(gettext("The arguments must be a JSON object, in braces."))
    storable: dict[str, Any] = exactjson.clean(value)
    if storable is not value:
        raise ValidationError(gettext("This cannot be stored as it is; is it nested too deeply?"))
    return storable
