"""Everything that keeps runs from getting on, looked at once: for people, after a deploy and in doubt.

Unlike the probes in ``health`` it also asks whether this code fits the runs that are stored. It changes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import partial

from django.apps import apps
from django.db import Error, connections, router, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.models import Count, Min, Q

from . import exactjson, health, inflight, queue
from .agents import registered
from .conf import get_settings
from .models import Approval, Run
from .states import ApprovalKind, RunStatus
from .stores.database_time import database_now


class Level(StrEnum):
    """How a finding is meant."""

    OK = "ok"
    """As it should be."""
    NOTE = "note"
    """Worth knowing; a person may want to act, and nothing is broken."""
    PROBLEM = "problem"
    """Runs do not get on, or will not, until somebody does something."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    about: str
    """What was looked at, in a word or two; several findings may be about the same."""
    level: Level
    says: str
    """A sentence."""
    fix: str = ""
    """What to do, where something is to be done."""


def examine(
    *,
    queue_name: str | None = None,
    max_age: float = health.MAX_AGE,
    max_wait: float = health.MAX_WAIT,
) -> list[Finding]:
    """Look at everything; a look that the database does not answer is a problem of its own.

    Args:
        queue_name: Only clusters of this queue.
        max_age: Seconds since the last sign of life of a cluster on any host.
        max_wait: Seconds that a run may be due or without its worker, and a case past its time.
    """
    looks: list[tuple[str, Callable[[], Iterator[Finding]]]] = [
        ("migrations", _migrations),
        ("workers", partial(_workers, queue_name, max_age)),
        ("schedules", partial(_schedules, max_wait)),
        ("queue", partial(_queue, max_wait)),
        ("approvals", partial(_approvals, max_wait)),
        ("parked runs", _parked),
        ("runs in flight", _in_flight),
        ("agent versions", _versions),
    ]
    alias = router.db_for_read(Run)
    try:
        connections[alias].ensure_connection()
    except Error as exc:
        says = f"It cannot be reached: {type(exc).__name__}."
        return [Finding("database", Level.PROBLEM, says, f"Look at the server of {alias!r}.")]
    found: list[Finding] = []
    for about, look in looks:
        try:
            with transaction.atomic(using=alias):
                found += look()
        except Error as exc:
            says = f"The database does not say: {type(exc).__name__}."
            fix = "Where tables or columns are missing, run migrate; else look at the database's log."
            found.append(Finding(about, Level.PROBLEM, says, fix))
    return found


def _migrations() -> Iterator[Finding]:
    schedule = apps.get_model("django_q", "Schedule")
    pending = []
    for app, model in (("anvil_django", Run), ("django_q", schedule)):
        executor = MigrationExecutor(connections[router.db_for_write(model)])
        plan = executor.migration_plan(
            [leaf for leaf in executor.loader.graph.leaf_nodes() if leaf[0] == app]
        )
        pending += [f"{step.app_label}.{step.name}" for step, _ in plan if step.app_label == app]
    if pending:
        says = f"Not applied: {', '.join(pending)}."
        yield Finding("migrations", Level.PROBLEM, says, "Run migrate, then start the workers anew.")
    else:
        yield Finding("migrations", Level.OK, "All are applied.")


def _workers(queue_name: str | None, max_age: float) -> Iterator[Finding]:
    clusters = health.clusters_seen(queue_name, Q())
    recent = [cluster for cluster in clusters if cluster["seen"] <= max_age]
    if recent:
        workers = sum(cluster["workers"] for cluster in recent)
        says = f"Clusters: {len(recent)}, with {workers} workers; seen {recent[0]['seen']:g} s ago."
        yield Finding("workers", Level.OK, says)
    else:
        says = f"No cluster has given a sign of life for {max_age:g} s."
        yield Finding("workers", Level.PROBLEM, says, "Start one: manage.py anvil_worker")


