"""Errors as RFC 9457 problem details.

Every answer that is not a success has the members ``type``, ``title``, ``status``, ``detail`` and a stable
``code``; for an ``AnvilError`` code and status are its own. Further members carry what a client can act on.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.http import Http404
from rest_framework import exceptions, serializers
from rest_framework.response import Response
from rest_framework.settings import api_settings
from rest_framework.views import set_rollback

from ..errors import AnvilError, ClaimedError, TooLargeError, UnfitDecisionError

logger = logging.getLogger(__name__)

CONTENT_TYPE = "application/problem+json"
INVALID = "invalid"
MEMBERS = {"run_id": "run_id", "status": "current_status", "wanted": "wanted_status", "by": "decided_by"}
"""Attributes of an ``AnvilError`` that are told as members of their own, and what these are called."""


class FieldProblemSerializer(serializers.Serializer[Any]):
    """What is wrong with one field; "" is the body as a whole."""

    field = serializers.CharField(allow_blank=True)
    code = serializers.CharField()
    detail = serializers.CharField()


class ProblemSerializer(serializers.Serializer[Any]):
    """An answer that is not a success (RFC 9457); for the OpenAPI document."""

    type = serializers.CharField()
    title = serializers.CharField()
    status = serializers.IntegerField()
    code = serializers.CharField()
    detail = serializers.CharField()
    errors = FieldProblemSerializer(many=True, required=False)  # type: ignore[assignment]
    run_id = serializers.CharField(required=False)
    current_status = serializers.CharField(required=False)
    wanted_status = serializers.CharField(required=False)
    decided_by = serializers.CharField(required=False)
    claimed_by = serializers.CharField(required=False)


def handle(exc: Exception, context: Mapping[str, Any]) -> Response | None:
    """The problem that stands for an exception; None for what the host's own 500 has to report."""
    if isinstance(exc, Http404):
        exc = exceptions.NotFound(*exc.args)
    elif isinstance(exc, PermissionDenied):
        exc = exceptions.PermissionDenied(*exc.args)
    elif isinstance(exc, RequestDataTooBig):
        # Whatever of the host has read the body before us.
        exc = TooLargeError("The body is larger than this site accepts.")
    if isinstance(exc, AnvilError):
        response = _from_anvil(exc)
    elif isinstance(exc, exceptions.ValidationError):
        response = _from_validation(exc)
    elif isinstance(exc, exceptions.APIException):
        response = _from_framework(exc)
    else:
        return None
    set_rollback()
    return response


def _from_anvil(exc: AnvilError) -> Response:
    if exc.http_status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        # Nothing the client can mend: whoever runs the site has to hear of it.
        logger.error("a request failed: %s", exc.code, exc_info=exc)
    told: dict[str, Any] = {name: getattr(exc, attribute, "") for attribute, name in MEMBERS.items()}
    if isinstance(exc, ClaimedError):
        told = {"claimed_by": exc.by}
    elif isinstance(exc, UnfitDecisionError) and exc.field:
        # In the form of any other wrong field, so that a form can show it where it belongs.
        told["errors"] = [{"field": exc.field, "code": exc.code, "detail": exc.message}]
    return _problem(exc.http_status, exc.code, exc.message, **{k: v for k, v in told.items() if v})


def _from_validation(exc: exceptions.ValidationError) -> Response:
    errors = list(_flat(exc.get_full_details()))
    fields = sorted({error["field"] for error in errors if error["field"]})
    where = f": {', '.join(fields)}" if fields else ""
    # 422, not the framework's 400: the request could be read, and sent again unchanged it fails again.
    return _problem(
        HTTPStatus.UNPROCESSABLE_ENTITY, INVALID, f"The request cannot be used{where}.", errors=errors
    )


def _flat(details: Any, field: str = "") -> Iterator[dict[str, str]]:
    """The nested errors of a serializer as a plain list, each with the path of its field."""
    if isinstance(details, list):
        for detail in details:
            yield from _flat(detail, field)
    elif set(details) == {"message", "code"} and isinstance(details["code"], str):
        yield {"field": field, "code": details["code"], "detail": str(details["message"])}
    else:
        for name, inner in details.items():
            below = "" if name == api_settings.NON_FIELD_ERRORS_KEY else str(name)
            yield from _flat(inner, ".".join(part for part in (field, below) if part))


def _from_framework(exc: exceptions.APIException) -> Response:
    code = exc.get_codes()
    response = _problem(
        exc.status_code, code if isinstance(code, str) else exc.default_code, _sentence(exc.detail)
    )
    if header := getattr(exc, "auth_header", None):
        response["WWW-Authenticate"] = header
    if (wait := getattr(exc, "wait", None)) is not None:
        response["Retry-After"] = str(math.ceil(wait))
    return response


def _sentence(detail: Any) -> str:
    # An authentication class of the host may give a dict or a list.
    if isinstance(detail, dict):
        detail = detail.get("detail", list(detail.values()))
    if isinstance(detail, list):
        return " ".join(map(_sentence, detail))
    return str(detail)


def _problem(status: int, code: str, detail: str, **members: Any) -> Response:
    title = HTTPStatus(status).phrase if status in set(HTTPStatus) else "Error"
    body = {"type": "about:blank", "title": title, "status": int(status), "code": code, "detail": detail}
    return Response({**body, **members}, status=status)
