"""Time that stands still until a test moves it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from anvil_django.clock import FixedClock, set_clock


@contextmanager
def fixed_clock(start: datetime | None = None) -> Iterator[FixedClock]:
    """A clock for this process, the database's clock included, that only ``advance`` and ``sleep`` move.

        with fixed_clock() as clock:
            ...
            clock.advance(61)  # seconds: the lease of a dead worker has expired

    Args:
        start: The time it shows first.
    """
    clock = FixedClock(start)
    previous = set_clock(clock)
    try:
        yield clock
    finally:
        set_clock(previous)
