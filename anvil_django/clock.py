"""What time it is on this host; ``stores.database_time`` has the database's clock.

Leases are compared by the database's clock alone, so that two hosts never compare their own. Tests install
a ``FixedClock`` and move it by hand.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

# CLOCK_BOOTTIME goes on while the machine sleeps; elsewhere than on Linux the next best is used.
_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock:
    """The real clock."""

    def now(self) -> datetime:
        """This host's time, aware, in UTC: for what people read."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that only grow, also while the process is stopped or the machine sleeps."""
        return time.clock_gettime(_STEADY)

    def sleep(self, seconds: float) -> None:
        """Wait ``seconds``."""
        time.sleep(seconds)

    def call_later(self, seconds: float, function: Callable[[], object]) -> None:
        """Call ``function`` after ``seconds``, in a thread of its own; the process does not wait for it."""
        timer = threading.Timer(seconds, function)
        timer.daemon = True
        timer.start()


class FixedClock(Clock):
    """A clock that stands still until ``advance`` or ``sleep`` moves it."""

    def __init__(self, start: datetime | None = None) -> None:
        self._now = start or datetime(2026, 1, 1, tzinfo=UTC)
        self._steady = 1000.0

    def advance(self, seconds: float) -> None:
        """Move the time forward by ``seconds``."""
        self._now += timedelta(seconds=seconds)
        self._steady += seconds

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._steady

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def call_later(self, seconds: float, function: Callable[[], object]) -> None:
        """Nothing: no thread of ours may wake up in the middle of some later test."""


_clock: Clock = Clock()


def get_clock() -> Clock:
    """The clock in force."""
    return _clock


def set_clock(clock: Clock | None) -> Clock:
    """Install ``clock`` (None: the real one) and return the one it replaces."""
    global _clock
    previous, _clock = _clock, clock or Clock()
    return previous
