"""The credentials that this process knows, so that none of them is stored or logged by way of an error.

An API, a proxy or a function of the site may repeat a key in what it says. Most keys can be told by their
form (``model_errors``); these are known by their value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from django.conf import settings

SHORTEST = 8
"""Characters: anything shorter may be a word that means nothing."""

_NAME = re.compile(r"key|token|secret|passw|authorization|cookie|credential", re.IGNORECASE)
_SCHEME = re.compile(r"(?:basic|bearer)\s+", re.IGNORECASE)


def of_process() -> set[str]:
    """Those that the environment and the settings of the site hold, by their names."""
    found = set(_named(os.environ))
    if settings.configured:
        # Only what the site has set: Django's defaults hold no secret, and reading some of them warns.
        known: Any = settings
        set_here = [name for name in dir(known) if name.isupper() and known.is_overridden(name)]
        found |= set(_named({name: getattr(known, name) for name in set_here}))
    return found


def of_client(client: Any) -> set[str]:
    """Those of a client of the model: its own attributes, and the headers that it sends."""
    found = set(_named(getattr(client, "__dict__", {})))
    with suppress(Exception):
        found |= set(_named(client.default_headers))
    return found


def _named(values: Mapping[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        if isinstance(value, str) and _NAME.search(name):
            bare = _SCHEME.sub("", value, count=1).strip()
            if len(bare) >= SHORTEST:
                yield bare


def carried_by(value: Any, path: str = "") -> str:
    """Where a JSON value holds a credential by its key, such as ``extra_headers.x-api-key``; or ""."""
    items: list[tuple[Any, Any]] = []
    if isinstance(value, Mapping):
        items = list(value.items())
    elif isinstance(value, (list, tuple)):
        items = list(enumerate(value))
    for key, inner in items:
        here = f"{path}.{key}" if path else str(key)
        if isinstance(inner, str) and inner and isinstance(key, str) and _STORED.search(key):
            return here
        if found := carried_by(inner, here):
            return found
    return ""


_STORED = re.compile(r"authorization|api[-_]?key|auth[-_]?token|cookie|password|secret", re.IGNORECASE)
