"""The queue of approvals: what waits for a person, and the verdicts."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Prefetch, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.translation import gettext_lazy as _

from .. import approvals
from ..models import Decision
from ..states import ApprovalStatus
from .bulk import BulkActionsMixin
from .case_page import CasePageMixin
from .columns import CaseColumnsMixin
from .filters import AgentFilter, ChoiceFilter, ClaimFilter, ForMeFilter, StatusFilter, ToolFilter
from .readonly import ReadOnlyMixin
from .waiting import waiting

DETAILS = ("kind", "requested_at", "expires_at", "decided_at", "used_at", "call_id_text", "digest")


class ApprovalAdminMixin(BulkActionsMixin, CasePageMixin, CaseColumnsMixin, ReadOnlyMixin):
    """Approvals: what waits, the oldest at the top; by choice what was decided, the latest at the top."""

    list_display = (
        "sentence",
        "short_kind",
        "agent",
        "tool_name",
        "requester",
        "age",
        "expiry",
        "agreed",
        "claimant",
        "for_whom",
    )
    list_filter = (StatusFilter, ForMeFilter, ClaimFilter, ("kind", ChoiceFilter), AgentFilter, ToolFilter)
    search_fields = ("tool", "run__run_id", "run__agent", "run__user_name")
    actions = ("approve", "reject", "answer", "claim", "release")
    change_list_template = "admin/anvil_django/approval/change_list.html"
    change_form_template = "admin/anvil_django/approval/change_form.html"

    # Who.

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may decide must be able to read what is decided."""
        return approvals.may_decide(request.user) or super().has_view_permission(request, obj)

    # What.

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """With all that a row of the list shows, without what only a single page shows."""
        # The reasons and edits of earlier decisions are of no use in a list, and can be long.
        earlier = Prefetch("decisions", Decision.objects.defer("reason", "edited_input"))
        rows = super().get_queryset(request).select_related("run", "call").prefetch_related(earlier)
        return rows.defer("payload", "call__result", "run__metadata", "run__limits", "run__container")

    def get_ordering(self, request: HttpRequest) -> Any:
        """Of what waits the oldest first, of all else the latest: both as an index has them."""
        return ("id",) if _shows_what_waits(request) else ("-id",)

    def get_sortable_by(self, request: HttpRequest) -> Any:
        """Any column of what waits; the history only by time, since it is too long to be sorted."""
        return super().get_sortable_by(request) if _shows_what_waits(request) else ("sentence",)

    def get_list_display(self, request: HttpRequest) -> Any:
        """With the status, where not all rows have the same."""
        columns = list(super().get_list_display(request))
        if request.GET.get(StatusFilter.parameter_name) == StatusFilter.ALL:
            columns.insert(1, "state")
        return columns

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Without the link to the run for those who may not open it."""
        sees_runs = request.user.has_perm("anvil_django.view_run")
        context = ("asked", "run_link" if sees_runs else "run_name", "requester", "spent")
        changed = ("changed",) if obj is not None and (obj.needed > 1 or obj.proposal) else ()
        return (
            (None, {"fields": ("sentence", "state", "age", "for_whom", "claimant")}),
            (_("What will be done"), {"fields": ("tool", "arguments", *changed, "said")}),
            (_("Why it is asked"), {"fields": context}),
            (_("Decisions"), {"fields": ("quorum", "decided")}),
            (_("Details"), {"fields": DETAILS}),
        )

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """With the number of cases that wait and the age of the oldest."""
        context = {"waiting": waiting(request.user, self.admin_site.name), **(extra_context or {})}
        return super().changelist_view(request, context)


def _shows_what_waits(request: HttpRequest) -> bool:
    pending = str(ApprovalStatus.PENDING)
    return (request.GET.get(StatusFilter.parameter_name) or pending) == pending


class ApprovalAdmin(ApprovalAdminMixin, admin.ModelAdmin):  # type: ignore[type-arg]
    """Approvals in the stock admin."""
