"""What the dashboard can be asked for: a period, and an agent."""

from __future__ import annotations

from datetime import date
from typing import Any

from django import forms
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..clock import get_clock
from ..periods import MOST_DAYS, Period, between, last_days, last_hours
from ..statistics import Scope
from .filters import agents

HOURS = {"24h": 24}
DAYS = {"7d": 7, "30d": 30, "90d": 90}
USUAL = "7d"
LABELS = {
    "24h": gettext_lazy("24 hours"),
    "7d": gettext_lazy("7 days"),
    "30d": gettext_lazy("30 days"),
    "90d": gettext_lazy("90 days"),
}
DATE = forms.DateInput(format="%Y-%m-%d", attrs={"type": "date"})
ISO = ["%Y-%m-%d"]


class ScopeForm(forms.Form):
    """Which runs the figures are of. Dates win over a period that is counted from now."""

    period = forms.ChoiceField(
        label=gettext_lazy("Period"), choices=list(LABELS.items()), required=False, widget=forms.HiddenInput
    )
    agent = forms.ChoiceField(label=gettext_lazy("Agent"), required=False)
    since = forms.DateField(
        label=gettext_lazy("From"), required=False, localize=False, input_formats=ISO, widget=DATE
    )
    until = forms.DateField(
        label=gettext_lazy("To"), required=False, localize=False, input_formats=ISO, widget=DATE
    )
    use_required_attribute = False

    def __init__(self, data: Any, **kwargs: Any) -> None:
        super().__init__(data, label_suffix="", **kwargs)
        known = list(agents())
        # One without any run is no mistake: its figures are empty.
        asked = data.get("agent")
        names = known if not asked or asked in known else [*known, asked]
        field = self.fields["agent"]
        assert isinstance(field, forms.ChoiceField)
        field.choices = [("", _("All agents")), *((name, name) for name in names)]

    def clean(self) -> dict[str, Any]:
        """The scope, as ``scope``."""
        cleaned = super().clean() or {}
        if self.errors:
            return cleaned
        since, until = cleaned.get("since"), cleaned.get("until")
        now, zone = get_clock().now(), timezone.get_current_timezone()
        key = cleaned.get("period") or USUAL
        if since or until:
            period = self._between(since, until, now.astimezone(zone).date())
            key = ""
        else:
            period = last_hours(HOURS[key], now, zone) if key in HOURS else last_days(DAYS[key], now, zone)
        if period is not None:
            cleaned.update(scope=Scope(period, cleaned.get("agent") or None), key=key)
        return cleaned

    def _between(self, since: date | None, until: date | None, today: date) -> Period | None:
        until = until or today
        if since is None:
            self.add_error("since", _("Say from when, too."))
        elif since > until:
            self.add_error("until", _("It ends before it begins."))
        elif (until - since).days >= MOST_DAYS:
            self.add_error("until", _("At most %(most)d days at once.") % {"most": MOST_DAYS})
        else:
            # Days to come have no runs.
            return between(since, max(since, min(until, today)), timezone.get_current_timezone())
        return None