def _schedules(max_wait: float) -> Iterator[Finding]:
    wanted = [(queue.SCHEDULE_NAME, queue.RECOVER, "recovery sweep")]
    if get_settings().prune_after_days is not None:
        wanted.append((queue.PRUNE_SCHEDULE_NAME, queue.PRUNE, "pruning of old runs"))
    for name, function, what in wanted:
        late = health.late_schedule(function)
        if late is None:
            fix = "Run migrate, or create it where ANVIL['INSTALL_SCHEDULE'] is False."
            yield Finding("schedules", Level.PROBLEM, f"The {what} is not scheduled ({name}).", fix)
        elif late > max_wait:
            says = f"The {what} should have run {late:g} s ago ({name})."
            fix = (
                "Start a cluster whose name is that of the schedule, without Q_CLUSTER['scheduler'] = False."
            )
            yield Finding("schedules", Level.PROBLEM, says, fix)
        else:
            yield Finding("schedules", Level.OK, f"The {what} is scheduled.")


def _queue(max_wait: float) -> Iterator[Finding]:
    runs = health.runs_due(max_wait)
    since = "" if runs["since"] is None else f", the first for {health.age(runs['since']):g} s"
    says = f"Runs waiting for a worker: {runs['waiting']}{since}."
    if runs["overdue"]:
        fix = "Look at the workers' log; if they are only busy, start more of them."
        yield Finding("queue", Level.PROBLEM, says, fix)
    else:
        yield Finding("queue", Level.OK, says)
    if runs["lost"]:
        says = f"Without a worker for more than {max_wait:g} s: {runs['lost']}."
        yield Finding("queue", Level.PROBLEM, says, "Put them back on their way: manage.py anvil_resume")
    elif runs["interrupted"]:
        says = f"Runs that lost their worker and that the next sweep will find: {runs['interrupted']}."
        yield Finding("queue", Level.NOTE, says)


def _approvals(max_wait: float) -> Iterator[Finding]:
    in_doubt = Q(kind=str(ApprovalKind.IN_DOUBT))
    found = Approval.objects.pending().aggregate(
        waiting=Count("pk"),
        since=Min("requested_at"),
        doubts=Count("pk", filter=in_doubt),
        doubted_since=Min("requested_at", filter=in_doubt),
        overdue=Count("pk", filter=Q(expires_at__lt=database_now(-timedelta(seconds=max_wait)))),
    )
    since = "" if found["since"] is None else f", the oldest for {health.age(found['since']):g} s"
    yield Finding("approvals", Level.OK, f"Cases waiting for a decision: {found['waiting']}{since}.")
    if found["overdue"]:
        says = f"Cases whose time is over and that are still open: {found['overdue']}."
        fix = "The sweep closes them: see whether it is scheduled and a worker lives."
        yield Finding("approvals", Level.PROBLEM, says, fix)
    if found["doubts"]:
        age = health.age(found["doubted_since"])
        says = f"Side effects whose outcome is in doubt: {found['doubts']}, the oldest for {age:g} s."
        fix = "A person has to find out whether they happened: manage.py anvil_approvals"
        yield Finding("in doubt", Level.NOTE, says, fix)


def _parked() -> Iterator[Finding]:
    # Why a run rests stands on it; an operator who paused one knows.
    paused = Run.objects.filter(status=str(RunStatus.PAUSED)).exclude(error_code="").order_by()
    groups = paused.values_list("error_code").annotate(count=Count("pk")).order_by("error_code")
    for code, count in groups:
        says = f"Runs that were parked until somebody mends something ({code}): {count}."
        fix = "See why: manage.py anvil_runs --status paused. Then: manage.py anvil_resume --run ID"
        yield Finding("parked runs", Level.NOTE, says, fix)


def _in_flight() -> Iterator[Finding]:
    found = list(inflight.find())
    for finding in found:
        yield Finding("runs in flight", Level.PROBLEM, finding.problem, finding.fix)
    if not found:
        yield Finding("runs in flight", Level.OK, "This code can finish all that have not ended.")


def _versions() -> Iterator[Finding]:
    agents = registered()
    current = {exactjson.digest(a.name, exactjson.dumps(a.prefix)) for a in agents.values()}
    runs = Run.objects.unfinished().filter(agent__in=list(agents)).exclude(version__digest__in=current)
    groups = (
        runs.order_by()
        .values_list("agent")
        .annotate(count=Count("pk"), versions=Count("version", distinct=True))
    )
    earlier = list(groups.order_by("agent"))
    for agent, count, versions in earlier:
        says = f"Unfinished runs of {agent!r} that go on with an earlier version: {count} (of {versions})."
        yield Finding("agent versions", Level.NOTE, says)
    if not earlier:
        yield Finding("agent versions", Level.OK, "All unfinished runs have those of this code.")
