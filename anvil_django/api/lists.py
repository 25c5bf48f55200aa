"""How lists are cut into pages and narrowed down."""

from __future__ import annotations

import re
from typing import Any

from django.db.models import QuerySet
from rest_framework import serializers
from rest_framework.exceptions import NotFound, ValidationError
from rest_framework.filters import BaseFilterBackend
from rest_framework.pagination import Cursor, CursorPagination
from rest_framework.request import Request
from rest_framework.views import APIView

from ..conf import get_settings
from ..states import ApprovalStatus, RunStatus

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


class RunFilter(BaseFilterBackend):
    """``?status=`` and ``?agent=``."""

    def filter_queryset(self, request: Request, queryset: QuerySet[Any], view: APIView) -> QuerySet[Any]:
        """The runs asked for."""
        return queryset.filter(**_asked(RunQuery, request))


class ApprovalFilter(BaseFilterBackend):
    """``?status=``, pending unless another one or ``all`` is asked for."""

    def filter_queryset(self, request: Request, queryset: QuerySet[Any], view: APIView) -> QuerySet[Any]:
        """The approvals asked for; a single one is found whatever became of it."""
        if getattr(view, "action", None) != "list":
            return queryset
        status = _asked(ApprovalQuery, request)["status"]
        return queryset if status == ALL else queryset.filter(status=status)


def _asked(form: type[serializers.Serializer[Any]], request: Request) -> dict[str, Any]:
    query = form(data=request.query_params.dict())
    query.is_valid(raise_exception=True)
    return dict(query.validated_data)
