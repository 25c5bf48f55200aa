"""The named points between durable steps, where a test may stop the process.

In production ``reach`` is one comparison. ``anvil_django.testing`` installs a hook to raise, exit or kill at
a boundary.
"""

from __future__ import annotations

from collections.abc import Callable

BOUNDARIES = (
    "run.claimed",
    "model.before",
    "model.answered",
    "tool.before",
    "tool.returned",
    "atomic.before_commit",
    "save.before",
    "save.done",
    "run.before_ring",
    "run.rung",
    "run.giving_up",
)
"""Every boundary, in the order in which a simple run meets them."""

_hook: Callable[[str], None] | None = None


def reach(name: str) -> None:
    """Say that the process is at boundary ``name``."""
    if _hook is not None:
        _hook(name)


def set_hook(hook: Callable[[str], None] | None) -> None:
    """Call ``hook`` with the name of every boundary that is reached; None: nothing is called."""
    global _hook
    _hook = hook
