"""What a sweep looks for, found by one statement: runs that should be advancing and are not, and late cases.

Written out here: there is nearly always nothing to find, and the ORM takes ten times as long to build the
questions as the database to answer them. Each part reads those rows alone that have the status it asks for,
by the index of the status.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from django.db import connections

from ..checkpoint import CHECKPOINT_VERSION
from ..conf import get_settings
from ..leases import place
from ..models import Approval, Run
from .database_time import time_sql

LEASE_EXPIRED = "its lease has expired"
LIVE_LEASE = "its worker is dead"
"""Of this host, where whoever asks can find out whether that is so."""
QUEUE_LOST_IT = "the queue lost it"
DECIDED = "its decisions are taken"
FAILED = "it failed"

OVERDUE = "nobody decided in time"
LEFT_ALONE = "its first reviewers left it alone"

INTERRUPTED = (LEASE_EXPIRED, LIVE_LEASE, QUEUE_LOST_IT, DECIDED)
LATE_CASES = (OVERDUE, LEFT_ALONE)

AT_ONCE = 500
"""Most rows of each kind that are read at once; of late cases it is enough to know that there is one."""

_OF_RUNS = {
    LEASE_EXPIRED: "r.status = 'running' AND (r.lease_until IS NULL OR r.lease_until < {now})",
    LIVE_LEASE: "r.status = 'running' AND r.lease_until >= {now} AND r.lease_owner LIKE %(here)s",
    QUEUE_LOST_IT: (
        "r.status = 'queued' AND (r.next_attempt_at IS NULL OR r.next_attempt_at <= {now}) "
        "AND (r.ticket_at IS NULL OR r.ticket_at < {patience_ago})"
    ),
    DECIDED: (
        "r.status = 'suspended' AND NOT EXISTS "
        "(SELECT 1 FROM {approval} a WHERE a.run_id = r.id AND a.status = 'pending')"
    ),
    FAILED: "r.status = 'failed'",
}
_OF_CASES = {
    # Those of a newer version are its own workers' to end.
    OVERDUE: "a.status = 'pending' AND a.expires_at <= {now} AND r.checkpoint_version <= %(version)s",
    LEFT_ALONE: "a.status = 'pending' AND a.escalate_at <= {now} AND a.escalation_told_at IS NULL",
}
_RUNS = (
    "SELECT {columns} FROM {run} r WHERE {condition} AND r.checkpoint_version <= %(version)s{only} "
    "ORDER BY r.id LIMIT {most}"
)
_CASES = (
    "SELECT {columns} FROM {approval} a JOIN {run} r ON r.id = a.run_id WHERE {condition} "
    "ORDER BY a.id LIMIT 1"
)
# SQLite takes an order and a limit only inside of what is united.
_UNITED = "SELECT * FROM ({part}) part{number}"
_COLUMNS = (
    "id",
    "run_id",
    "agent",
    "status",
    "token",
    "revision",
    "recoveries",
    "lease_owner",
    "lease_until",
    "ticket_at",
    "created_at",
    "updated_at",
)


class Found(NamedTuple):
    """A run that a sweep has to do with."""

    why: str
    """One of the texts above."""
    run: Run
    """With no other columns than those that ``recovery`` looks at."""


def look(
    alias: str, whys: Sequence[str], *, run_id: str | None = None, agent: str | None = None, after: int = 0
) -> list[Found]:
    """The runs for which one of ``whys`` holds, in that order, then by id; up to ``AT_ONCE`` of each.

    Args:
        whys: Of the texts above.
        run_id, agent: Only this run, only runs of this agent; not for late cases.
        after: Only runs whose key is greater.
    """
    connection = connections[alias]
    now, parameters = time_sql(connection, "now")
    patience = timedelta(seconds=get_settings().ticket_seconds)
    patience_ago, more = time_sql(connection, "patience_ago", -patience)
    only = {"run_id = %(run_id)s": run_id, "agent = %(agent)s": agent, "id > %(after)s": after or None}
    parameters |= more | {"version": CHECKPOINT_VERSION, "here": place() + "%"}
    parameters |= {"run_id": run_id, "agent": agent, "after": after}
    known = {
        "now": now,
        "patience_ago": patience_ago,
        "run": connection.ops.quote_name(Run._meta.db_table),
        "approval": connection.ops.quote_name(Approval._meta.db_table),
        "only": "".join(f" AND r.{text}" for text, wanted in only.items() if wanted is not None),
        "most": AT_ONCE,
    }
    parts = [_part(number, why, known) for number, why in enumerate(whys)]
    rows: Iterable[Any] = Run.objects.using(alias).raw(" UNION ALL ".join(parts), parameters)
    found = [Found(row.found, row) for row in rows]
    return sorted(found, key=lambda each: (whys.index(each.why), each.run.pk))


def _part(number: int, why: str, known: dict[str, Any]) -> str:
    columns = ", ".join([f"'{why}' AS found", *(f"r.{name}" for name in _COLUMNS)])
    template, conditions = (_RUNS, _OF_RUNS) if why in _OF_RUNS else (_CASES, _OF_CASES)
    part = template.format(columns=columns, condition=conditions[why].format(**known), **known)
    return _UNITED.format(part=part, number=number)
