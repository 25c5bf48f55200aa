"""How lists are cut into pages and narrowed down."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db.models import Q, QuerySet
from django.utils.dateparse import parse_datetime
from django.utils.timezone import is_aware
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

    Ids are given in the order of creation, so this is also the order by time, and every filter's index ends
    with the id. Only a list between two times is ordered by the time itself: an index finds its beginning,
    which the ids do not tell.
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
        ordering = orderings.get(request.query_params.get("ordering", ""), self.ordering)
        if orderings and any(name in request.query_params for name in BETWEEN):
            return (ordering.replace("id", "created_at"), ordering)
        return (ordering,)

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
        is_position = _is_time if len(self.ordering) > 1 else _is_id
        if cursor is not None and cursor.position is not None and not is_position(str(cursor.position)):
            raise wrong
        return cursor


def _is_id(position: str) -> bool:
    return re.fullmatch("[0-9]{1,18}", position) is not None


def _is_time(position: str) -> bool:
    try:
        time = parse_datetime(position)
    except ValueError:
        return False
    # Not so near the ends of the calendar that another time zone is beyond them.
    return time is not None and 1 < time.year < 9999 and is_aware(time) == settings.USE_TZ


class OldestFirst(NewestFirst):
    """The same, oldest first."""

    ordering = "id"


BETWEEN = ("created_after", "created_before")
"""The filters between two times."""
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


class RunFilter(BaseFilterBackend):
    """The filters of ``RunQuery``."""

    def filter_queryset(self, request: Request, queryset: Any, view: APIView) -> Any:
        """The runs asked for."""
        found = asked(RunQuery, request)
        user = None
        if creator := found.get("creator"):
            user = request.user.pk if creator == "me" else _named(creator)
            if user is None:
                return queryset.none()
        return queryset.matching(
            user=user,
            agent=found.get("agent"),
            stop_reason=found.get("stop_reason"),
            statuses=found.get("status", ()),
            since=found.get("created_after"),
            until=found.get("created_before"),
        )


def _named(username: str) -> Any:
    """The key of an account or None, looked up first: across a join no index has the runs in order."""
    people = get_user_model()._default_manager.filter(**{get_user_model().USERNAME_FIELD: username})
    return people.values_list("pk", flat=True).first()


COLUMNS = ("agent", "tool", "kind")
"""The filters of approvals that compare a column."""

QUEUES: dict[str, Callable[[Any], Q]] = {
    "mine": lambda user: _among(reviewers.claimed().filter(claimed_by=user.pk)),
    "unclaimed": lambda user: ~_among(reviewers.claimed()),
    "decidable": lambda user: _among(reviewers.decidable(user)),
}
"""Those that are about a person and the present; each reads only what waits."""


WAITING = {"mine": True, "unclaimed": False, "decidable": True}
"""Which of them only a case that waits can be."""


def _among(cases: QuerySet[Approval]) -> Q:
    return Q(pk__in=cases.values("pk"))


class ApprovalFilter(BaseFilterBackend):
    """``?status=``, pending unless another one or ``all`` is asked for, and the filters of a queue.

    ``mine``, ``unclaimed`` and ``decidable`` are about the caller and the present; false is their opposite.
    """

    def filter_queryset(self, request: Request, queryset: Any, view: APIView) -> Any:
        """The approvals asked for; a single one is found whatever became of it."""
        if getattr(view, "action", None) != "list":
            return queryset
        query = asked(ApprovalQuery, request)
        if any(query.get(name) is wanted for name, wanted in WAITING.items()):
            queryset = queryset.pending()
        if query["status"] == str(ApprovalStatus.PENDING):
            queryset = queryset.pending()
        elif query["status"] != ALL:
            queryset = queryset.having("status", query["status"])
        if "run_id" in query:
            queryset = queryset.filter(run__run_id=query["run_id"])
        for column in COLUMNS:
            if column in query:
                queryset = queryset.having(column, query[column])
        for name, cases in QUEUES.items():
            if name in query:
                found = cases(request.user)
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
