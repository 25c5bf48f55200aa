"""How bodies are read and written: JSON only, whatever the host's own views speak."""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import IO, Any

from django.conf import settings
from rest_framework import parsers, renderers
from rest_framework.exceptions import ParseError

from ..conf import get_settings
from ..errors import TooLargeError

ESCAPED = 6
"""Bytes of a character that a client writes as an escape."""
BESIDE_INPUT = 100_000
"""Bytes of a body that are not its input."""


class JSONRenderer(renderers.JSONRenderer):
    """JSON in ASCII, with escapes for all else.

    Text of models, tools and people may hold what has no UTF-8 form (half of a surrogate pair).
    """

    ensure_ascii = True
    strict = True
    charset = None


class EventStreamRenderer(JSONRenderer):
    """Has ``Accept: text/event-stream`` understood; streams are written by ``events``, problems as JSON."""

    media_type = "text/event-stream"
    format = "sse"


class JSONParser(parsers.JSONParser):
    """JSON that every database can store: no NaN, and no more and no deeper than can be read."""

    renderer_class = JSONRenderer
    strict = True

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Read the body.

        Raises:
            ParseError: It is not JSON, or nested too deeply.
            TooLargeError: It is larger than this site accepts; no more than that is read.
        """
        limit = body_limit()
        length = str((parser_context or {})["request"].META.get("CONTENT_LENGTH") or "0")
        if length.isdecimal() and int(length[:18]) > limit:
            raise TooLargeError(f"The body has {length} bytes; at most {limit} are accepted.")
        body = stream.read(limit + 1)
        if len(body) > limit:
            raise TooLargeError(f"The body has more than the {limit} bytes that are accepted.")
        try:
            return super().parse(BytesIO(body), media_type, parser_context)
        except RecursionError as exc:
            raise ParseError("The JSON is nested too deeply.") from exc


def body_limit() -> int:
    """Bytes of a body that are accepted: what the site takes of any request, and what an input can need."""
    needed = ESCAPED * get_settings().input_limit + BESIDE_INPUT
    everywhere = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    return needed if everywhere is None else min(needed, everywhere)
