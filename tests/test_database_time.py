"""The database's clock, in statements that are written out and in those of the ORM."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection

from anvil_django.models import Run
from anvil_django.stores.database_time import Now, database_now, now_sql

from .world import registered_agent

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("offset", [timedelta(), timedelta(seconds=61.5), timedelta(days=-2)])
def test_both_ways_give_the_same_time_in_the_same_form(offset: timedelta) -> None:
    from anvil_django import start_run

    with registered_agent():
        run = start_run("worldly", "Go.")
    table = connection.ops.quote_name(Run._meta.db_table)
    sql, parameters = now_sql(connection, Now(offset))
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE {table} SET lease_until = {sql}", parameters)
    Run.objects.update(next_attempt_at=database_now(offset))

    run.refresh_from_db()
    assert run.lease_until is not None
    assert run.next_attempt_at is not None
    assert abs(run.next_attempt_at - run.lease_until) < timedelta(seconds=5)
    assert abs(run.lease_until - offset - datetime.now(UTC)) < timedelta(seconds=60)
    # What was read finds the row again: on SQLite times are text.
    assert Run.objects.filter(lease_until=run.lease_until).exists()


@pytest.mark.skipif(connection.vendor != "sqlite", reason="elsewhere times are no text")
@pytest.mark.parametrize(
    ("instant", "written"),
    [
        ("2026-12-01 10:00:00.000", "2026-12-01 10:00:00"),
        ("2026-12-01 10:00:00.120", "2026-12-01 10:00:00.120000"),
    ],
)
def test_a_time_is_written_as_django_writes_a_parameter(instant: str, written: str) -> None:
    sql, _ = now_sql(connection, Now())
    with connection.cursor() as cursor:
        cursor.execute("SELECT " + sql.replace("'NOW'", "%s"), [instant])
        assert cursor.fetchone() == (written,)
    moment = datetime.fromisoformat(instant + "+00:00")
    assert connection.ops.adapt_datetimefield_value(moment) == written
