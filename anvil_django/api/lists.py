"""How lists are cut into pages and narrowed down."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from django.db.models import Q, QuerySet
from rest_framework import serializers
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.filters import BaseFilterBackend
from rest_framework.pagination import Cursor, CursorPagination
from rest_framework.request import Request
from rest_framework.views import APIView

from .. import reviewers
from ..conf import get_settings
from ..identity import RUN_ID_LENGTH
from ..models import Approval
from ..states import ApprovalKind, ApprovalStatus, RunStatus

ALL = "all"


class NewestFirst(CursorPagination):
    """Pages by id, newest first: a page costs the same however long the list is."""

    ordering = "-id"

    def get_page_size(self, request: Request) -> int | None:
        """``ANVIL["PAGE_SIZE"]``."""
        return get_settings().page_size

    def decode_cursor(self, request: Request) -> Cursor | None:
        """Where the page begins.

        Raises:
            ValidationError: The cursor is none of ours.
        """
        wrong = ValidationError({"cursor": ["Take the cursor from a next or previous link."]}, "bad_cursor")
        try:
            cursor = super().decode_cursor(request)
        except NotFound:
            raise wrong from None
        # The position goes into a query as it is.
        if cursor is not None and not re.fullmatch("[0-9]{1,18}", str(cursor.position or 0)):
            raise wrong
        return cursor


class RunQuery(serializers.Serializer[Any]):
    """The filters of the list of runs."""

    status = serializers.ChoiceField(choices=[str(s) for s in RunStatus], required=False)
    agent = serializers.CharField(required=False, max_length=100)


class ApprovalQuery(serializers.Serializer[Any]):
    """The filters of the list of approvals; without any it shows what waits."""

    status = serializers.ChoiceField(
        choices=[*map(str, ApprovalStatus), ALL], default=str(ApprovalStatus.PENDING)
    )
    kind = serializers.ChoiceField(choices=[str(k) for k in ApprovalKind], required=False)
    agent = serializers.CharField(required=False, max_length=100)
    tool = serializers.CharField(required=False, max_length=128)
    run_id = serializers.CharField(required=False, max_length=RUN_ID_LENGTH, trim_whitespace=False)
    mine = serializers.BooleanField(required=False)
    unclaimed = serializers.BooleanField(required=False)
    decidable = serializers.BooleanField(required=False)


class RunFilter(BaseFilterBackend):
    """``?status=`` and ``?agent=``."""

    def filter_queryset(self, request: Request, queryset: QuerySet[Any], view: APIView) -> QuerySet[Any]:
        """The runs asked for."""
        return queryset.filter(**_asked(RunQuery, request))


COLUMNS = {"kind": "kind", "agent": "run__agent", "tool": "tool", "run_id": "run__run_id"}
"""The filters of approvals that compare a column."""

QUEUES: dict[str, Callable[[Any], QuerySet[Approval]]] = {
    "mine": lambda user: reviewers.claimed().filter(claimed_by=user.pk),
    "unclaimed": lambda user: Approval.objects.exclude(pk__in=reviewers.claimed().values("pk")),
    "decidable": reviewers.decidable,
}
"""Those that are about a person and the present."""


class ApprovalFilter(BaseFilterBackend):
    """``?status=``, pending unless another one or ``all`` is asked for, and the filters of a queue.

    ``mine``, ``unclaimed`` and ``decidable`` are about the caller and the present; false is their opposite.
    """

    def filter_queryset(self, request: Request, queryset: QuerySet[Any], view: APIView) -> QuerySet[Any]:
        """The approvals asked for; a single one is found whatever became of it."""
        if getattr(view, "action", None) != "list":
            return queryset
        asked = _asked(ApprovalQuery, request)
        if asked["status"] != ALL:
            queryset = queryset.filter(status=asked["status"])
        queryset = queryset.filter(**{COLUMNS[name]: asked[name] for name in COLUMNS if name in asked})
        for name, cases in QUEUES.items():
            if name in asked:
                found = Q(pk__in=cases(request.user).values("pk"))
                queryset = queryset.filter(found if asked[name] else ~found)
        return queryset


def _asked(form: type[serializers.Serializer[Any]], request: Request) -> dict[str, Any]:
    query = form(data=request.query_params.dict())
    query.is_valid(raise_exception=True)
    return dict(query.validated_data)
