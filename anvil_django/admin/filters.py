"""Filters of the lists: by values that occur, found without reading the runs, and by who may decide what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from django.contrib import admin
from django.db.models import Min, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from .. import reviewers
from ..models import AgentVersion, Approval
from ..models.approval import APPROVAL_STATUS_LABELS
from ..states import ApprovalStatus

MOST_VALUES = 200
"""How many values a filter offers; more are no choice."""


class ValueFilter(admin.SimpleListFilter):
    """By the value of one field."""

    field: str

    def values(self, request: HttpRequest) -> Iterable[str]:
        """What there is to choose from."""
        raise NotImplementedError

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, str]]:
        """Each value under its own name."""
        return [(value, value) for value in self.values(request)]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        """The rows of the chosen value."""
        return queryset if self.value() is None else queryset.having(self.field, self.value())


class AgentFilter(ValueFilter):
    """By agent; every run has an agent version, of which there are few."""

    title = _("agent")
    parameter_name = "agent"
    field = "agent"

    def values(self, request: HttpRequest) -> Iterable[str]:
        """All agents that ever had a run."""
        return agents()


def agents() -> Iterable[str]:
    """The names of all agents that ever had a run, in their order."""
    return AgentVersion.objects.order_by("agent").values_list("agent", flat=True).distinct()


class ChoiceFilter(admin.ChoicesFieldListFilter):
    """By one of a field's choices, in the order of the field's index."""

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        """The rows of the chosen value."""
        chosen = self.used_parameters.get(self.lookup_kwarg)
        if isinstance(chosen, list) and len(chosen) == 1 and len(self.used_parameters) == 1:
            return queryset.having(self.field_path, chosen[0])
        return super().queryset(request, queryset)


class ToolFilter(ValueFilter):
    """By tool."""

    title = _("tool")
    parameter_name = "tool"
    field = "tool"

    def values(self, request: HttpRequest) -> Iterable[str]:
        """All tools that somebody was ever asked about."""
        return _occurring(Approval.objects.all(), self.field)


def _occurring(rows: QuerySet[Any], field: str) -> Iterator[str]:
    """The different values of an indexed field, each found by its index: DISTINCT would read all rows."""
    later = rows
    for _number in range(MOST_VALUES):
        value = later.aggregate(first=Min(field))["first"]
        if value is None:
            return
        yield value
        later = rows.filter(**{f"{field}__gt": value})


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

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        """The rows of that status."""
        if self.chosen() == str(ApprovalStatus.PENDING):
            return queryset.pending()
        return queryset if self.chosen() == self.ALL else queryset.having("status", self.chosen())


class ClaimFilter(admin.SimpleListFilter):
    """By who reads it."""

    title = _("claim")
    parameter_name = "claim"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[Any, Any]]:
        """One's own, and what nobody reads."""
        return [("mine", _("claimed by me")), ("nobody", _("unclaimed"))]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        """By the claims that still count."""
        claimed = reviewers.claimed()
        if self.value() == "mine":
            return queryset.pending().filter(pk__in=claimed.filter(claimed_by=request.user.pk).values("pk"))
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

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:
        """By the rule that a decision is checked by."""
        if self.value() == "me":
            return queryset.pending().filter(pk__in=reviewers.decidable(request.user).values("pk"))
        return queryset
