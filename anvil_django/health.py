"""Whether the workers are at work, from the database alone.

``live`` and ``ready`` are for the probes of an orchestrator and for alarms: one question each, a few
statements. ``examination`` is for people: it looks at everything that keeps runs from getting on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from django.apps import apps
from django.db import DatabaseError
from django.db.models import Count, Max, Min, Q
from django.db.models.functions import Coalesce, Greatest

from . import queue
from .clock import get_clock
from .leases import place
from .models import Cluster, Run
from .states import RunStatus
from .stores.database_time import database_now

MAX_AGE = 180.0
"""Seconds without a sign of life after which a cluster counts as gone."""
MAX_WAIT = 300.0
"""Seconds that a run may be due, or without its worker, until somebody should look."""


@dataclass(frozen=True)
class Health:
    """What the database says about the workers."""

    problems: list[str] = field(default_factory=list)
    """A sentence each; empty when all is well."""
    database: bool = True
    """Whether the database answered at all."""
    clusters: list[Mapping[str, Any]] = field(default_factory=list)
    """Name, queue, number of workers, and seconds since the last sign of life of each, newest first."""
    waiting: int = 0
    """Runs that are due and wait for a worker."""
    longest_wait: float | None = None
    """Seconds that the first of them has been due."""
    interrupted: int = 0
    """Runs whose lease has expired and which the sweep has not found yet."""
    schedule: bool | None = None
    """Whether the recovery sweep is scheduled; None: not asked."""

    @property
    def is_well(self) -> bool:
        """Whether there is no problem."""
        return not self.problems


def live(*, queue_name: str | None = None, max_age: float = MAX_AGE) -> Health:
    """Whether a cluster of this host and pid namespace is alive: it answers, or advances a run.

    A database that cannot be asked is no problem of the cluster, and restarting it would not help.

    Args:
        queue_name: Only clusters of this queue.
        max_age: Seconds since the last sign of life.
    """
    try:
        clusters = clusters_seen(queue_name, Q(name__startswith=place()))
        problems = []
        if not any_recent(clusters, max_age) and not _advances_a_run_here():
            problems.append(f"No cluster of this host has given a sign of life for {max_age:g} s.")
        return Health(problems, clusters=clusters)
    except DatabaseError:
        return Health(database=False)


def ready(*, queue_name: str | None = None, max_age: float = MAX_AGE, max_wait: float = MAX_WAIT) -> Health:
    """Whether runs get on: some cluster lives, none waits too long, and the sweep is scheduled.

    Args:
        queue_name: Only clusters of this queue.
        max_age: Seconds since the last sign of life of a cluster on any host.
        max_wait: Seconds that a run may be due, or without its worker.
    """
    try:
        clusters = clusters_seen(queue_name, Q())
        runs = runs_due(max_wait)
        schedule = late_schedule(queue.RECOVER) is not None
    except DatabaseError as exc:
        return Health([f"The database does not answer: {type(exc).__name__}."], database=False)
    problems = []
    if not any_recent(clusters, max_age):
        problems.append(f"No cluster has given a sign of life for {max_age:g} s.")
    if runs["overdue"]:
        problems.append(f"Due for more than {max_wait:g} s and not taken by a worker: {runs['overdue']}.")
    if runs["lost"]:
        problems.append(f"Without a worker for more than {max_wait:g} s: {runs['lost']}.")
    if not schedule:
        problems.append(f"The recovery sweep is not scheduled ({queue.SCHEDULE_NAME}); run migrate.")
    return Health(
        problems,
        clusters=clusters,
        waiting=runs["waiting"],
        longest_wait=None if runs["since"] is None else age(runs["since"]),
        interrupted=runs["interrupted"],
        schedule=schedule,
    )


# What both they and the examination ask.


def clusters_seen(queue_name: str | None, where: Q) -> list[Mapping[str, Any]]:
    """Name, queue, number of workers and age of the last sign of life of clusters, the newest first."""
    rows = Cluster.objects.filter(where)
    if queue_name is not None:
        rows = rows.filter(queue=queue_name)
    return [
        {"name": row.name, "queue": row.queue, "workers": row.workers, "seen": age(row.seen_at)}
        for row in rows[:100]
    ]


def any_recent(clusters: list[Mapping[str, Any]], max_age: float) -> bool:
    """Whether one of them has been seen lately."""
    return any(cluster["seen"] <= max_age for cluster in clusters)


def age(moment: datetime) -> float:
    """How many seconds ago that was; never less than none."""
    # Hosts' clocks differ, by far less than what is asked about here.
    return round(max((get_clock().now() - moment).total_seconds(), 0.0), 1)


def runs_due(max_wait: float) -> dict[str, Any]:
    """Runs that wait for a worker, that lost theirs, and those of each for more than ``max_wait`` seconds."""
    now, long_ago = database_now(), database_now(-timedelta(seconds=max_wait))
    queued = Q(status=str(RunStatus.QUEUED)) & (Q(next_attempt_at=None) | Q(next_attempt_at__lte=now))
    expired = Q(status=str(RunStatus.RUNNING), lease_until__lt=now)
    active = Run.objects.filter(status__in=[str(RunStatus.QUEUED), str(RunStatus.RUNNING)])
    due = Greatest(Coalesce("next_attempt_at", "created_at"), Coalesce("updated_at", "created_at"))
    return active.annotate(due=due).aggregate(
        waiting=Count("pk", filter=queued),
        since=Min("due", filter=queued),
        overdue=Count("pk", filter=queued & Q(due__lt=long_ago)),
        interrupted=Count("pk", filter=expired),
        lost=Count("pk", filter=expired & Q(lease_until__lt=long_ago)),
    )


def late_schedule(function: str) -> float | None:
    """How many seconds ago django-q2 should have called the function; None: it is not to do so again."""
    schedule = apps.get_model("django_q", "Schedule")
    due = schedule.objects.filter(func=function).exclude(repeats=0).aggregate(due=Max("next_run"))["due"]
    return None if due is None else age(due)


def _advances_a_run_here() -> bool:
    held = Run.objects.filter(status=str(RunStatus.RUNNING), lease_until__gt=database_now())
    return held.filter(lease_owner__startswith=place()).exists()
