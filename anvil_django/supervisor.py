"""``manage.py anvil_worker``: a django-q2 cluster that is watched, stopped in good order, and replaced.

django-q2 replaces a worker that dies. It does not survive the loss of the worker that is next in line (the
others wait for a lock that nobody releases), of its sentinel or of its main process, and it hangs when a
signal reaches all of its processes at once. Here one process looks after the whole of it:

- SIGTERM or SIGINT goes to the cluster's main process alone. Runs are handed back at their next step. What is
  not done after the grace time is killed; so it is at once on a second signal.
- A cluster that ends by itself is replaced, with all that is left of it killed first.
- A cluster in which a worker is free and yet nobody takes a probe is replaced. Workers that are busy get the
  grace time to hand their runs back.
- If the supervisor dies, the cluster stops by itself.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum, IntEnum

from django.db import connections

from . import clusters, queue, recovery
from .supervised import TICK, Options, Supervised, collect_orphans, tolerating_the_database

logger = logging.getLogger(__name__)

LONG_LIFE = 60.0
"""A cluster that lived for so many seconds did not fail to start."""
DELAYS = (0.0, 1.0, 2.0, 4.0, 8.0)
"""Seconds before each attempt to replace a cluster that was short-lived; then it is given up."""


class ExitCode(IntEnum):
    """How ``anvil_worker`` ends; 1: bad settings, 2: bad options, 128 + n: killed by a second signal n."""

    STOPPED = 0
    """It was told to stop, and no work was cut off."""
    KEEPS_DYING = 3
    """The cluster cannot be kept alive."""
    CUT_OFF = 4
    """It was told to stop, and work was cut off: the grace time was over, or the cluster broke down."""


class _End(Enum):
    TOLD = "told to stop"
    DIED = "died"
    STALLED = "stalled"


class Supervisor:
    """Keeps one cluster alive until it is told to stop.

    Args:
        options: See ``Options``.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._signals: list[int] = []
        self._cluster: Supervised | None = None
        self._bell = -1

    def run(self) -> int:
        """Start a cluster and look after it; returns an exit code (see ``ExitCode``)."""
        # Heard from the beginning: the first process of a container is not ended by a signal it ignores.
        with self._hearing_signals():
            try:
                queue.preload()
                return self._keep_alive()
            finally:
                # Also when something here is broken: nothing is left behind without a supervisor.
                if self._cluster is not None:
                    self._cluster.finish()

    def _keep_alive(self) -> int:
        failures = 0
        while not self._signals:
            self._ring_again()
            logger.info("a cluster is started for the queue %r", queue.name())
            self._cluster = Supervised(self._options)
            end = self._watch(self._cluster)
            if end is _End.TOLD:
                return self._stop(self._cluster)
            if end is _End.STALLED and self._cluster.is_working and self._hand_back(self._cluster):
                return self._stop(self._cluster)
            cluster, self._cluster = self._cluster, None
            code = cluster.finish()
            failures = failures + 1 if cluster.age < LONG_LIFE else 0
            if failures > len(DELAYS):
                logger.critical(
                    "the cluster ended %s times in a row shortly after its start; given up", failures
                )
                return ExitCode.KEEPS_DYING
            delay = DELAYS[max(failures - 1, 0)]
            logger.error("the cluster %s (exit code %s); another one in %g s", end.value, code, delay)
            self._pause(delay)
        return ExitCode.STOPPED

    def _watch(self, cluster: Supervised) -> _End:
        while True:
            if self._signals:
                return _End.TOLD
            self._wait(cluster)
            if cluster.has_ended and not self._signals:
                return _End.DIED
            if (why := cluster.stalled) and self._others_are_well(cluster):
                logger.error("the cluster does not answer: %s", why)
                return _End.STALLED
            cluster.vouch_when_full()

    def _stop(self, cluster: Supervised) -> int:
        """End the cluster; the exit code."""
        told = len(self._signals)
        logger.info("the cluster is told to stop; it has %g s", self._options.grace)
        code = ExitCode.STOPPED
        for left in self._draining(cluster):
            if len(self._signals) > told:
                logger.warning("told again: the cluster is killed at once")
                return self._killed(128 + self._signals[-1])
            if left <= 0:
                code = ExitCode.CUT_OFF
                logger.error("the cluster was not done after %g s and is killed", self._options.grace)
                break
        cluster.listen()
        if cluster.is_working:
            code = ExitCode.CUT_OFF
        return self._killed(code)

    def _killed(self, code: int) -> int:
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.finish()
        return code

    def _hand_back(self, cluster: Supervised) -> bool:
        """Let the busy workers of a stalled cluster reach their next step; whether to stop for good now."""
        for left in self._draining(cluster):
            if self._signals:
                return True
            if left <= 0 or not cluster.is_working:
                break
        return False

    def _draining(self, cluster: Supervised) -> Iterator[float]:
        """Tell the cluster to stop; the seconds it still has, until it has ended or hangs without work."""
        deadline = time.monotonic() + self._options.grace
        worked_at, was_told = time.monotonic(), False
        while not cluster.has_ended:
            if cluster.has_started and not was_told:
                # Before that the signal would find nobody who knows what to do with it.
                was_told = True
                cluster.terminate()
            yield deadline - time.monotonic()
            self._wait(cluster, until=deadline)
            now = time.monotonic()
            if cluster.is_working or not was_told:
                worked_at = now
            elif now - worked_at >= self._options.stall:
                logger.warning("the cluster hangs without work; it is killed")
                return

    def _others_are_well(self, cluster: Supervised) -> bool:
        """Whether database and broker answer; if not, that is why nobody takes a task."""
        try:
            queue.check_reachable()
        except Exception as exc:  # noqa: BLE001 (whatever it is: a new cluster would meet it as well)
            logger.warning("the database or the broker does not answer: %s", type(exc).__name__)
            cluster.be_patient()
            return False
        finally:
            connections.close_all()
        # The question may have taken long, and somebody may have taken a task meanwhile.
        cluster.listen()
        return bool(cluster.stalled)

    def _ring_again(self) -> None:
        with tolerating_the_database("the queue was not told again of what the last cluster had fetched"):
            recovery.ring_again(queue.most_tickets() * max(clusters.number(), 1))

    # Waiting.

    @contextmanager
    def _hearing_signals(self) -> Iterator[None]:
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        self._bell = reader
        before = {
            number: signal.signal(number, self._note_signal)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD)
        }
        wakeup = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(reader)
            os.close(writer)

    def _note_signal(self, number: int, frame: object) -> None:
        if number != signal.SIGCHLD:
            self._signals.append(number)

    def _wait(self, cluster: Supervised, *, until: float | None = None) -> None:
        """Until something happens, at most a tick; then listen."""
        seconds = TICK if until is None else min(TICK, max(until - time.monotonic(), 0.0))
        # Once nobody is left at the other end, it would be readable for ever.
        watched = [self._bell] if cluster.line.is_over else [self._bell, cluster.line.fileno()]
        select.select(watched, [], [], seconds)
        self._silence_bell()
        cluster.listen()
        if not cluster.has_ended:
            collect_orphans(keep=cluster.pid)

    def _pause(self, seconds: float) -> None:
        """Wait, but not after a signal."""
        deadline = time.monotonic() + seconds
        while not self._signals and (left := deadline - time.monotonic()) > 0:
            select.select([self._bell], [], [], left)
            self._silence_bell()

    def _silence_bell(self) -> None:
        with suppress(BlockingIOError):
            while os.read(self._bell, 4096):
                pass
