"""Filters of the lists: by values that occur, found without reading the runs, and by who may decide what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from .. import reviewers
from ..models import AgentVersion, Approval
from ..models.approval import APPROVAL_STATUS_LABELS
from ..states import ApprovalStatus


class ValueFilter(admin.SimpleListFilter):
    """By the value of one field."""

    field: str

    def values(self, request: HttpRequest) -> QuerySet[Any, str]:
        """What there is to choose from."""
        raise NotImplementedError

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, str]]:
        """Each value under its own name."""
        return [(value, value) for value in self.values(request)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The rows of the chosen value."""
        return queryset if self.value() is None else queryset.filter(**{self.field: self.value()})


class AgentFilter(ValueFilter):
    """By agent; every run has an agent version, of which there are few."""

    title = _("agent")
    parameter_name = "agent"
    field = "agent"

    def values(self, request: HttpRequest) -> QuerySet[Any, str]:
        """All agents that ever had a run."""
        return AgentVersion.objects.order_by("agent").values_list("agent", flat=True).distinct()


class ToolFilter(ValueFilter):
    """By tool."""

    title = _("tool")
    parameter_name = "tool"
    field = "tool"

    def values(self, request: HttpRequest) -> QuerySet[Any, str]:
        """All tools that somebody was ever asked about."""
        return Approval.objects.order_by("tool").values_list("tool", flat=True).distinct()


class StatusFilter(admin.SimpleListFilter):
    """By status; what waits, if nothing is chosen."""

    title = _("status")
    parameter_name = "status"
    ALL = "all"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, Any]]:
        """Every status, and all of them together."""
        return [*((str(s), label) for s, label in APPROVAL_STATUS_LABELS.items()), (self.ALL, _("all"))]

    def chosen(self) -> str:
        """The status in force."""
        return self.value() or str(ApprovalStatus.PENDING)

    def choices(self, changelist: Any) -> Iterator[Any]:
        """Without Django's own entry for nothing chosen: that is the first one."""
        for value, title in self.lookup_choices:
            yield {
                "selected": self.chosen() == value,
                "query_string": changelist.get_query_string({self.parameter_name: value}),
                "display": title,
            }

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """The rows of that status."""
        return queryset if self.chosen() == self.ALL else queryset.filter(status=self.chosen())


class ClaimFilter(admin.SimpleListFilter):
    """By who reads it."""

    title = _("claim")
    parameter_name = "claim"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, Any]]:
        """One's own, and what nobody reads."""
        return [("mine", _("claimed by me")), ("nobody", _("unclaimed"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """By the claims that still count."""
        claimed = reviewers.claimed()
        if self.value() == "mine":
            return queryset.filter(pk__in=claimed.filter(claimed_by=request.user.pk).values("pk"))
        if self.value() == "nobody":
            return queryset.exclude(pk__in=claimed.values("pk"))
        return queryset


class ForMeFilter(admin.SimpleListFilter):
    """Only what this person may decide now."""

    title = _("who may decide")
    parameter_name = "for"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, Any]]:
        """Oneself."""
        return [("me", _("I may decide"))]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """By the rule that a decision is checked by."""
        if self.value() == "me":
            return queryset.filter(pk__in=reviewers.decidable(request.user).values("pk"))
        return queryset
