"""The database's clock as an expression, in UTC on every vendor."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from django.db import connections
from django.db.models import DateTimeField, Func, Value
from django.db.models.sql import Query

from ..clock import FixedClock, get_clock


class DatabaseNow(Func):
    """The instant at which the statement runs, by the database's clock."""

    function = "CURRENT_TIMESTAMP"
    output_field = DateTimeField()

    def as_postgresql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        # CURRENT_TIMESTAMP would be the start of the transaction.
        return self.as_sql(compiler, connection, template="STATEMENT_TIMESTAMP()", **extra)

    def as_mysql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        # CURRENT_TIMESTAMP follows the session's time zone, which Django leaves as the server has it.
        return self.as_sql(compiler, connection, template="UTC_TIMESTAMP(6)", **extra)

    def as_sqlite(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        return self.as_sql(
            compiler, connection, template="STRFTIME('%%%%Y-%%%%m-%%%%d %%%%H:%%%%M:%%%%f', 'NOW')", **extra
        )


def database_now(offset: timedelta = timedelta()) -> Any:
    """The database's time plus ``offset``; a ``FixedClock`` in force stands in for both clocks."""
    clock = get_clock()
    if isinstance(clock, FixedClock):
        return Value(clock.now() + offset, output_field=DateTimeField())
    # Added even when it is nothing: SQLite keeps datetimes as text, and only the result of an addition is
    # written as Django writes a parameter. Anything else would never equal the value that was read from it.
    return DatabaseNow() + offset


class Now(NamedTuple):
    """The database's time plus ``offset``, for statements that are written out."""

    offset: timedelta = timedelta()


def at_fixed_time(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values, with the time of a ``FixedClock`` in force in the place of each ``Now``."""
    clock = get_clock()
    if not isinstance(clock, FixedClock):
        return values
    return {
        name: clock.now() + value.offset if isinstance(value, Now) else value
        for name, value in values.items()
    }


def now_sql(connection: Any, now: Now) -> tuple[str, list[Any]]:
    """SQL and parameters of ``database_now`` while the real clock is in force."""
    if connection.vendor == "sqlite":
        return _SQLITE_NOW.format(now.offset.total_seconds()), []
    return _compiled(connection.alias, now.offset)


def time_sql(connection: Any, name: str, offset: timedelta = timedelta()) -> tuple[str, dict[str, Any]]:
    """SQL of ``database_now`` for a statement with named parameters, and the parameters that it needs.

    Args:
        name: What the names of the parameters begin with.
        offset: What is added to the time.
    """
    clock = get_clock()
    if isinstance(clock, FixedClock):
        return f"%({name})s", {name: connection.ops.adapt_datetimefield_value(clock.now() + offset)}
    sql, parameters = now_sql(connection, Now(offset))
    names = [f"{name}{number}" for number in range(len(parameters))]
    for each in names:
        sql = sql.replace("%s", f"%({each})s", 1)
    return sql, dict(zip(names, parameters, strict=True))


# What an addition of Django's gives, without its function in Python: no fraction where it is nothing.
_SQLITE_NOW = "REPLACE(STRFTIME('%%Y-%%m-%%d %%H:%%M:%%f', 'NOW', '{:+.3f} seconds') || '000', '.000000', '')"


@lru_cache
def _compiled(alias: str, offset: timedelta) -> tuple[str, list[Any]]:
    connection = connections[alias]
    query = Query(None)
    sql, parameters = query.get_compiler(connection=connection).compile(
        database_now(offset).resolve_expression(query)
    )
    return sql, list(parameters)
