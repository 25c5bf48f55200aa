"""How lists are cut into pages and narrowed down."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from django.contrib.auth import get_user_model
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
from .schema import nullable

ALL = "all"


class NewestFirst(CursorPagination):
    """Pages by id, newest first: a page costs the same however long the list is.

    Ids are given in the order of creation, so this is also the order by time, and needs no other index.
    """

    ordering = "-id"

    def get_page_size(self, request: Request) -> int | None:
        """``ANVIL["PAGE_SIZE"]``."""
        return get_settings().page_size

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        """A page, for the OpenAPI document."""
        described = super().get_paginated_response_schema(schema)
        described["properties"] = {name: nullable(of) for name, of in described["properties"].items()}
        return {**described, "required": ["next", "previous", "results"]}

    def get_ordering(self, request: Request, queryset: QuerySet[Any], view: APIView) -> tuple[str, ...]:
        """``?ordering=``, where the view lets itself be turned round."""
        orderings: dict[str, str] = getattr(view, "orderings", {})
        return (orderings.get(request.query_params.get("ordering", ""), self.ordering),)

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


class OldestFirst(NewestFirst):
    """The same, oldest first."""

    ordering = "id"


ORDERINGS = {"-created": "-id", "created": "id"}
"""What runs can be ordered by."""


class RunQuery(serializers.Serializer[Any]):
    """The filters of the list of runs, and its order."""

    status = serializers.MultipleChoiceField(
        choices=[str(s) for s in RunStatus],
        required=False,
        help_text="Give it several times for any of them.",
    )
    agent = serializers.CharField(required=False, max_length=100)
    creator = serializers.CharField(
        required=False, max_length=200, help_text="Login name of who started it; `me` for the caller."
    )
    stop_reason = serializers.CharField(required=False, max_length=64)
    created_after = serializers.DateTimeField(required=False)
    created_before = serializers.DateTimeField(required=False)
    ordering = serializers.ChoiceField(choices=list(ORDERINGS), default="-created")


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


RUN_COLUMNS = {
    "agent": "agent",
    "stop_reason": "stop_reason",
    "created_after": "created_at__gte",
    "created_before": "created_at__lt",
}
"""The filters of runs that compare a column."""


class RunFilter(BaseFilterBackend):
    """The filters of ``RunQuery``."""

    def filter_queryset(self, request: Request, queryset: QuerySet[Any], view: APIView) -> QuerySet[Any]:
        """The runs asked for."""
        found = asked(RunQuery, request)
        if creator := found.get("creator"):
            name = get_user_model().USERNAME_FIELD
            mine = {"user": request.user} if creator == "me" else {f"user__{name}": creator}
            queryset = queryset.filter(**mine)
        if statuses := found.get("status"):
            queryset = queryset.filter(status__in=sorted(statuses))
        return queryset.filter(
            **{column: found[name] for name, column in RUN_COLUMNS.items() if name in found}
        )


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
        query = asked(ApprovalQuery, request)
        if query["status"] != ALL:
            queryset = queryset.filter(status=query["status"])
        queryset = queryset.filter(**{COLUMNS[name]: query[name] for name in COLUMNS if name in query})
        for name, cases in QUEUES.items():
            if name in query:
                found = Q(pk__in=cases(request.user).values("pk"))
                queryset = queryset.filter(found if query[name] else ~found)
        return queryset


def asked(form: type[serializers.Serializer[Any]], request: Request) -> dict[str, Any]:
    """The checked query of a request.

    Raises:
        ValidationError: A parameter has a value that it cannot have.
    """
    given: dict[str, Any] = request.query_params.dict()
    for name, field in form().fields.items():
        if name in given and isinstance(field, serializers.MultipleChoiceField):
            given[name] = request.query_params.getlist(name)
    query = form(data=given)
    query.is_valid(raise_exception=True)
    return dict(query.validated_data)
