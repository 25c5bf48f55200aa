"""A large table: runs and approvals by the hundred thousand, inserted by the database itself.

The rows are spread as they are on a site that has run for a while: an agent that is retired and an account
that was busy long ago have all their rows at the old end, where a list that is read from the new end finds
them last; one agent has half of the runs and no approvals; a few hundred cases wait, however large the table.
"""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db import connection, models

from anvil_django.models import AgentVersion, Approval, Run, Slice, ToolCall
from tests.admin.long_runs import lengthen

STEPS = 1_000
"""Iterations of the one long run."""
WAITING = 300
"""About how many cases wait."""


class Crowd:
    """The rows, and the people who look at them.

    Args:
        rows: How many runs, and about as many approvals.
    """

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.began = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=rows)
        """When the oldest run was created; one was created every minute since."""
        self.vera = person("vera", "view_run", "view_approval", "control_run", "decide_approval")
        """May see everything and decide."""
        self.carla = person("carla", "add_run")
        """Started 20 of the runs."""
        self.robot = person("robot", "add_run")
        """Started the oldest third of them."""
        self._fill()
        version = AgentVersion.objects.get(agent="worldly")
        long = Run.objects.create(run_id="long", agent="worldly", version=version, request_digest="0" * 64)
        self.long = lengthen(long, STEPS, created_at=self.at(0.1))
        """A run of ``STEPS`` iterations."""

    def at(self, share: float) -> datetime:
        """When the run at this place between the oldest (0) and the newest (1) was created."""
        return self.began + timedelta(minutes=int(self.rows * share))

    def cursor(self, share: float) -> str:
        """The REST API's cursor to the run at this place."""
        pk = Run.objects.get(run_id=f"r{int(self.rows * share)}").pk
        return b64encode(f"p={pk}".encode()).decode()

    def _fill(self) -> None:
        rows, old = self.rows, self.rows // 10
        first = Run.objects.create(
            run_id="first",
            agent="worldly",
            version=AgentVersion.objects.create(agent="worldly", digest="0" * 64, prefix="{}"),
            request_digest="0" * 64,
            status="done",
            stop_reason="end_turn",
        )
        # Keys follow the time, as they do where rows were not imported.
        Run.objects.filter(pk=first.pk).update(created_at=self.began)
        for agent in ("other", "retired"):
            AgentVersion.objects.create(agent=agent, digest=agent.ljust(64), prefix="{}")
        # An even number: the agent of those with an odd one asks nobody.
        waits = f"n % {2 * ceil(rows / WAITING / 2)} = 0 AND n > {old}"
        numbers = f"SELECT n FROM ({NUMBERS}) digits WHERE n BETWEEN 1 AND {rows}"
        run_table = _quoted(Run._meta.db_table)
        self._copy(
            Run,
            f"{run_table} original, ({numbers}) numbers WHERE original.id = {first.pk} ORDER BY n",
            run_id=_joined("'r'", "n"),
            agent=f"CASE WHEN n <= {old} THEN 'retired' WHEN n % 2 = 0 THEN 'worldly' ELSE 'other' END",
            status=f"CASE WHEN {waits} THEN 'suspended' WHEN n <= {old // 2} THEN 'cancelled' "
            f"WHEN n = {rows // 3} THEN 'queued' WHEN n = {rows // 2} THEN 'running' ELSE 'done' END",
            stop_reason=f"CASE WHEN {waits} THEN '' WHEN n <= {old // 2} THEN 'refusal' ELSE 'end_turn' END",
            user_id=f"CASE WHEN n % {max(rows // 20, 1)} = 0 THEN {self.carla.pk} "
            f"WHEN n <= {rows // 3} THEN {self.robot.pk} END",
            created_at=_minutes_after(self.began, "n"),
        )
        call = ToolCall.objects.create(
            run=first,
            seq=1,
            index=0,
            call_id="first",
            name="mail",
            input="{}",
            status="done",
            outcome="returned",
            result='"done"',
            created_at=self.began,
            finished_at=self.began,
        )
        # Of the agents that ask: the retired one, and worldly.
        run_of = (
            f"{_quoted(ToolCall._meta.db_table)} original, {run_table} run WHERE original.id = {call.pk} "
        )
        self._copy(
            ToolCall,
            f"{run_of} AND run.agent <> 'other' AND run.id <> {first.pk} ORDER BY run.id",
            run_id="run.id",
        )
        approval = Approval.objects.create(
            run=first,
            call=call,
            agent="worldly",
            kind="tool",
            status="approved",
            tool="mail",
            digest="0" * 64,
            requested_at=self.began,
            decided_at=self.began,
        )
        # Two cases a call, as when a person was asked again; of a run that waits the second one is open.
        open_case = "run.status = 'suspended' AND twice = 2"
        key = _joined("'k'", "run.id")
        aged = f"run.id <= {first.pk} + "
        self._copy(
            Approval,
            f"{_quoted(Approval._meta.db_table)} original, {_quoted(ToolCall._meta.db_table)} tool_call "
            f"JOIN {run_table} run ON run.id = tool_call.run_id, "
            "(SELECT 1 AS twice UNION ALL SELECT 2) asked "
            f"WHERE original.id = {approval.pk} AND run.id <> {first.pk} ORDER BY run.id, twice",
            run_id="run.id",
            call_id="tool_call.id",
            agent="run.agent",
            kind=f"CASE WHEN {aged} {old // 2} THEN 'limit' ELSE 'tool' END",
            tool=f"CASE WHEN {aged} {old} THEN 'fax' ELSE 'mail' END",
            status=f"CASE WHEN {open_case} THEN 'pending' "
            f"WHEN {aged} {old} THEN 'rejected' ELSE 'approved' END",
            open_key=f"CASE WHEN {open_case} THEN {key} END",
            decided_at=f"CASE WHEN {open_case} THEN NULL ELSE run.created_at END",
            requested_at="run.created_at",
        )
        stretch = Slice.objects.create(
            run=first, token=1, owner="host:1", waited_since=self.began, claimed_at=self.began
        )
        self._copy(
            Slice,
            f"{_quoted(Slice._meta.db_table)} original, {run_table} run "
            f"WHERE original.id = {stretch.pk} AND run.id <> {first.pk} ORDER BY run.id",
            run_id="run.id",
            waited_since="run.created_at",
            claimed_at="run.created_at",
            recovered=f"CASE WHEN run.id % 100 = 0 THEN {_true()} ELSE {_false()} END",
        )
        self._analyze(Run, ToolCall, Approval, Slice)

    def _copy(self, model: type[models.Model], source: str, **own: str) -> None:
        """Insert a row for each of the source; columns that are not its ``own`` are those of ``original``."""
        columns = [field.column for field in model._meta.concrete_fields if not field.primary_key]
        values = ", ".join(own.get(column, f"original.{_quoted(column)}") for column in columns)
        names = ", ".join(map(_quoted, columns))
        with connection.cursor() as cursor:
            cursor.execute(
                f"INSERT INTO {_quoted(model._meta.db_table)} ({names}) SELECT {values} FROM {source}"
            )

    def _analyze(self, *tables: type[models.Model]) -> None:
        word = "ANALYZE TABLE" if connection.vendor == "mysql" else "ANALYZE"
        with connection.cursor() as cursor:
            for table in tables:
                cursor.execute(f"{word} {_quoted(table._meta.db_table)}")


