"""What all endpoints have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from django.utils.cache import add_never_cache_headers
from rest_framework.filters import BaseFilterBackend
from rest_framework.permissions import SAFE_METHODS
from rest_framework.renderers import BaseRenderer, BrowsableAPIRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer
from rest_framework.throttling import BaseThrottle
from rest_framework.viewsets import GenericViewSet

from ..reviewers import groups_of
from . import problems
from .formats import EventStreamRenderer, JSONParser, JSONRenderer
from .lists import NewestFirst
from .schema import VIEW_SCHEMA
from .throttles import ReadThrottle

Limits = Mapping[str, type[BaseThrottle]]


class AnvilViewSet(GenericViewSet[Any]):
    """What all our views have in common.

    Who somebody is, the host's authentication classes say. All else is set here, since the host's defaults
    are made for its own views: they may let anybody in, cut off whoever polls a run, or rename keys.
    """

    if VIEW_SCHEMA is not None:
        schema = VIEW_SCHEMA()

    parser_classes = (JSONParser,)
    renderer_classes = (JSONRenderer,)
    pagination_class = NewestFirst
    throttle_classes = ()
    versioning_class = None
    filter_backends: Sequence[type[BaseFilterBackend]] = ()
    # A value that is no id at all is answered as one that is not stored, in our own shape.
    lookup_value_regex = "[^/]+"
    request_serializers: dict[str, type[BaseSerializer[Any]]] = {}
    """What the body of each action that takes one may hold."""
    limited_by: Limits = {}
    """What limits each action that changes something; those that are not named are never refused."""

    def get_exception_handler(self) -> Callable[..., Response | None]:
        """Problem details, also where the host's own API answers errors otherwise."""
        return problems.handle

    def get_renderers(self) -> list[BaseRenderer]:
        """JSON, and the browsable API where the host has it."""
        browsable = [r for r in self.settings.DEFAULT_RENDERER_CLASSES if issubclass(r, BrowsableAPIRenderer)]
        return [*super().get_renderers(), *(renderer() for renderer in browsable)]

    def get_throttles(self) -> list[BaseThrottle]:
        """The limit of the action, after any that a subclass has set."""
        reads = self.request is not None and self.request.method in SAFE_METHODS
        limit = self.limited_by.get(self.action or "", ReadThrottle if reads else None)
        return [*super().get_throttles(), *([] if limit is None else [limit()])]

    def finalize_response(self, request: Request, response: Response, *args: Any, **kwargs: Any) -> Response:
        """Name the media type of a problem, and keep private data out of caches."""
        final = super().finalize_response(request, response, *args, **kwargs)
        # A stream is none of the framework's responses.
        if getattr(final, "exception", False):
            if isinstance(final.accepted_renderer, EventStreamRenderer):
                final.accepted_renderer = JSONRenderer()
            if isinstance(final.accepted_renderer, JSONRenderer):
                final.content_type = problems.CONTENT_TYPE
        add_never_cache_headers(final)
        return final

    def get_serializer_class(self) -> type[BaseSerializer[Any]]:
        """The request's, where the action takes a body."""
        return self.request_serializers.get(self.action) or super().get_serializer_class()

    def get_serializer_context(self) -> dict[str, Any]:
        """With the groups of the caller, fetched when first asked for and once for all rows of an answer."""
        return {**super().get_serializer_context(), "groups": cache(lambda: groups_of(self.request.user))}

    def checked(self, request: Request) -> dict[str, Any]:
        """The body of the request.

        Raises:
            ValidationError: It has an unknown field or a value of the wrong type.
        """
        serializer = self.get_serializer(data=request.data)
        serializer.is_valid(raise_exception=True)
        return dict(serializer.validated_data)
