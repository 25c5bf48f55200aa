"""The least that a durable loop can do, with the plain driver.

``raw`` commits once an iteration: both messages and the run's position. ``raw2`` commits the assistant's
message before its tools run, and then each result: what a loop must do that never repeats a finished call.
``raw-1rt`` is ``raw`` on PostgreSQL in one statement.
"""

from __future__ import annotations

import json
import time
from typing import Any

from .. import workload
from ..counting import Counter
from ..databases import DRIVERS, connect
from ..workload import Job
from . import threads

TABLES = {
    "sqlite": ("TEXT", "TEXT"),
    "postgres": ("varchar(64)", "jsonb"),
    "mariadb": ("varchar(64)", "longtext"),
}
"""Types of a key and of a message."""


def create_tables(kind: str, database: str) -> None:
    """Make the tables."""
    key, body = TABLES[kind]
    connection = connect(kind, database)
    cursor = connection.cursor()
    cursor.execute(
        f"CREATE TABLE raw_run (id {key} PRIMARY KEY, status {key} NOT NULL, position integer NOT NULL, "
        "updated_at double precision NOT NULL)"
    )
    cursor.execute(
        f"CREATE TABLE raw_message (run_id {key} NOT NULL, seq integer NOT NULL, body {body} NOT NULL, "
        "PRIMARY KEY (run_id, seq))"
    )
    cursor.execute("CREATE TABLE raw_booking (seq integer NOT NULL)")
    connection.close()


class Raw:
    """See the module."""

    def __init__(self, name: str, kind: str, database: str, counter: Counter | None) -> None:
        self._kind, self._database, self._counter = kind, database, counter
        self._several, self._one_statement = name == "raw2", name == "raw-1rt"
        self._mark = "?" if kind == "sqlite" else "%s"
        __import__(DRIVERS[kind])

    def load(self) -> None: ...

    def open(self) -> None:
        self._connection = self._connect()

    def _connect(self) -> Any:
        connection = connect(self._kind, self._database)
        if self._counter is not None:
            self._counter.watch(connection)
        return connection

    def close(self) -> None:
        self._connection.close()

    def run(self, key: str, job: Job) -> None:
        self._run(self._connection, key, job)

    def run_together(self, keys: list[str], job: Job) -> None:
        def work(key: str) -> None:
            connection = self._connect()
            self._run(connection, key, job)
            connection.close()

        threads.all_at_once(work, keys)

    def resume(self, key: str, job: Job) -> None:
        self.open()
        cursor = self._connection.cursor()
        cursor.execute(f"SELECT position FROM raw_run WHERE id={self._mark}", (key,))
        (position,) = cursor.fetchone()
        cursor.execute(f"SELECT body FROM raw_message WHERE run_id={self._mark} ORDER BY seq", (key,))
        history = [json.loads(body) if isinstance(body, str) else body for (body,) in cursor.fetchall()]
        self._go_on(cursor, key, job, history, position)

    def _run(self, connection: Any, key: str, job: Job) -> None:
        cursor, mark = connection.cursor(), self._mark
        opening = {"role": "user", "content": job.opening(key)}
        cursor.execute("BEGIN")
        cursor.execute(
            f"INSERT INTO raw_run VALUES ({mark},{mark},{mark},{mark})", (key, "running", 0, time.time())
        )
        cursor.execute(
            f"INSERT INTO raw_message VALUES ({mark},{mark},{mark})", (key, 0, json.dumps(opening))
        )
        cursor.execute("COMMIT")
        self._go_on(cursor, key, job, [opening], 0)

    def _go_on(self, cursor: Any, key: str, job: Job, history: list[Any], position: int) -> None:
        for i in range(position, job.n):
            workload.model_called(job, i, len(history))
            message = {"role": "assistant", "content": workload.blocks(job, i)}
            if i == job.n - 1:
                self._write(cursor, key, [(len(history), message)], i + 1, "done")
                history.append(message)
            else:
                self._take_turn(cursor, key, job, i, history, message)
        if len(history) != job.messages:
            raise workload.WrongRunError(f"The run ended with {len(history)} messages.")
        workload.check_history(job, history)

    def _take_turn(
        self, cursor: Any, key: str, job: Job, i: int, history: list[Any], message: dict[str, Any]
    ) -> None:
        place, results, unsaved = len(history), [], [(len(history), message)]
        if self._several:
            self._write(cursor, key, unsaved, i)
            unsaved = []
        for seq in job.seqs(i):
            content = workload.perform(seq, job.size)
            results.append({"type": "tool_result", "tool_use_id": f"call_{seq}", "content": content})
            # Several results of a turn are rows of their own.
            row = 1_000_000 + seq if len(job.tools) > 1 else place + 1
            unsaved.append((row, {"role": "user", "content": results[-1:]}))
            if self._several:
                booking = seq if job.shape == "atomic" else None
                self._write(cursor, key, unsaved, i + 1, booking=booking)
                unsaved = []
        if unsaved:
            self._write(cursor, key, unsaved, i + 1)
        history += [message, {"role": "user", "content": results}]

    def _write(
        self,
        cursor: Any,
        key: str,
        rows: list[tuple[int, dict[str, Any]]],
        position: int,
        status: str = "running",
        *,
        booking: int | None = None,
    ) -> None:
        """One commit."""
        mark, values = self._mark, [value for seq, row in rows for value in (key, seq, json.dumps(row))]
        update = f"UPDATE raw_run SET position={mark}, status={mark}, updated_at={mark} WHERE id={mark}"
        moved = [position, status, time.time(), key]
        if self._one_statement:
            marks = ",".join(["(%s,%s,%s::jsonb)"] * len(rows))
            cursor.execute(f"WITH m AS (INSERT INTO raw_message VALUES {marks}) {update}", [*values, *moved])
            return
        cursor.execute("BEGIN IMMEDIATE" if self._kind == "sqlite" else "BEGIN")
        marks = ",".join([f"({mark},{mark},{mark})"] * len(rows))
        cursor.execute(f"INSERT INTO raw_message VALUES {marks}", values)
        if booking is not None:
            cursor.execute(f"INSERT INTO raw_booking VALUES ({mark})", [booking])
        cursor.execute(update, moved)
        cursor.execute("COMMIT")
