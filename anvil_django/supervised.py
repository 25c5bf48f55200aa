"""One supervised cluster as its supervisor sees it: started, listened to, told to stop, killed."""

from __future__ import annotations

import logging
import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context

from django.db import connections

from . import clusters
from .leases import process_name
from .pulse import Kind, Line, serve

logger = logging.getLogger(__name__)

TICK = 0.5
"""Seconds between two looks at a cluster that says nothing."""
BROKER_PAUSE = 15.0
"""For so long after a failure of the broker nobody can be expected to take a task."""
SLOW_RESULTS = 6
"""Results may take this many times longer than ``stall`` to be stored: a site's hooks run there."""
VOUCH_EVERY = 30.0
"""Seconds between two signs of life that are written for a cluster whose workers are all busy."""


@dataclass(frozen=True)
class Options:
    """How to look after a cluster; all in seconds."""

    grace: float = 120.0
    """From SIGTERM to SIGKILL: longer than the slowest step."""
    probe_every: float = 3.0
    """Between two probes."""
    stall: float = 10.0
    """So long may a worker be free without taking a probe."""


class Supervised:
    """One cluster, from its start to its end.

    Args:
        options: See ``Options``.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self.line = Line()
        self._process = get_context("fork").Process(
            target=serve,
            args=(self.line,),
            kwargs={"every": options.probe_every, "grace": options.grace},
            daemon=False,
        )
        # Connections cannot be shared with another process.
        connections.close_all()
        self._process.start()
        self.line.begin_supervising()
        self.pid = self._process.pid or 0
        self.born = self._heard_at = time.monotonic()
        self.has_started = False
        self._busy: dict[int, bool] = {}
        self._names: set[str] = set()
        self._free_since: float | None = None
        self._taken_at = self._stored_at = self._patient_until = self._vouched_at = self.born

    @property
    def age(self) -> float:
        """Seconds since it was started."""
        return time.monotonic() - self.born

    def listen(self) -> None:
        """Take note of what its processes have said, and of those that are gone."""
        now = time.monotonic()
        if now - self._heard_at > self._options.stall / 2:
            # This process itself did not get to run: the whole machine is slow or was asleep.
            self._patient_until = now + self._options.stall
        self._heard_at = now
        for message in self.line.heard():
            match message.kind:
                case Kind.STARTED:
                    self.has_started = True
                case Kind.READY:
                    self._busy[message.pid] = False
                    self._names.add(process_name(message.parent))
                case Kind.BUSY:
                    self._busy[message.pid] = True
                    self._taken_at = now
                case Kind.IDLE:
                    self._busy[message.pid] = False
                case Kind.PROBED:
                    self._stored_at = now
                case Kind.BROKER:
                    self._patient_until = now + BROKER_PAUSE
        self._busy = {pid: busy for pid, busy in self._busy.items() if _exists(pid)}
        if not self.is_full:
            self._free_since = self._free_since or now
        else:
            # No probe can be taken, so none can come back.
            self._free_since, self._stored_at = None, now

    @property
    def is_full(self) -> bool:
        """Whether there is no free worker."""
        return all(self._busy.values())

    @property
    def is_working(self) -> bool:
        """Whether a worker is busy."""
        return any(self._busy.values())

    @property
    def stalled(self) -> str:
        """What does not get on although a worker is free; "" while all is well."""
        if self._free_since is None or not self.has_started:
            return ""
        now, stall = time.monotonic(), self._options.stall
        if now - max(self._taken_at, self._free_since, self._patient_until) >= stall:
            return f"no worker has taken a task for {now - self._taken_at:.1f} s, and one is free"
        if now - max(self._stored_at, self._free_since, self._patient_until) >= stall * SLOW_RESULTS:
            return f"no result has been stored for {now - self._stored_at:.1f} s"
        return ""

    def be_patient(self) -> None:
        """Begin to wait anew."""
        self._patient_until = time.monotonic()

    def vouch_when_full(self) -> None:
        """Write a sign of life for workers that are too busy to write their own."""
        if self.is_full and self._names and time.monotonic() - self._vouched_at >= VOUCH_EVERY:
            self._vouched_at = time.monotonic()
            with tolerating_the_database("a sign of life was not stored"):
                for name in self._names:
                    clusters.vouch(name)

    @property
    def has_ended(self) -> bool:
        """Whether its main process has ended."""
        if not hasattr(os, "waitid"):  # pragma: no cover (macOS before Python 3.13)
            return self._process.exitcode is not None
        with suppress(ChildProcessError):
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        return True

    def terminate(self) -> None:
        """Tell its main process to stop. The others must not be told: see ``stop_signal`` in ``queue``."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)

    def finish(self) -> int | None:
        """Kill what is left of it and wait until that is gone; the exit code of its main process."""
        # Not collected yet, so its number is still that of the group, and of nobody else.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        if not self.has_ended:
            # It had no time to make the group.
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        deadline = time.monotonic() + 10.0
        while not self.line.is_over and time.monotonic() < deadline:
            select.select([self.line], [], [], TICK)
            self.line.heard()
        self._process.join()
        collect_orphans()
        self.line.close()
        with tolerating_the_database("the row of a cluster that ended was not deleted"):
            for name in self._names:
                clusters.forget(name)
        return self._process.exitcode


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def collect_orphans(*, keep: int | None = None) -> None:
    """As the first process of a container, bury what a killed cluster has left; ``keep`` is left alone."""
    if not hasattr(os, "waitid"):  # pragma: no cover (macOS before Python 3.13)
        return
    with suppress(ChildProcessError):
        while found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if found.si_pid == keep:
                return
            os.waitpid(found.si_pid, 0)


@contextmanager
def tolerating_the_database(failure: str) -> Iterator[None]:
    """The supervisor goes on without the database, and keeps no connection to it."""
    try:
        yield
    except Exception as exc:  # noqa: BLE001 (what cannot be written now is not worth a cluster)
        logger.warning("%s: %s", failure, type(exc).__name__)
    finally:
        connections.close_all()
