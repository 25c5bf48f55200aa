"""Threads of the driver that do a thing again and again, also while the database is away."""

from __future__ import annotations

import threading
import traceback
from collections import Counter
from contextlib import suppress

_LOST_CONNECTION = {"OperationalError", "InterfaceError", "ConnectionError"}


def is_lost_connection(exc: Exception) -> bool:
    """Whether it is what a database or a broker raises that is away for a moment."""
    # By name: Django, each driver and redis have classes of their own, and not every driver is installed.
    return bool(_LOST_CONNECTION & {base.__name__ for base in type(exc).__mro__})


def drop_connections() -> None:
    """Have this thread connect anew."""
    from django.db import connections

    with suppress(Exception):  # Closing a broken connection may fail; it is gone all the same.
        connections.close_all()


class Background:
    """``work`` every ``every`` seconds, until ``stop``."""

    every = 1.0

    def __init__(self, name: str) -> None:
        self.name = name
        self.broken_off: Counter[str] = Counter()
        """Exceptions by class; those of a lost connection are to be expected."""
        self.unexpected: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def work(self) -> None:
        raise NotImplementedError

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout=40)

    def _run(self) -> None:
        while not self._stop.wait(self.every):
            try:
                self.work()
            except Exception as exc:
                self.broken_off[type(exc).__name__] += 1
                if not is_lost_connection(exc):
                    self.unexpected.append(traceback.format_exc())
                drop_connections()
        drop_connections()
