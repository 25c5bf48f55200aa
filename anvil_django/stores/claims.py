"""The statement that takes a run; written out like those of a save."""

from __future__ import annotations

from datetime import timedelta

from django.db import connections

from ..checkpoint import CHECKPOINT_VERSION
from ..models import Run
from ..states import RESUMABLE
from .database_time import time_sql

# In this order: MariaDB evaluates each assignment with the new values of those before it.
_TAKE = """
    UPDATE {run} SET
        recoveries = recoveries + CASE WHEN status = 'running' THEN 1 ELSE 0 END,
        status = 'running',
        token = token + 1,
        lease_owner = %(owner)s,
        lease_until = {until},
        started_at = COALESCE(started_at, {now}),
        ticket_at = NULL
    WHERE run_id = %(run_id)s AND checkpoint_version <= %(version)s AND ({waits} OR {lease_expired})
"""
_IS_DUE = "(status = 'queued' AND (next_attempt_at IS NULL OR next_attempt_at <= {now}))"
_LEASE_EXPIRED = "(status = 'running' AND (lease_until IS NULL OR lease_until < {now}))"
_IS_IDLE = "status IN ({statuses})".format(
    statuses=", ".join(f"'{status}'" for status in sorted({"queued", *map(str, RESUMABLE)}))
)


def take(alias: str, run_id: str, owner: str, seconds: float, *, any_idle: bool) -> bool:
    """Take the run for ``seconds``, if it can be taken; see ``StateStore.claim``."""
    connection = connections[alias]
    now, parameters = time_sql(connection, "now")
    until, more = time_sql(connection, "until", timedelta(seconds=seconds))
    sql = _TAKE.format(
        run=connection.ops.quote_name(Run._meta.db_table),
        now=now,
        until=until,
        waits=_IS_IDLE if any_idle else _IS_DUE.format(now=now),
        lease_expired=_LEASE_EXPIRED.format(now=now),
    )
    # As a text, whatever it is: MySQL's driver writes out a list as a list of values.
    parameters |= more | {"owner": owner, "run_id": str(run_id), "version": CHECKPOINT_VERSION}
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return bool(cursor.rowcount)
