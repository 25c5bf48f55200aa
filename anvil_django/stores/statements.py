"""Statements that write: those of a save, with the run's row under its conditions and what is new or changed,
and plain ones for single rows.

Written out here rather than built by the ORM each time, which takes several times as long as the database
does with them. Tables, columns and the form of every value are those of the models. On PostgreSQL a save
can be one statement and one round trip; elsewhere it is a transaction of plain ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import compress
from typing import Any

from django.db import connections, models

from ..models import Message, Run, ToolCall
from ..states import CallStatus
from .database_time import Now, at_fixed_time, now_sql

Values = Mapping[str, Any]
"""Values by the name of the model's attribute; a ``Now`` is the database's clock."""
Statement = tuple[str, list[Any]]
"""SQL and its parameters."""


@dataclass(frozen=True)
class Changes:
    """What one save writes.

    Args:
        run_pk: The run.
        held: What its row must still hold.
        run: What it holds afterwards.
        messages, calls: New rows; all of one table with the same columns.
        changed: Calls that are stored already and not done, by call id.
    """

    run_pk: int
    held: Values
    run: Values
    messages: list[dict[str, Any]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    changed: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """How many rows it writes, the run's own apart."""
        return len(self.messages) + len(self.calls) + len(self.changed)

    def write(self, connection: Any) -> bool:
        """Write all of it, in the caller's transaction.

        Returns:
            False where the run's row does not hold what it must, or a call has its result already. The
            transaction is to be rolled back then.
        """
        with connection.cursor() as cursor:
            cursor.execute(*self._update_run(connection).alone())
            if cursor.rowcount != 1:
                return False
            self._add(cursor, connection)
            for changed in self._updates(connection):
                cursor.execute(*changed.alone())
                if cursor.rowcount != 1:
                    return False
        return True

    def add(self, connection: Any) -> None:
        """Add the new rows alone."""
        with connection.cursor() as cursor:
            self._add(cursor, connection)

    def write_at_once(self, connection: Any) -> bool:
        """The same in one statement of PostgreSQL, all or nothing without a transaction around it."""
        run = self._update_run(connection)
        run.conditions += self._calls_are_open(connection)
        sql, parameters = run.alone()
        parts = [f"saved AS ({sql} RETURNING 1)"]
        others: list[_Insert | _Update] = [*self._inserts(connection), *self._updates(connection)]
        source = "saved"
        for each in others:
            for number in range(each.parts):
                sql, more = each.after(source, number)
                # Each waits for the one before: left alone they run in any order, and so would the keys.
                source = f"part{len(parts)}"
                parts.append(f"{source} AS ({sql} RETURNING 1)")
                parameters += more
        with _preparing_cursor(connection) as cursor:
            cursor.execute(f"WITH {', '.join(parts)} SELECT COUNT(*) FROM saved", parameters)
            return bool(cursor.fetchone()[0])

    def _add(self, cursor: Any, connection: Any) -> None:
        for new in self._inserts(connection):
            for statement in new.alone():
                cursor.execute(*statement)

    def _update_run(self, connection: Any) -> _Update:
        return _Update(connection, Run, self.run, {"id": self.run_pk, **self.held})

    def _inserts(self, connection: Any) -> Iterator[_Insert]:
        for model, rows in ((Message, self.messages), (ToolCall, self.calls)):
            if rows:
                yield _Insert(connection, model, rows)

    def _updates(self, connection: Any) -> Iterator[_Update]:
        for call_id, values in self.changed.items():
            changed = _Update(connection, ToolCall, values, {"run_id": self.run_pk, "call_id": call_id})
            changed.conditions.append(_NOT_DONE)  # A result is written once.
            yield changed

    def _calls_are_open(self, connection: Any) -> list[Statement]:
        """As a condition of the run's row: an update that finds nothing would not undo the other parts."""
        if not self.changed:
            return []
        table = connection.ops.quote_name(ToolCall._meta.db_table)
        ids = ", ".join(["%s"] * len(self.changed))
        sql = f"SELECT COUNT(*) FROM {table} WHERE run_id = %s AND call_id IN ({ids}) AND {_NOT_DONE[0]}"
        parameters = [self.run_pk, *self.changed, *_NOT_DONE[1], len(self.changed)]
        return [(f"({sql}) = %s", parameters)]


def insert(connection: Any, model: type[models.Model], values: Values) -> None:
    """Add one row, all of whose columns but the key are given."""
    with connection.cursor() as cursor:
        for statement in _Insert(connection, model, [values]).alone():
            cursor.execute(*statement)


def update(connection: Any, model: type[models.Model], values: Values, *, held: Values) -> int:
    """Change the rows that hold ``held``; how many there were."""
    with connection.cursor() as cursor:
        cursor.execute(*_Update(connection, model, values, held).alone())
        return int(cursor.rowcount)


def _preparing_cursor(connection: Any) -> Any:
    """A cursor whose statements the server keeps prepared, where the site's OPTIONS allow that.

    Planning takes a third of the time of a save. Django's own cursor sends its parameters inside the text, so
    that no two statements are the same; behind a PgBouncer that pools transactions it has to.
    """
    connection.ensure_connection()
    # Django could not write such a cursor's statements into its log of queries.
    if connection.queries_logged or getattr(connection.connection, "prepare_threshold", None) is None:
        return connection.cursor()
    from django.db.backends.postgresql.base import ServerBindingCursor

    raw = ServerBindingCursor(connection.connection)  # type: ignore[call-arg]
    return connection._prepare_cursor(raw)


_NOT_DONE: Statement = ("status <> %s", [str(CallStatus.DONE)])


