"""The runs: where each stands and why, what was said and done, and the actions to steer it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.formats import number_format
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from .. import redaction, runs
from ..compat import on_change_form
from ..errors import AnvilError
from ..models import Run
from ..reviewers import name_of
from ..states import RESUMABLE, UNFINISHED, RunStatus, sources
from . import cases, conversation
from .filters import AgentFilter, ChoiceFilter
from .readonly import Outcomes, ReadOnlyMixin
from .rendering import pretty, pretty_json, visible

CONTROL = "anvil_django.control_run"
SENTENCE_LIMIT = 1_000

CANCELLED = {
    "now": ngettext_lazy("%(count)d run was cancelled.", "%(count)d runs were cancelled.", "count"),
    "soon": ngettext_lazy(
        "%(count)d run is being advanced; it ends at its next step.",
        "%(count)d runs are being advanced; they end at their next step.",
        "count",
    ),
}
PAUSED = {
    "now": ngettext_lazy("%(count)d run was paused.", "%(count)d runs were paused.", "count"),
    "soon": ngettext_lazy(
        "%(count)d run is being advanced; it pauses at its next step.",
        "%(count)d runs are being advanced; they pause at their next step.",
        "count",
    ),
}
RESUMED = {
    "now": ngettext_lazy("%(count)d run goes on.", "%(count)d runs go on.", "count"),
}


PAUSABLE = sources(RunStatus.PAUSED)
RESTING = RESUMABLE - {RunStatus.QUEUED}
"""Where a run stays until a person does something."""


class RunAdminMixin(ReadOnlyMixin):
    """Runs, the latest first."""

    list_display = ("run_id", "agent", "status", "why", "started_by", "cost", "created_at")
    # No date hierarchy: it would read the dates of all runs for every page.
    list_filter = (("status", ChoiceFilter), AgentFilter, "created_at")
    search_fields = ("run_id", "user_name")
    ordering = ("-id",)
    # What an index has in order; a click on another column would sort all runs there are.
    sortable_by = ("run_id", "created_at")
    actions = ("cancel", "pause", "resume")
    change_form_template = "admin/anvil_django/run/change_form.html"
    fieldsets = (
        (None, {"fields": ("run_id", "agent", "status", "why", "started_by", "asked")}),
        (
            _("So far"),
            {
                "fields": (
                    "iterations",
                    "cost",
                    "input_tokens",
                    "output_tokens",
                    "cache_read_tokens",
                    "cache_write_tokens",
                    "active",
                    "limits_text",
                )
            },
        ),
        (_("When"), {"fields": ("created_at", "started_at", "updated_at", "finished_at", "next_attempt_at")}),
        (
            _("Details"),
            {
                "fields": (
                    "version",
                    "stop_reason",
                    "error_code",
                    "idempotency_key_text",
                    "metadata_text",
                    "attempt",
                    "recoveries",
                    "lease_owner",
                    "lease_until",
                ),
            },
        ),
    )

    # Who.

    def has_control_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Asked by Django before it offers or runs an action."""
        return bool(request.user.is_active and request.user.has_perm(CONTROL))

    def actions_for(self, obj: Run) -> list[str]:
        """Those that lead somewhere from where it stands."""
        may = {
            "cancel": obj.status in UNFINISHED,
            "pause": obj.status in PAUSABLE,
            "resume": obj.status in RESTING and obj.status != RunStatus.SUSPENDED,
        }
        return [name for name, leads in may.items() if leads]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Without what only a single page shows."""
        return super().get_queryset(request).defer("metadata", "limits", "container")

    # Columns and fields.

    @admin.display(description=_("why"))
    def why(self, run: Run) -> Any:
        """Why it waits or ended."""
        return self.or_empty(visible(run.error or run.stop_reason, SENTENCE_LIMIT))

    @admin.display(description=_("started by"), ordering="user_name")
    def started_by(self, run: Run) -> Any:
        """The person's name as it was then; the account may be gone."""
        return self.or_empty(visible(run.user_name))

    @admin.display(description=_("cost"), ordering="cost_usd")
    def cost(self, run: Run) -> Any:
        """What the model's answers cost."""
        return cases.money(run.cost_usd)

    @admin.display(description=_("the agent was asked"))
    def asked(self, run: Run) -> Any:
        """The first user message."""
        return self.or_empty(cases.asked(run.pk, run._state.db))

    @admin.display(description=_("active seconds"))
    def active(self, run: Run) -> str:
        """Time spent advancing it."""
        return str(number_format(run.active_seconds, decimal_pos=1))

    @admin.display(description=_("limits"))
    def limits_text(self, run: Run) -> SafeString:
        """What it may use in all."""
        return pretty_json(run.limits)

    @admin.display(description=_("metadata"))
    def metadata_text(self, run: Run) -> SafeString:
        """What the caller noted."""
        return pretty(redaction.shown_json("", run.metadata))

    @admin.display(description=_("idempotency key"))
    def idempotency_key_text(self, run: Run) -> Any:
        """The caller's key."""
        return self.or_empty(visible(run.idempotency_key or ""))

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Add the conversation."""
        run = kwargs.get("obj")
        if run is not None:
            context["conversation"] = conversation.read(run)
        return super().render_change_form(request, context, *args, **kwargs)

    # Actions.

    @on_change_form
    @admin.action(description=_("Cancel"), permissions=["control"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """End the selected runs, once the person has confirmed it: there is no way back."""
        self.demand(self.has_control_permission(request))
        rows = self.selected(request, queryset)
        if not rows:
            return None
        if not self.is_confirmed(request):
            return self.ask(
                request,
                "admin/anvil_django/run/cancel.html",
                title=_("Cancel runs"),
                rows=rows,
                action="cancel",
            )
        self._steer(request, rows, runs.cancel, RunStatus.CANCELLED, Outcomes(**CANCELLED), _("Cancelled."))
        return None

    @on_change_form
    @admin.action(description=_("Pause"), permissions=["control"])
    def pause(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Stop the selected runs until they are resumed."""
        self.demand(self.has_control_permission(request))
        rows = self.selected(request, queryset)
        self._steer(request, rows, runs.pause, RunStatus.PAUSED, Outcomes(**PAUSED), _("Paused."))

    @on_change_form
    @admin.action(description=_("Resume"), permissions=["control"])
    def resume(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Have the selected runs go on."""
        self.demand(self.has_control_permission(request))
        outcomes = Outcomes(**RESUMED)
        for row in self.selected(request, queryset):
            try:
                run = runs.resume(row.run_id)
            except AnvilError as exc:
                outcomes.skip(row.run_id, visible(exc.message, SENTENCE_LIMIT))
                continue
            if row.status in RESTING and run.status != row.status:
                outcomes.done("now")
                self.log_change(request, row, str(_("Resumed.")))
            else:
                outcomes.skip(row.run_id, _already(run))
        outcomes.tell(request)

    def _steer(
        self,
        request: HttpRequest,
        rows: list[Run],
        change: Callable[..., Run],
        wanted: RunStatus,
        outcomes: Outcomes,
        log: Any,
    ) -> None:
        for row in rows:
            if row.status == str(wanted):
                outcomes.skip(row.run_id, _already(row))
                continue
            try:
                run = change(row.run_id, by=name_of(request.user))
            except AnvilError as exc:
                outcomes.skip(row.run_id, visible(exc.message, SENTENCE_LIMIT))
                continue
            outcomes.done("now" if run.status == str(wanted) else "soon")
            # The only place that says who it was.
            self.log_change(request, row, str(log))
        outcomes.tell(request)


def _already(run: Run) -> Any:
    return _("It is already %(status)s; there is nothing to do.") % {"status": run.get_status_display()}


class RunAdmin(RunAdminMixin, admin.ModelAdmin):  # type: ignore[type-arg]
    """Runs in the stock admin."""
