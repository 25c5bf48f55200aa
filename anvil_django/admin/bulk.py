"""Verdicts on several cases at once: a page that asks, and what became of each case."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.defaultfilters import timesince_filter
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.utils.translation import gettext, ngettext_lazy
from django.utils.translation import gettext_lazy as _

from .. import approvals, reviewers
from ..errors import AnvilError
from ..models import Approval
from ..states import ApprovalStatus
from . import cases
from .readonly import Outcomes
from .rendering import visible
from .verdicts import AGREED, ANSWER, APPROVE, REJECT, Verdict

if TYPE_CHECKING:
    from .readonly import ReadOnlyMixin as Base
else:
    Base = object

MESSAGE_LIMIT = 1_000
WRONG_KIND = _("Cases of this kind cannot be decided so.")
CHANGED = _("It has changed since you read it; open it again.")
CLAIMED = ngettext_lazy("%(count)d case is claimed by you.", "%(count)d cases are claimed by you.", "count")
RELEASED = ngettext_lazy("%(count)d case is released.", "%(count)d cases are released.", "count")


class BulkActionsMixin(Base):
    """The actions of the queue; every rule is behind ``approvals``."""

    def has_decide_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Asked by Django before it offers or runs an action."""
        return approvals.may_decide(request.user)

    @admin.action(description=_("Approve"), permissions=["decide"])
    def approve(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Say yes to the selected cases."""
        return self._decide(request, queryset, APPROVE)

    @admin.action(description=_("Reject"), permissions=["decide"])
    def reject(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Say no to the selected cases."""
        return self._decide(request, queryset, REJECT)

    @admin.action(description=_("Give the result"), permissions=["decide"])
    def answer(self, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Give the result of the selected calls in the tool's place."""
        return self._decide(request, queryset, ANSWER)

    @admin.action(description=_("Claim"), permissions=["decide"])
    def claim(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Keep others from deciding the selected cases meanwhile."""
        self._mark(request, queryset, approvals.claim, CLAIMED)

    @admin.action(description=_("Release"), permissions=["decide"])
    def release(self, request: HttpRequest, queryset: QuerySet[Any]) -> None:
        """Give the claims on the selected cases back."""
        self._mark(request, queryset, approvals.release, RELEASED)

    def _mark(
        self, request: HttpRequest, queryset: QuerySet[Any], change: Callable[..., Approval], done: Any
    ) -> None:
        self.demand(self.has_decide_permission(request))
        outcomes = Outcomes(done=done)
        for row in self.selected(request, queryset):
            what = cases.sentence(row)
            try:
                change(row, user=request.user)
            except AnvilError as exc:
                outcomes.skip(what, visible(exc.message, MESSAGE_LIMIT))
                continue
            outcomes.done("done")
        outcomes.tell(request)

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
        groups = reviewers.groups_of(request.user)
        whys = [(row, why_not(row, verdict, request.user, groups)) for row in rows]
        if all(why for _row, why in whys):
            outcomes = Outcomes()
            for row, why in whys:
                outcomes.skip(cases.sentence(row), why)
            outcomes.tell(request)
            return None
        return self.ask(
            request,
            "admin/anvil_django/approval/decide.html",
            title=verdict.title,
            verdict=verdict,
            form=form,
            rows=rows,
            cases=[_told(row, verdict) for row, why in whys if not why],
            skipped=[(cases.sentence(row), why) for row, why in whys if why],
        )

    def _apply(
        self, request: HttpRequest, rows: list[Approval], verdict: Verdict, data: dict[str, Any]
    ) -> None:
        outcomes = Outcomes(decided=verdict.done, agreed=AGREED)
        seen = request.POST.getlist("seen")
        for row in rows:
            what = cases.sentence(row)
            if row.kind not in verdict.means:
                outcomes.skip(what, WRONG_KIND)
                continue
            if verdict.is_yes and has_changed(row, seen):
                outcomes.skip(what, CHANGED)
                continue
            try:
                decided = verdict.decide(row, request.user, data)
            except AnvilError as exc:
                # Somebody was faster, the time is over, or this person may not: the others go on.
                outcomes.skip(what, visible(exc.message, MESSAGE_LIMIT))
                continue
            outcomes.done(outcome_of(decided))
        outcomes.tell(request)


def outcome_of(approval: Approval) -> str:
    """Whether a case is decided now, or waits for another person to agree too."""
    return "agreed" if approval.status == str(ApprovalStatus.PENDING) else "decided"


def mark_of(approval: Approval) -> str:
    """What a page that asks sends back: what the person saw."""
    return f"{approval.pk}:{approval.digest}"


def has_changed(approval: Approval, seen: list[str]) -> bool:
    """Whether a yes would be to something else than the person read: others can change what is agreed to."""
    open_to_change = approval.needed > 1 and approval.status == str(ApprovalStatus.PENDING)
    return open_to_change and mark_of(approval) not in seen


def why_not(approval: Approval, verdict: Verdict, user: Any, groups: frozenset[str]) -> Any:
    """Why the verdict cannot be given as the row stands; "" if it can. The door has the last word."""
    if approval.kind not in verdict.means:
        return WRONG_KIND
    if approval.status != str(ApprovalStatus.PENDING):
        status = approval.get_status_display()
        last = approval.decisions.last()
        if last is None:
            return format_html(gettext("It is already {status}."), status=status)
        by = visible(last.reviewer)
        return format_html(gettext("It is already {status}, by {reviewer}."), status=status, reviewer=by)
    return visible(reviewers.why_not_now(user, approval, groups=groups), MESSAGE_LIMIT)


def _told(row: Approval, verdict: Verdict) -> dict[str, Any]:
    """A case as the page that asks shows it."""
    return {
        "row": row,
        "mark": mark_of(row),
        "sentence": cases.sentence(row),
        "requester": visible(row.run.user_name),
        "age": timesince_filter(row.requested_at, row.decided_at),
        "title": verdict.title_for(row),
        "means": verdict.means_for(row),
        "quorum": visible(cases.progress_sentence(row), MESSAGE_LIMIT),
        "arguments": cases.arguments(row),
        "proposal": cases.proposal(row),
        "payload": cases.payload(row),
    }
