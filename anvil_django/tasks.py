"""What django-q2 calls: advance a run by a slice, the sweep, pruning, and the answer to a probe."""

from __future__ import annotations

import logging
import threading
from datetime import timedelta

from django.db import connections

from . import approvals, clusters, notifications, queue, recovery, retention, runs
from .clock import get_clock
from .conf import get_settings
from .stores import sweep

logger = logging.getLogger(__name__)

SWEEP_EVERY = 10.0
"""Least seconds between two sweeps that this process makes after its slices."""

_swept_at: float | None = None


def advance(run_id: str) -> str:
    """Advance the run until its slice is over; returns where it stands.

    Delivered twice, or for a run that somebody else holds, it does nothing. It does not raise: the queue's
    own repetition of failed tasks is not how a run recovers.
    """
    try:
        result = runs.advance_slice(run_id)
    except Exception:
        # What is stored stands; the run is interrupted and the sweep will find it.
        logger.exception("a slice broke off", extra={"run_id": run_id})
        _drop_connections()
        return "interrupted"
    _show_life()
    _sweep_sometimes()
    return str(result.status) if result is not None else "not taken"


def recover() -> int:
    """Put every interrupted run back on its way; returns how many there were.

    Cases that nobody decided in time are closed first, so that their runs go on at once.
    """
    global _swept_at
    _swept_at = get_clock().monotonic()
    found = recovery.look()
    kinds = {each.why for each in found}
    for why, step in (
        (sweep.OVERDUE, approvals.expire_overdue),
        (sweep.LEFT_ALONE, notifications.escalate_overdue),
    ):
        try:
            if why in kinds:
                step()
        except Exception:
            logger.exception("a part of the sweep failed; the next sweep repeats it")
    recovered = sum(1 for _ in runs.recover(seen=found))
    _show_life()
    return recovered


def prune() -> int:
    """Delete the runs that ended ``PRUNE_AFTER_DAYS`` ago; returns how many went.

    Like a run, it hands its worker back after a slice; what is left then follows in another task.
    """
    days = get_settings().prune_after_days
    if days is None:
        return 0
    is_stopping, began, gone = queue.stop_signal(), get_clock().monotonic(), 0
    rule = retention.Rule(older_than=timedelta(days=days))
    for pruned in retention.prune(rule):
        gone += pruned.runs
        _show_life()
        over = get_clock().monotonic() - began >= get_settings().slice_seconds
        if is_stopping() or (over and not queue.is_inline()):
            queue.prune_on()
            return gone
    retention.prune_versions(rule.older_than)
    return gone


def answer(number: int, sweep: bool) -> None:
    """Answer the doorbell of ``anvil_worker``: that a worker has come to it is all it wants to know.

    Args:
        number: Of the probe.
        sweep: Also sweep, since it is a while since that was asked for.
    """
    if sweep:
        _sweep_or_log()
    _show_life()


def _show_life() -> None:
    try:
        clusters.seen()
    except Exception:
        logger.exception("a sign of life was not stored")
        _drop_connections()


def _sweep_sometimes() -> None:
    if _swept_at is None or get_clock().monotonic() - _swept_at >= SWEEP_EVERY:
        _sweep_or_log()


def _sweep_or_log() -> None:
    try:
        recover()
    except Exception:
        logger.exception("a recovery sweep failed; the schedule will repeat it")


def _drop_connections() -> None:
    # A connection that broke in the middle of a slice must not greet the next task of this worker.
    if threading.current_thread() is threading.main_thread():
        for connection in connections.all(initialized_only=True):
            if not connection.in_atomic_block:
                connection.close()
