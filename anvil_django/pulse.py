"""What a supervised cluster tells its supervisor, and the probes that it answers.

Both ends of one socket pair. Every process of the cluster holds the one end and writes a few bytes when a
worker is ready, takes a task and has finished it; the supervisor holds the other. So the supervisor knows
which workers are free, also when they are busy with tasks of the site that leave no lease; it reads the end
of the stream when no process of the cluster is left, and the cluster reads it when the supervisor has died.

A probe is a task that goes the way of all tasks, from the process that asks the broker through the local
queue to a worker and back. It does not lie in the broker's queue, where another cluster on the same queue
might take it: the supervised cluster adds it to what its broker delivers.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from multiprocessing.sharedctypes import RawValue
from typing import Any

from . import queue

logger = logging.getLogger(__name__)

SWEEP_EVERY = 30.0
"""Seconds between two probes that also sweep, so that a lost host's runs need not wait for the schedule."""
LOST_AFTER = 2
"""A probe that nobody took is followed by another after so many of its intervals."""


class Kind(Enum):
    """What a process of the cluster says."""

    STARTED = b"S"  # the main process: it can be told to stop
    READY = b"R"  # a worker, after its first sweep; with the pid of its parent
    BUSY = b"B"  # a worker took a task
    IDLE = b"I"  # it has finished it
    PROBED = b"P"  # the process that stores results has seen a probe come back
    BROKER = b"X"  # the broker failed; django-q2 waits ten seconds before it asks again


@dataclass(frozen=True)
class Message:
    """One thing that was said."""

    kind: Kind
    pid: int
    parent: int


_FORMAT = struct.Struct("!cII")


class Line:
    """The socket pair; made by the supervisor before it forks the cluster."""

    def __init__(self) -> None:
        self._mine, self._theirs = socket.socketpair()
        self._mine.setblocking(False)
        self._rest = b""
        self.taken = RawValue("L", 0)
        """The number of the last probe that a worker took, in memory that all processes share."""
        self.is_over = False
        """Whether no process of the cluster is left."""

    def fileno(self) -> int:
        """For ``select``: readable when something was said or the cluster has gone."""
        return self._mine.fileno()

    def close(self) -> None:
        """The supervisor has no more use for it."""
        self._mine.close()

    def begin_supervising(self) -> None:
        """Called in the supervisor after the fork."""
        self._theirs.close()

    def heard(self) -> list[Message]:
        """All that was said since the last time."""
        while not self.is_over:
            try:
                received = self._mine.recv(65536)
            except BlockingIOError:
                break
            except ConnectionError:
                received = b""
            self.is_over = not received
            self._rest += received
        whole = len(self._rest) - len(self._rest) % _FORMAT.size
        said, self._rest = self._rest[:whole], self._rest[whole:]
        return [Message(Kind(kind), pid, parent) for kind, pid, parent in _FORMAT.iter_unpack(said)]

    def begin_serving(self) -> None:
        """Called in the cluster's main process before it forks others."""
        self._mine.close()

    def say(self, kind: Kind) -> None:
        """Tell the supervisor; without one, or with one that does not listen, nothing happens."""
        with suppress(OSError):
            self._theirs.send(_FORMAT.pack(kind.value, os.getpid(), os.getppid()), socket.MSG_DONTWAIT)

    def wait_for_the_end(self) -> None:
        """Return when the supervisor has died."""
        try:
            while self._theirs.recv(64):
                pass
        except ConnectionError:
            pass


class Probing:
    """A broker's ``dequeue`` that also delivers probes; it runs in the process that asks the broker.

    Args:
        dequeue: The broker's own.
        line: To the supervisor.
        every: Seconds between two probes.
    """

    def __init__(self, dequeue: Callable[[], Any], line: Line, every: float) -> None:
        self._dequeue, self._line, self._every = dequeue, line, every
        self._number, self._sent_at = 0, float("-inf")
        # A starting worker has just swept.
        self._swept_at = time.monotonic()

    def __call__(self) -> Any:
        waited = time.monotonic() - self._sent_at
        # Not one more while all workers are busy: it would only stand in the way of what is queued.
        open_probe = self._number > self._line.taken.value
        if waited >= self._every * (LOST_AFTER if open_probe else 1):
            # Above every number that an earlier process with this task has used.
            self._number = max(self._number, self._line.taken.value) + 1
            self._sent_at = time.monotonic()
            if sweep := self._sent_at - self._swept_at >= SWEEP_EVERY:
                self._swept_at = self._sent_at
            return [(None, _probe(self._number, sweep))]
        try:
            return self._dequeue()
        except Exception:
            self._line.say(Kind.BROKER)
            raise


def _probe(number: int, sweep: bool) -> str:
    from django.utils import timezone
    from django_q.signing import SignedPackage

    task = {
        "id": f"anvil-probe-{number}",
        "name": "probe",
        "func": queue.PROBE,
        "args": (number, sweep),
        "kwargs": {},
        "started": timezone.now(),
        "save": False,
        "ack_failure": True,
        "cached": False,
    }
    return str(SignedPackage.dumps(task))


def serve(line: Line, *, every: float, grace: float) -> None:
    """Be the main process of a cluster: start it, and return when it has ended.

    Args:
        line: To the supervisor. When it dies, the cluster stops as on SIGTERM.
        every: Seconds between two probes.
        grace: Seconds that such a stop may take until all processes of the cluster are killed.
    """
    from django_q.brokers import get_broker
    from django_q.cluster import Cluster

    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    line.begin_serving()
    _connect(line)
    logging.getLogger("django-q").addFilter(_is_no_probe)
    broker = get_broker()
    broker.dequeue = Probing(broker.dequeue, line, every)
    cluster = Cluster(broker)
    cluster.start()
    line.say(Kind.STARTED)
    # After the fork, so that no other process has it.
    threading.Thread(target=_outlive, args=(line, grace), name="anvil-supervised", daemon=True).start()
    cluster.sentinel.join()


def _connect(line: Line) -> None:
    from django_q.signals import post_execute, post_execute_in_worker, post_spawn, pre_execute

    def ready(**kwargs: Any) -> None:
        line.say(Kind.READY)

    def busy(*, task: dict[str, Any], **kwargs: Any) -> None:
        if task["func"] == queue.PROBE:
            line.taken.value = task["args"][0]
        line.say(Kind.BUSY)

    def idle(**kwargs: Any) -> None:
        line.say(Kind.IDLE)

    def stored(*, task: dict[str, Any], **kwargs: Any) -> None:
        if task["func"] == queue.PROBE:
            line.say(Kind.PROBED)

    # After the handlers of the app and of the site, which take their time: the worker is free after them.
    for to, handler in (
        (post_spawn, ready),
        (pre_execute, busy),
        (post_execute_in_worker, idle),
        (post_execute, stored),
    ):
        to.connect(handler, weak=False)


def _is_no_probe(record: logging.LogRecord) -> bool:
    # Two lines every few seconds, for ever, would bury everything else.
    return queue.PROBE not in record.getMessage()


def _outlive(line: Line, grace: float) -> None:
    line.wait_for_the_end()
    logger.error("the supervisor of this cluster has died; the cluster stops")
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace)
    os.killpg(os.getpid(), signal.SIGKILL)