@dataclass(frozen=True)
class _Shape:
    """What all rows have in common that fill the same columns and leave the same ones empty."""

    columns: tuple[str, ...]
    marks: tuple[str, ...]
    """The SQL of each value."""
    sent: tuple[bool, ...]
    """Which values are parameters."""
    prepared: tuple[tuple[int, Any], ...]
    """Places among the parameters, with what brings a value into the form of its column."""
    fixed: tuple[tuple[int, Any], ...]
    """Parameters that are always the same, with their places."""

    @cached_property
    def equations(self) -> list[str]:
        """Each column with its value."""
        return [f"{column} = {mark}" for column, mark in zip(self.columns, self.marks, strict=True)]

    @cached_property
    def assignments(self) -> str:
        """For SET."""
        return ", ".join(self.equations)

    @cached_property
    def conditions(self) -> str:
        """For WHERE."""
        return " AND ".join(equation.replace(" = NULL", " IS NULL") for equation in self.equations)

    def parameters(self, values: Values, connection: Any) -> list[Any]:
        """Those of one row."""
        found = list(compress(values.values(), self.sent))
        for place, prepare in self.prepared:
            found[place] = prepare(found[place], connection)
        for place, value in self.fixed:
            found.insert(place, value)
        return found


_SENT = object()
"""In the place of a value that is sent as a parameter."""


def _shaped(connection: Any, model: type[models.Model], values: Values) -> tuple[_Shape, list[Any]]:
    """The shape and the parameters of a row."""
    values = at_fixed_time(values)
    # NULL and '' are written out: psycopg remembers no statement with more than 50 parameters.
    forms = [
        value if value is None or value == "" or type(value) is Now else _SENT for value in values.values()
    ]
    shape = _shape(model, connection.alias, tuple(values), tuple(forms))
    return shape, shape.parameters(values, connection)


@lru_cache(maxsize=1_000)
def _shape(model: type[models.Model], alias: str, names: tuple[str, ...], forms: tuple[Any, ...]) -> _Shape:
    connection, known = connections[alias], _columns(model, alias)
    marks: list[str] = []
    prepared: list[tuple[int, Any]] = []
    fixed: list[tuple[int, Any]] = []
    sent = 0
    for name, form in zip(names, forms, strict=True):
        prepare = known[name][1]
        if form is _SENT:
            marks.append("%s")
            if prepare is not None:
                prepared.append((sent, prepare))
            sent += 1
        elif isinstance(form, Now):
            mark, parameters = now_sql(connection, form)
            marks.append(mark)
            fixed += [(sent + len(fixed) + at, value) for at, value in enumerate(parameters)]
        else:
            marks.append("NULL" if form is None else "''")
    return _Shape(
        columns=tuple(known[name][0] for name in names),
        marks=tuple(marks),
        sent=tuple(form is _SENT for form in forms),
        prepared=tuple(prepared),
        fixed=tuple(fixed),
    )


class _Insert:
    """New rows of one table."""

    def __init__(self, connection: Any, model: type[models.Model], rows: Sequence[Values]) -> None:
        self._connection = connection
        self._rows = [_shaped(connection, model, row) for row in rows]
        columns = ", ".join(self._rows[0][0].columns)
        self._head = f"INSERT INTO {connection.ops.quote_name(model._meta.db_table)} ({columns})"

    def alone(self) -> Iterator[Statement]:
        """As few statements as the database takes parameters in one."""
        most = self._connection.features.max_query_params
        size = max(1, most // len(self._rows[0][0].columns)) if most else len(self._rows)
        for start in range(0, len(self._rows), size):
            rows = self._rows[start : start + size]
            values = ", ".join(f"({', '.join(shape.marks)})" for shape, _ in rows)
            yield f"{self._head} VALUES {values}", [p for _, parameters in rows for p in parameters]

    @property
    def parts(self) -> int:
        """A statement for each row: a UNION of them would settle the types too soon."""
        return len(self._rows)

    def after(self, source: str, number: int) -> Statement:
        """One row, if there is one in ``source``."""
        shape, parameters = self._rows[number]
        return f"{self._head} SELECT {', '.join(shape.marks)} FROM {source}", parameters


class _Update:
    """One row's new values, if it meets the conditions."""

    def __init__(self, connection: Any, model: type[models.Model], values: Values, held: Values) -> None:
        self._table = connection.ops.quote_name(model._meta.db_table)
        self._set, self._parameters = _shaped(connection, model, values)
        expected, parameters = _shaped(connection, model, held)
        self.conditions: list[Statement] = [(expected.conditions, parameters)]

    parts = 1

    def alone(self) -> Statement:
        """The statement."""
        return self.after("")

    def after(self, source: str, number: int = 0) -> Statement:
        """The same, if there is a row in ``source``."""
        conditions = " AND ".join(condition for condition, _ in self.conditions)
        only = f" FROM {source}" if source else ""
        parameters = self._parameters + [p for _, more in self.conditions for p in more]
        return f"UPDATE {self._table} SET {self._set.assignments}{only} WHERE {conditions}", parameters


_SENT_AS_THEY_ARE = (
    models.BooleanField,
    models.CharField,
    models.FloatField,
    models.ForeignKey,
    models.IntegerField,
    models.TextField,
)


@lru_cache
def _columns(model: type[models.Model], alias: str) -> dict[str, tuple[str, Any]]:
    """The quoted column of each attribute, and what turns its value into a parameter, where anything does."""
    quote = connections[alias].ops.quote_name
    return {
        f.attname: (quote(str(f.column)), None if isinstance(f, _SENT_AS_THEY_ARE) else f.get_db_prep_save)
        for f in model._meta.concrete_fields
    }
