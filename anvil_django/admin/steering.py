"""What an operator can do to runs, from the list and from the page of one; every rule is behind ``runs``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from .. import runs
from ..errors import AnvilError
from ..models import Run
from ..models.run import CONTROL_PERMISSION
from ..reviewers import name_of
from ..states import TERMINAL, UNFINISHED, RunStatus, sources
from .readonly import Outcomes
from .rendering import visible

if TYPE_CHECKING:
    from .readonly import ReadOnlyMixin as Base
else:
    Base = object

SENTENCE_LIMIT = 1_000


@dataclass(frozen=True)
class Control:
    """One thing that can be done to runs.

    Args:
        label: On its button.
        change: The function behind it.
        wanted: The status that it is about.
        log: What the history of the run says.
        now: How many were changed at once.
        soon: How many will be, once whoever advances them heeds it; None: there is no such thing.
    """

    label: Any
    change: Callable[..., Run]
    wanted: RunStatus
    log: Any
    now: Any
    soon: Any = None


CONTROLS = {
    "pause": Control(
        _("Pause"),
        runs.pause,
        RunStatus.PAUSED,
        _("Paused."),
        ngettext_lazy("%(count)d run was paused.", "%(count)d runs were paused.", "count"),
        ngettext_lazy(
            "%(count)d run is being advanced; it pauses at its next step.",
            "%(count)d runs are being advanced; they pause at their next step.",
            "count",
        ),
    ),
    "resume": Control(
        _("Resume"),
        runs.resume,
        RunStatus.QUEUED,
        _("Resumed."),
        ngettext_lazy("%(count)d run goes on.", "%(count)d runs go on.", "count"),
    ),
    "retry": Control(
        _("Retry"),
        runs.retry,
        RunStatus.QUEUED,
        _("Retried."),
        ngettext_lazy(
            "%(count)d run goes on from its last stored step.",
            "%(count)d runs go on from their last stored steps.",
            "count",
        ),
    ),
    "cancel": Control(
        _("Cancel"),
        runs.cancel,
        RunStatus.CANCELLED,
        _("Cancelled."),
        ngettext_lazy("%(count)d run was cancelled.", "%(count)d runs were cancelled.", "count"),
        ngettext_lazy(
            "%(count)d run is being advanced; it ends at its next step.",
            "%(count)d runs are being advanced; they end at their next step.",
            "count",
        ),
    ),
}


def leads_somewhere(run: Run) -> list[str]:
    """Names of the controls that can do something from where the run stands, "fork" among them."""
    may = {
        "pause": run.status in sources(RunStatus.PAUSED) and not run.pause_requested,
        "resume": run.status == RunStatus.PAUSED,
        "retry": run.status == RunStatus.FAILED,
        "fork": run.status in TERMINAL,
        "cancel": run.status in UNFINISHED and not run.cancel_requested,
    }
    return [name for name, leads in may.items() if leads]


class SteeringMixin(Base):
    """The actions."""

    def has_control_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Asked by Django before it offers or runs an action."""
        return bool(request.user.is_active and request.user.has_perm(CONTROL_PERMISSION))

    @admin.action(description=CONTROLS["cancel"].label, permissions=["control"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """End the selected runs, once the person has confirmed it: there is no way back."""
        self.demand(self.has_control_permission(request))
        rows = self.selected(request, queryset)
        return self.steer(request, rows, "cancel") if rows else None

    @admin.action(description=CONTROLS["pause"].label, permissions=["control"])
    def pause(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Stop the selected runs until they are resumed."""
        self.demand(self.has_control_permission(request))
        self.steer(request, self.selected(request, queryset), "pause")

    @admin.action(description=CONTROLS["resume"].label, permissions=["control"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Have the selected runs go on."""
        self.demand(self.has_control_permission(request))
        self.steer(request, self.selected(request, queryset), "resume")

    @admin.action(description=CONTROLS["retry"].label, permissions=["control"])
    def retry(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Have the selected runs, which have failed, go on."""
        self.demand(self.has_control_permission(request))
        self.steer(request, self.selected(request, queryset), "retry")

    def steer(
        self, request: HttpRequest, rows: Sequence[Run], name: str, **asking: Any
    ) -> HttpResponse | None:
        """Do one thing to some runs and tell what became of each.

        Args:
            asking: What else the page is told that asks before runs are cancelled.

        Returns:
            That page, where it has to be asked first.

        Raises:
            PermissionDenied: Not allowed.
        """
        self.demand(self.has_control_permission(request))
        if name == "cancel" and not self.is_confirmed(request):
            page, title = "admin/anvil_django/run/cancel.html", _("Cancel runs")
            return self.ask(request, page, title=title, rows=rows, action=name, **asking)
        control = CONTROLS[name]
        outcomes = Outcomes(now=control.now, soon=control.soon)
        for row in rows:
            if row.status == str(control.wanted):
                outcomes.skip(row.run_id, _already(row))
                continue
            try:
                run = control.change(row.run_id, by=name_of(request.user))
            except AnvilError as exc:
                outcomes.skip(row.run_id, visible(exc.message, SENTENCE_LIMIT))
                continue
            is_asked = control.soon is not None and run.status != str(control.wanted)
            if run.status == row.status and not is_asked:
                outcomes.skip(row.run_id, _already(run))
                continue
            outcomes.done("soon" if is_asked else "now")
            # The only place that says who it was.
            self.log_change(request, row, str(control.log))
        outcomes.tell(request)
        return None


def _already(run: Run) -> Any:
    return _("It is already %(status)s; there is nothing to do.") % {"status": run.get_status_display()}
