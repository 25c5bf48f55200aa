"""The queue of approvals: what waits for a person, and the verdicts."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Case, F, QuerySet, Value, When
from django.http import HttpRequest, HttpResponse
from django.template.defaultfilters import timesince_filter
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from .. import approvals
from ..compat import on_change_form
from ..errors import AnvilError
from ..models import Approval
from ..states import ApprovalStatus
from . import cases
from .filters import AgentFilter, ToolFilter
from .readonly import Outcomes, ReadOnlyMixin
from .rendering import visible
from .verdicts import ANSWER, APPROVE, REJECT, Verdict

DETAILS = ("kind", "requested_at", "expires_at", "decided_at", "used_at", "call_id_text", "digest")
MESSAGE_LIMIT = 1_000
WRONG_KIND = _("This is only for calls in doubt.")
PENDING = When(status=str(ApprovalStatus.PENDING), then=Value(0))


class RunAgentFilter(AgentFilter):
    """By the agent of the run."""

    field = "run__agent"


class ApprovalAdminMixin(ReadOnlyMixin):
    """Approvals: pending ones first, the oldest at the top."""

    list_display = ("sentence", "kind", "state", "requester", "age", "expiry")
    list_filter = ("status", "kind", RunAgentFilter, ToolFilter)
    search_fields = ("tool", "run__run_id", "run__user_name")
    # Pending before decided; among pending the one that has waited longest, among decided the latest.
    ordering = (
        Case(PENDING, default=Value(1)),
        Case(When(status=str(ApprovalStatus.PENDING), then=F("id")), default=-F("id")),
    )
    actions = ("approve", "reject", "answer")

    # Who.

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may decide must be able to read what is decided."""
        return approvals.may_decide(request.user) or super().has_view_permission(request, obj)

    def has_decide_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Asked by Django before it offers or runs an action."""
        return approvals.may_decide(request.user)

    def actions_for(self, obj: Approval) -> list[str]:
        """Only what is pending can be decided, by the verdicts that fit its kind."""
        return [verdict.action for verdict in cases.verdicts(obj)]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """With run and call, without what only a single page shows."""
        rows = super().get_queryset(request).select_related("run", "call")
        return rows.defer("payload", "call__result", "run__metadata", "run__limits", "run__container")

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Without the link to the run for those who may not open it."""
        sees_runs = request.user.has_perm("anvil_django.view_run")
        context = ("asked", "run_link" if sees_runs else "run_name", "requester")
        return (
            (None, {"fields": ("sentence", "state", "choices")}),
            (_("What will be done"), {"fields": ("tool", "arguments", "said")}),
            (_("Why it is asked"), {"fields": context}),
            (_("Decisions"), {"fields": ("decided",)}),
            (_("Details"), {"fields": DETAILS}),
        )

    # Columns and fields.

    @admin.display(description=_("case"), ordering="id")
    def sentence(self, approval: Approval) -> SafeString:
        """What is asked."""
        return cases.sentence(approval)

    @admin.display(description=_("status"), ordering="status")
    def state(self, approval: Approval) -> Any:
        """Where it stands."""
        if cases.is_late(approval):
            return _("time is over: counts as a no")
        return approval.get_status_display()

    @admin.display(description=_("requested by"), ordering="run__user_name")
    def requester(self, approval: Approval) -> Any:
        """Who started the run."""
        return self.or_empty(visible(approval.run.user_name))

    @admin.display(description=_("waiting for"), ordering="requested_at")
    def age(self, approval: Approval) -> str:
        """How long it has waited, or waited until it was decided."""
        return timesince_filter(approval.requested_at, approval.decided_at)

    @admin.display(description=_("expires"), ordering="expires_at")
    def expiry(self, approval: Approval) -> Any:
        """Until when it can be decided."""
        return approval.expires_at if approval.status == str(ApprovalStatus.PENDING) else None

    @admin.display(description=_("what a decision means"))
    def choices(self, approval: Approval) -> Any:
        """Each verdict in words."""
        means = ((verdict.title, verdict.means[approval.kind]) for verdict in cases.verdicts(approval))
        return self.or_empty(format_html_join("", "<p><strong>{}</strong>: {}</p>", means))

    @admin.display(description=_("arguments"))
    def arguments(self, approval: Approval) -> SafeString:
        """What the tool will be run with."""
        return cases.arguments(approval)

    @admin.display(description=_("the tool says"))
    def said(self, approval: Approval) -> Any:
        """The payload of the request."""
        return self.or_empty(cases.payload(approval))

    @admin.display(description=_("the agent was asked"))
    def asked(self, approval: Approval) -> Any:
        """The first user message."""
        return self.or_empty(cases.asked(approval.run_id, approval._state.db))

    @admin.display(description=_("run"))
    def run_link(self, approval: Approval) -> SafeString:
        """The run, for those who may see it."""
        url = reverse(
            "admin:anvil_django_run_change", args=[approval.run_id], current_app=self.admin_site.name
        )
        return format_html('<a href="{}">{}</a>', url, approval.run.run_id)

    @admin.display(description=_("run"))
    def run_name(self, approval: Approval) -> str:
        """The run's id."""
        return approval.run.run_id

    @admin.display(description=_("decisions on this call"))
    def decided(self, approval: Approval) -> Any:
        """Who decided what, when and why."""
        return self.or_empty(cases.decisions(cases.earlier_decisions(approval)))

    @admin.display(description=_("call id"))
    def call_id_text(self, approval: Approval) -> SafeString:
        """The model's id of the call."""
        return visible(approval.call.call_id)

    # Actions.

    @on_change_form
    @admin.action(description=_("Approve"), permissions=["decide"])
    def approve(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Say yes to the selected cases."""
        return self._decide(request, queryset, APPROVE)

    @on_change_form
    @admin.action(description=_("Reject"), permissions=["decide"])
    def reject(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Say no to the selected cases."""
        return self._decide(request, queryset, REJECT)

    @on_change_form
    @admin.action(description=_("It happened: give its result"), permissions=["decide"])
    def answer(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Give the result of calls in doubt."""
        return self._decide(request, queryset, ANSWER)

    def _decide(
        self, request: HttpRequest, queryset: QuerySet[Any], verdict: Verdict
    ) -> TemplateResponse | None:
        self.demand(self.has_decide_permission(request))
        rows = self.selected(request, queryset)
        if not rows:
            return None
        confirmed = self.is_confirmed(request)
        form = verdict.form(request.POST if confirmed else None)
        if confirmed and form.is_valid():
            self._apply(request, rows, verdict, form.cleaned_data)
            return None
        fitting = [row for row in rows if _why_not(row, verdict) is None]
        if not fitting:
            outcomes = Outcomes()
            for row in rows:
                outcomes.skip(cases.sentence(row), _why_not(row, verdict))
            outcomes.tell(request)
            return None
        return self.ask(
            request,
            "admin/anvil_django/approval/decide.html",
            title=verdict.title,
            verdict=verdict,
            form=form,
            rows=rows,
            cases=[
                {
                    "row": row,
                    "sentence": cases.sentence(row),
                    "requester": visible(row.run.user_name),
                    "age": self.age(row),
                    "means": verdict.means.get(row.kind),
                    "arguments": cases.arguments(row),
                    "payload": cases.payload(row),
                }
                for row in fitting
            ],
            skipped=[(cases.sentence(row), why) for row in rows if (why := _why_not(row, verdict))],
        )

    def _apply(
        self, request: HttpRequest, rows: list[Approval], verdict: Verdict, data: dict[str, Any]
    ) -> None:
        outcomes = Outcomes(decided=verdict.done)
        for row in rows:
            what = cases.sentence(row)
            if row.kind not in verdict.means:
                outcomes.skip(what, WRONG_KIND)
                continue
            try:
                verdict.decide(row, request.user, data)
            except AnvilError as exc:
                # Somebody was faster, the time is over, or this person may not: the others go on.
                outcomes.skip(what, visible(exc.message, MESSAGE_LIMIT))
                continue
            outcomes.done("decided")
        outcomes.tell(request)


def _why_not(approval: Approval, verdict: Verdict) -> Any:
    """Why the verdict cannot be given as the row stands; None if it can. The door has the last word."""
    if approval.kind not in verdict.means:
        return WRONG_KIND
    if cases.is_late(approval):
        return _("Its time is over; it counts as a no.")
    if not cases.is_open(approval):
        last = approval.decisions.last()
        status = approval.get_status_display()
        if last is None:
            return format_html(gettext("It is already {status}."), status=status)
        return format_html(
            gettext("It is already {status}, by {reviewer}."), status=status, reviewer=visible(last.reviewer)
        )
    return None


class ApprovalAdmin(ApprovalAdminMixin, admin.ModelAdmin):  # type: ignore[type-arg]
    """Approvals in the stock admin."""
