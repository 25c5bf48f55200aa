"""What the OpenAPI document says beyond the code; without drf-spectacular nothing of it is needed.

The views and serializers use the names of this module only, so that the package works without the extra.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, TypeVar

F = TypeVar("F")

if find_spec("drf_spectacular") is not None:
    from .openapi import VIEW_SCHEMA, documented, nullable, shaped, single
else:
    VIEW_SCHEMA: Any = None  # type: ignore[no-redef]

    def documented(  # type: ignore[misc]
        answers: Mapping[int, Any],
        *,
        body: Any = None,
        problems: Sequence[int] = (),
        query: Any = None,
        headers: Mapping[str, str] | None = None,
        stream: bool = False,
    ) -> Callable[[F], F]:
        """The action as it is."""
        return lambda action: action

    def nullable(schema: Mapping[str, Any]) -> dict[str, Any]:
        """The schema as it is."""
        return dict(schema)

    def single(serializer: F) -> F:
        """The serializer as it is."""
        return serializer

    def shaped(shape: Any) -> Callable[[F], F]:  # type: ignore[misc]
        """The field as it is."""
        return lambda field: field


__all__ = ["VIEW_SCHEMA", "documented", "nullable", "shaped", "single"]
