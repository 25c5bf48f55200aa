"""Filters of the lists: by values that occur, found without reading the runs."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from ..models import AgentVersion, Approval


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
