"""The runs: where each stands and why, what was said and done, and the actions to steer it."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.formats import number_format
from django.utils.safestring import SafeString
from django.utils.translation import gettext_lazy as _

from .. import redaction
from ..models import Run
from . import cases
from .dashboard import DashboardMixin
from .filters import AgentFilter, ChoiceFilter
from .live import LiveMixin
from .readonly import ReadOnlyMixin
from .rendering import pretty, pretty_json, visible
from .run_page import RunPageMixin
from .steering import SENTENCE_LIMIT, SteeringMixin
from .stored import shown


class RunAdminMixin(DashboardMixin, LiveMixin, RunPageMixin, SteeringMixin, ReadOnlyMixin):
    """Runs, the latest first."""

    list_display = ("run_id", "agent", "status", "why", "started_by", "cost", "created_at")
    # No date hierarchy: it would read the dates of all runs for every page.
    list_filter = (("status", ChoiceFilter), AgentFilter, "created_at")
    search_fields = ("run_id", "user_name")
    ordering = ("-id",)
    # What an index has in order; a click on another column would sort all runs there are.
    sortable_by = ("run_id", "created_at")
    actions = ("cancel", "pause", "resume", "retry")
    change_form_template = "admin/anvil_django/run/change_form.html"
    change_list_template = "admin/anvil_django/run/change_list.html"
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

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Without what only a single page shows."""
        return super().get_queryset(request).defer("metadata", "limits", "container")

    # Columns and fields.

    @admin.display(description=_("why"))
    def why(self, run: Run) -> Any:
        """Why it waits or ended."""
        return self.or_empty(visible(shown(run.error) or run.stop_reason, SENTENCE_LIMIT))

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


class RunAdmin(RunAdminMixin, admin.ModelAdmin):  # type: ignore[type-arg]
    """Runs in the stock admin."""
