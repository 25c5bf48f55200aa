"""The OpenAPI document by drf-spectacular (the extra ``schema``); imported by ``schema`` alone.

Components and operations carry our name, so that they meet none of the host's, and enums are components of
their own without a setting of the host.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from drf_spectacular.extensions import OpenApiSerializerFieldExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.settings import spectacular_settings
from drf_spectacular.utils import (
    OpenApiParameter,
    OpenApiResponse,
    extend_schema,
    extend_schema_field,
    extend_schema_serializer,
)

from .fields import EnumField
from .problems import CONTENT_TYPE, ProblemSerializer

F = TypeVar("F", bound=Callable[..., Any])
S = TypeVar("S")

PROBLEMS = {
    400: "The body is not JSON.",
    401: "Nobody is logged in, and the site says how to.",
    403: "Nobody is logged in, or a permission is missing.",
    404: "There is none that the caller may see.",
    406: "Only JSON is spoken here (and, for events, text/event-stream).",
    409: "Not in its present state, which is told.",
    410: "Its time is over.",
    413: "Larger than the site accepts.",
    415: "The body is not said to be JSON.",
    422: "Something in the request does not fit; `errors` names the fields.",
    429: "Too often; `Retry-After` says in how many seconds to try again.",
}
EVENTS = "The events; with `Accept: text/event-stream`, each as `id`, `event` and `data`."
ALWAYS = (401, 403, 406, 429)
WITH_BODY = (400, 413, 415, 422)


class AnvilSchema(AutoSchema):
    """drf-spectacular's view of our endpoints, with names of our own."""

    @property
    def _viewset(self) -> Any:
        return self.view

    def get_tags(self) -> list[str]:
        """One tag for each resource."""
        return [f"{self._viewset.basename}s"]

    def get_operation_id(self) -> str:
        """Short and stable: ``anvil_run_cancel``."""
        return f"anvil_{self._viewset.basename}_{self._viewset.action}"

    def get_serializer_name(self, serializer: Any, direction: Any) -> str:
        """With a prefix."""
        return "Anvil" + super().get_serializer_name(serializer, direction)


VIEW_SCHEMA = AnvilSchema


class EnumExtension(OpenApiSerializerFieldExtension):  # type: ignore[no-untyped-call]
    """Each enum is one component, whatever fields have it."""

    target_class = EnumField
    match_subclasses = True

    def get_name(self) -> str:
        """Its own name."""
        return f"Anvil{self.target.enum.__name__}"

    def map_serializer_field(self, auto_schema: AutoSchema, direction: Any) -> dict[str, Any]:
        """Its values."""
        return {"type": "string", "enum": [str(value) for value in self.target.enum]}


def documented(
    answers: Mapping[int, Any],
    *,
    body: Any = None,
    problems: Sequence[int] = (),
    query: Any = None,
    headers: Mapping[str, str] | None = None,
    stream: bool = False,
) -> Callable[[F], F]:
    """Say what an action takes and answers.

    Args:
        answers: Serializers of the good answers by status; None for one without a body.
        body: Serializer of the body.
        problems: Statuses of its problems beside those that every action has.
        query: Serializer of the query parameters.
        headers: Request headers with their descriptions.
        stream: Whether the first answer may also be an event stream.
    """
    responses: dict[Any, Any] = dict(answers)
    if stream:
        text = OpenApiResponse({"description": "Server-Sent Events."}, description=EVENTS)
        responses = {(200, "application/json"): answers[200], (200, "text/event-stream"): text}
        responses |= {code: answer for code, answer in answers.items() if code != 200}
    for code in sorted({*ALWAYS, *problems, *(WITH_BODY if body is not None else ())}):
        responses[code, CONTENT_TYPE] = OpenApiResponse(ProblemSerializer, description=PROBLEMS[code])
    parameters: list[Any] = [] if query is None else [query]
    parameters += [
        OpenApiParameter(name, str, OpenApiParameter.HEADER, description=text)
        for name, text in (headers or {}).items()
    ]

    def decorate(action: F) -> F:
        # The host's default schema class may be another one.
        action.kwargs = {**getattr(action, "kwargs", {}), "schema": AnvilSchema}  # type: ignore[attr-defined]
        described: F = extend_schema(request=body, responses=responses, parameters=parameters, filters=False)(
            action
        )
        return described

    return decorate


def nullable(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema that says ``nullable: true``, in the words of the document's version of OpenAPI."""
    if not (schema.get("nullable") and spectacular_settings.OAS_VERSION.startswith("3.1")):
        return dict(schema)
    plain = {name: value for name, value in schema.items() if name != "nullable"}
    return {**plain, "type": [schema["type"], "null"]}


def single(serializer: S) -> S:
    """Say that an action named ``list`` answers one such object."""
    described: S = extend_schema_serializer(many=False)(serializer)  # type: ignore[type-var]
    return described


def shaped(shape: Any) -> Callable[[Any], Any]:
    """Say what a field or a method of a serializer gives: a serializer, a field or an OpenAPI schema."""
    decorate: Callable[[Any], Any] = extend_schema_field(shape)
    return decorate
