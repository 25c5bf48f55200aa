"""Which clusters of workers there are and when each was last seen alive: rows that the workers write.

A worker says so when it starts, after a task, and when it answers the doorbell of ``anvil_worker``, which
also speaks for a cluster whose workers are all busy.
"""

from __future__ import annotations

import logging
import os
from datetime import timedelta

from . import queue
from .clock import get_clock
from .leases import is_dead, place, process_name
from .models import Cluster
from .stores.database_time import database_now

logger = logging.getLogger(__name__)

SAY_EVERY = 5.0
"""Least seconds between two signs of life that one worker writes."""
KEEP = timedelta(days=1)
"""How long the row of a cluster on another host is kept after its last sign of life."""

# The cluster this process works for, and when it said so last; None: it is no worker.
_joined: str | None = None
_said_at = 0.0


def join() -> None:
    """This process is a worker from now on: say so, and forget the clusters that have gone."""
    global _joined
    _joined = process_name(os.getppid())
    _say()
    Cluster.objects.filter(seen_at__lt=database_now(-KEEP)).delete()
    here = Cluster.objects.filter(name__startswith=place()).values_list("name", flat=True)
    if gone := [name for name in here if is_dead(f"{name}/")]:
        Cluster.objects.filter(name__in=gone).delete()


def seen() -> None:
    """A worker's sign of life; it does nothing in other processes, and when the last one is not long ago."""
    if _joined is not None and get_clock().monotonic() - _said_at >= SAY_EVERY:
        _say()


def _say() -> None:
    global _said_at
    _said_at = get_clock().monotonic()
    if _joined is not None and not vouch(_joined):
        now = database_now()
        row = Cluster(name=_joined, queue=queue.name(), workers=queue.workers(), started_at=now, seen_at=now)
        # Its other workers may be doing the same.
        Cluster.objects.bulk_create([row], ignore_conflicts=True)


def vouch(name: str) -> bool:
    """A sign of life on behalf of the cluster of that name; False if it has no row."""
    return bool(Cluster.objects.filter(name=name).update(seen_at=database_now()))


def forget(name: str) -> None:
    """The cluster of that name has ended."""
    Cluster.objects.filter(name=name).delete()


def number() -> int:
    """How many clusters of this queue there may be."""
    return Cluster.objects.filter(queue=queue.name()).count()
