"""What a person is asked for to fork a run."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

MESSAGE_LENGTH = 20_000


class ForkForm(forms.Form):
    """From where the new run goes on, and with what.

    Args:
        iterations: How many answers the run has.
    """

    iteration = forms.IntegerField(
        label=_("After iteration"),
        min_value=0,
        help_text=_("The new run begins with a copy of all that was said up to there; 0: only the input."),
    )
    message = forms.CharField(
        label=_("Message"),
        required=False,
        max_length=MESSAGE_LENGTH,
        widget=forms.Textarea(attrs={"rows": 4, "cols": 80}),
        help_text=_("What to go on with; needed where the agent has spoken last."),
    )

    def __init__(self, data: Any, *, iterations: int) -> None:
        super().__init__(data, initial={"iteration": iterations})
        self.fields["iteration"].widget.attrs["max"] = iterations

    def values(self) -> dict[str, Any]:
        """As ``runs.fork`` takes them, which has the last word."""
        data = self.cleaned_data
        return {"iteration": data["iteration"], "message": data["message"].strip() or None}