# A million numbers, without what only one of the databases knows.
DIGITS = " UNION ALL ".join(f"SELECT {digit} AS d" for digit in range(10))
PLACES = range(6)
NUMBERS = f"SELECT {' + '.join(f'd{p}.d * {10**p}' for p in PLACES)} AS n FROM " + ", ".join(
    f"({DIGITS}) d{p}" for p in PLACES
)


def person(name: str, *permissions: str) -> Any:
    """Somebody of the staff with these permissions of our app."""
    user = get_user_model().objects.create(username=name, is_staff=True)
    user.user_permissions.set(
        Permission.objects.filter(content_type__app_label="anvil_django", codename__in=permissions)
    )
    return user


def _quoted(name: str) -> str:
    return connection.ops.quote_name(name)


def _true() -> str:
    return "TRUE" if connection.vendor == "postgresql" else "1"


def _false() -> str:
    return "FALSE" if connection.vendor == "postgresql" else "0"


def _joined(left: str, right: str) -> str:
    return f"CONCAT({left}, {right})" if connection.vendor == "mysql" else f"{left} || {right}"


def _minutes_after(start: datetime, minutes: str) -> str:
    text = f"{start:%Y-%m-%d %H:%M:%S}"
    if connection.vendor == "postgresql":
        return f"TIMESTAMPTZ '{text}+00' + {minutes} * INTERVAL '1 minute'"
    if connection.vendor == "mysql":
        return f"TIMESTAMP('{text}') + INTERVAL {minutes} MINUTE"
    return f"datetime('{text}', '+' || {minutes} || ' minutes')"
