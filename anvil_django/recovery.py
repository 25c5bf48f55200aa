"""The recovery sweep: runs that should be advancing and are not, put back on their way."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.db import connections, transaction
from django.db.models import F, Q
from django.utils.translation import gettext_noop

from . import queue, signals
from .conf import get_settings
from .errors import AnvilError
from .leases import is_dead, is_here
from .models import Run
from .states import RunStatus
from .stores import slices, sweep
from .stores.database_time import Now, database_now
from .stores.decisions import queue_if_decided, queued_values
from .stores.django import DjangoStateStore
from .stores.statements import update

logger = logging.getLogger(__name__)

INTERRUPTED = gettext_noop("Waits for a worker: its last one died or lost the connection.")
UNREADABLE = gettext_noop(
    "The run was taken {recoveries} times in a row and given up each time before a step was begun. "
    "Look at the worker's log, then resume."
)


@dataclass(frozen=True)
class Recovery:
    """One run that the sweep found, and what became of it."""

    run_id: str
    agent: str
    why: str
    """What was found."""
    error: str = ""
    """Why nothing could be done about it."""


def recover(
    *,
    run_id: str | None = None,
    agent: str | None = None,
    failed: bool = False,
    limit: int | None = None,
    dry_run: bool = False,
    seen: Sequence[sweep.Found] | None = None,
) -> Iterator[Recovery]:
    """Find runs that should be advancing and are not, and put each back on its way.

    It may run at any time, twice, and at the same time as itself: each run moves by one conditional update.
    Runs that wait for people are left alone.

    Args:
        run_id: Only this run.
        agent: Only runs of this agent.
        failed: Failed runs too.
        limit: Most runs.
        dry_run: Only say what would be done.
        seen: What ``look`` has just found, with which it begins; None: it looks itself.
    """
    found = 0
    for why, run in _interrupted(run_id, agent, failed, seen):
        if limit is not None and found >= limit:
            return
        try:
            if dry_run or _put_back(run):
                found += 1
                yield Recovery(run.run_id, run.agent, why)
        except Exception as exc:
            # One bad run must not keep the others waiting.
            logger.exception("a run could not be recovered", extra={"run_id": run.run_id})
            found += 1
            yield Recovery(run.run_id, run.agent, why, error=_sentence(exc))


def look() -> list[sweep.Found]:
    """Find out in one statement whether there is anything for a sweep to do: interrupted runs, late cases."""
    return sweep.look(DjangoStateStore().alias, [*sweep.LATE_CASES, *sweep.INTERRUPTED])


def ring_again(limit: int) -> int:
    """Tell the queue again of those queued runs that have waited longest since it was told.

    A cluster that was killed took along the tickets it had fetched: with the ORM broker they stay locked
    until ``retry`` is over, with Redis they are lost. Which those were is not known; a ticket too many does
    nothing.

    Returns:
        How many it was.
    """
    due = Q(next_attempt_at=None) | Q(next_attempt_at__lte=database_now())
    queued = Run.objects.readable().filter(due, status=str(RunStatus.QUEUED))
    oldest = queued.order_by(F("ticket_at").asc(nulls_first=True), "id")[:limit]
    return sum(_put_back(run) for run in list(oldest))


def _sentence(exc: Exception) -> str:
    return exc.message if isinstance(exc, AnvilError) else f"{type(exc).__name__}: {exc}"


def _interrupted(
    run_id: str | None, agent: str | None, failed: bool, seen: Sequence[sweep.Found] | None
) -> Iterator[sweep.Found]:
    whys = [*sweep.INTERRUPTED, sweep.FAILED] if failed else sweep.INTERRUPTED
    alias = DjangoStateStore().alias
    if seen is None:
        seen = sweep.look(alias, whys, run_id=run_id, agent=agent)
    for why in whys:
        found = [each for each in seen if each.why == why]
        while found:
            for each in found:
                owner = each.run.lease_owner
                if why != sweep.LIVE_LEASE or (is_here(owner) and is_dead(owner)):
                    yield each
            if len(found) < sweep.AT_ONCE:
                break
            # Not one open cursor: on SQLite it would hold a snapshot that no write could get past.
            found = sweep.look(alias, [why], run_id=run_id, agent=agent, after=found[-1].run.pk)


def _as_read(run: Run, *names: str) -> dict[str, object]:
    """What its row holds while nobody has moved it; token and revision guard all that is not named."""
    return {name: getattr(run, name) for name in ("id", "status", "token", "revision", *names)}


def _put_back(run: Run) -> bool:
    """Queue one interrupted run and tell the queue; False if it moved on meanwhile."""
    alias = DjangoStateStore().alias
    same = Run.objects.using(alias).filter(**_as_read(run))
    with transaction.atomic(using=alias):
        if run.status == str(RunStatus.RUNNING) and run.recoveries > get_settings().max_recoveries:
            # Whoever takes such a run fails it, but dies or gives up before it comes to that.
            moved = same.filter(lease_owner=run.lease_owner, lease_until=run.lease_until).update(
                status=str(RunStatus.FAILED),
                # The end is an event of its own, also when nothing was saved since the last one.
                revision=F("revision") + 1,
                error_code="poison",
                error=UNREADABLE.format(recoveries=run.recoveries),
                lease_owner="",
                lease_until=None,
                finished_at=database_now(),
                updated_at=database_now(),
            )
            if moved:
                slices.lose(run, alias)
                run.refresh_from_db(using=alias)
                signals.send_after_commit(signals.run_ended, using=alias, sender=Run, run=run)
            return bool(moved)
        if run.status == str(RunStatus.RUNNING):
            # Under the token that was seen: a worker that has taken it since keeps it. The lease may have
            # been renewed by a worker that was only slow.
            values = {
                "status": str(RunStatus.QUEUED),
                "recoveries": run.recoveries + 1,
                "lease_owner": "",
                "lease_until": None,
                "error": INTERRUPTED,
                "ticket_at": Now(),
            }
            moved = update(connections[alias], Run, values, held=_as_read(run, "lease_owner", "lease_until"))
            if moved:
                slices.lose(run, alias)
        elif run.status == str(RunStatus.QUEUED):
            held = _as_read(run, "ticket_at")
            moved = update(connections[alias], Run, {"ticket_at": Now()}, held=held)
        elif run.status == str(RunStatus.SUSPENDED):
            moved = queue_if_decided(run.pk, alias, sources=[RunStatus.SUSPENDED])
        else:
            moved = same.update(revision=F("revision") + 1, **queued_values())
        if moved:
            queue.ring(run.run_id, using=alias)
    return bool(moved)
