"""How bodies are read and written: JSON only, whatever the host's own views speak."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Any

from rest_framework import parsers, renderers
from rest_framework.exceptions import ParseError


class JSONRenderer(renderers.JSONRenderer):
    """JSON in ASCII, with escapes for all else.

    Text of models, tools and people may hold what has no UTF-8 form (half of a surrogate pair).
    """

    ensure_ascii = True
    strict = True
    charset = None


class JSONParser(parsers.JSONParser):
    """JSON that every database can store: no NaN, and nesting that Python can read."""

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
        """
        try:
            return super().parse(stream, media_type, parser_context)
        except RecursionError as exc:
            raise ParseError("The JSON is nested too deeply.") from exc
