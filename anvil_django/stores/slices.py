"""The record of who had a run and when: one row with each claim, closed once.

Nothing reads it to decide what happens next.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db import connections
from django.db.models import F, Value
from django.db.models.functions import Greatest

from ..checkpoint import AgentCheckpoint
from ..conf import get_settings
from ..leases import Lease
from ..models import Run, Slice
from ..states import SliceEnd
from .database_time import Now, database_now
from .rows import run_values
from .statements import insert


def begin(run: Run, alias: str, *, rested: bool = False) -> None:
    """Note that a worker has claimed ``run``, in the transaction of the claim.

    Args:
        run: The row as the claim has left it.
        rested: It was not waiting for a worker: somebody took it out of its rest.
    """
    # When it was queued: whatever puts a run into the queue says so there, but for the sweep, which leaves
    # the last sign of life.
    since = _latest(run.updated_at or run.created_at, run.next_attempt_at)
    recovered = False
    if run.recoveries:
        _lose(run, since, alias)
        last = Slice.objects.using(alias).filter(run_id=run.pk).order_by("-token").first()
        recovered = last is not None and last.ended_as in list(SliceEnd)
        since = _latest(since, last.ended_at if last is not None and recovered else None)
    values = {
        "run_id": run.pk,
        "token": run.token,
        "owner": run.lease_owner,
        "waited_since": Now() if rested else since,
        "claimed_at": Now(),
        "ended_at": None,
        **dict.fromkeys(("ended_as", "error_code", "error"), ""),
        "recovered": recovered,
    }
    insert(connections[alias], Slice, values)


def end(checkpoint: AgentCheckpoint, token: int, alias: str) -> None:
    """Note how the slice of that claim left the run, in the transaction of the save."""
    went_wrong = bool(checkpoint.error_code)
    values = run_values(checkpoint)
    _open(checkpoint.store_key, alias).filter(token=token).update(
        ended_at=database_now(),
        ended_as=values["status"],
        error_code=values["error_code"],
        error=values["error"] if went_wrong else "",
    )


def give_up(lease: Lease, alias: str) -> None:
    """Note that a worker has let go of a run in the middle of it."""
    run = Run.objects.using(alias).filter(run_id=lease.run_id)
    mine = Slice.objects.using(alias).filter(run__in=run, token=lease.token, ended_at=None)
    mine.update(ended_at=database_now(), ended_as=str(SliceEnd.GIVEN_UP))


def lose(run: Run, alias: str) -> None:
    """Note that the worker of ``run``, as it was read before it was taken from it, is gone."""
    renewed = None
    if run.lease_until is not None:
        renewed = run.lease_until - timedelta(seconds=get_settings().lease_seconds)
    _lose(run, _latest(run.updated_at or run.created_at, renewed), alias)


def _lose(run: Run, last_seen: datetime, alias: str) -> None:
    _open(run.pk, alias).update(
        ended_at=Greatest(F("claimed_at"), Value(last_seen)), ended_as=str(SliceEnd.LOST)
    )


def _open(run_pk: Any, alias: str) -> Any:
    return Slice.objects.using(alias).filter(run_id=run_pk, ended_at=None)


def _latest(moment: datetime, other: datetime | None) -> datetime:
    return moment if other is None else max(moment, other)
