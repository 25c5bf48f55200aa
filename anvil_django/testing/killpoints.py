"""Dying at a chosen boundary between two durable steps.

    with pytest.raises(Kill), kill_at(7):
        tasks.advance(run_id)

A killed process does nothing more: once the boundary is reached, every later one raises too, so that no
cleanup of the loop's own softens the blow. The lease stays behind; move a ``fixed_clock`` past it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from anvil_django.boundaries import set_hook


class Kill(BaseException):
    """The process is gone. Not an ``Exception``: nothing that handles errors may survive it."""


@dataclass
class Reached:
    """The boundaries that were reached, in order."""

    names: list[str] = field(default_factory=list)
    killed_at: str = ""


@contextmanager
def kill_at(number: int | None) -> Iterator[Reached]:
    """Raise ``Kill`` at the ``number``-th boundary that is reached, counted from 1; None: only note them."""
    reached = Reached()

    def hook(name: str) -> None:
        if reached.killed_at:
            raise Kill(reached.killed_at)
        reached.names.append(name)
        if number is not None and len(reached.names) >= number:
            reached.killed_at = name
            raise Kill(name)

    set_hook(hook)
    try:
        yield reached
    finally:
        set_hook(None)
