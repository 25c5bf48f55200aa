"""Where checkpoints are kept: the interface, one in memory and one in the site's database."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .base import StateStore
    from .django import DjangoStateStore
    from .memory import MemoryStateStore

__all__ = ["DjangoStateStore", "MemoryStateStore", "StateStore"]

_HOMES = {"DjangoStateStore": "django", "MemoryStateStore": "memory", "StateStore": "base"}


def __getattr__(name: str) -> Any:
    # Lazy, so that importing a store needs the app registry only when it is the one that uses models.
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
