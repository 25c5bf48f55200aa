"""Statements and commits of a process, as they go to the database.

SQLite tells each statement to a callback. On PostgreSQL libpq itself writes down every message it sends, so
that BEGIN, COMMIT and pings are counted too, whoever sends them. MariaDB keeps the counts of a session.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter as Tally
from pathlib import Path
from typing import Any

WRITES = ("INSERT", "UPDATE", "DELETE", "WITH", "REPLACE")
_SENT = re.compile(r'^F\t\d+\t(Query|Parse|Bind)\t "(.*)', re.MULTILINE)


class Counter:
    """Counts what all connections of a contestant send between ``start`` and ``stop``."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._said: list[str] = []
        self._connections: list[Any] = []
        self._traces: list[Any] = []
        self._before: dict[str, int] = {}
        self._prepared: dict[str, str] = {}

    def watch_django(self) -> None:
        """Watch every connection that Django opens."""
        from django.db.backends.signals import connection_created

        connection_created.connect(self._opened, weak=False)

    def _opened(self, *, connection: Any, **kwargs: Any) -> None:
        self.watch(connection.connection)

    def watch(self, connection: Any) -> None:
        """Watch a connection of the plain driver."""
        self._connections.append(connection)
        if self._kind == "sqlite":
            connection.set_trace_callback(self._said.append)
        elif self._kind == "postgres":
            self._trace(connection)

    def _trace(self, connection: Any) -> None:
        from psycopg import pq

        trace = tempfile.NamedTemporaryFile(prefix="anvil-bench-trace-")  # noqa: SIM115 (closed by the end)
        connection.pgconn.trace(trace.fileno())
        connection.pgconn.set_trace_flags(pq.Trace.SUPPRESS_TIMESTAMPS)
        self._traces.append(trace)

    def start(self) -> None:
        """Count from here."""
        self._said.clear()
        self._before = self._session_counts()
        self._of_postgres()  # Statements that are prepared by now are only named from here on.
        self._traces.clear()
        for connection in self._open_postgres():
            self._trace(connection)

    def _open_postgres(self) -> list[Any]:
        return [c for c in self._connections if self._kind == "postgres" and not c.closed]

    def stop(self) -> dict[str, Any]:
        """What was sent since: ``statements``, ``commits`` (those that made something durable), ``words``."""
        if self._kind == "mariadb":
            return self._of_mariadb()
        said = list(self._said) if self._kind == "sqlite" else self._of_postgres()
        words = [first_word(text) for text in said]
        return {"statements": len(words), "commits": commits(words), "words": dict(Tally(words))}

    def _of_postgres(self) -> list[str]:
        for connection in self._open_postgres():
            connection.pgconn.untrace()  # It also writes out what is still buffered.
        traces = [Path(trace.name).read_text(errors="replace") for trace in self._traces]
        return [text for trace in traces for text in sent(trace, self._prepared)]

    def _of_mariadb(self) -> dict[str, Any]:
        after = self._session_counts()
        words = {key[4:].upper(): after[key] - self._before[key] for key in after if key.startswith("Com_")}
        words = {word: count for word, count in words.items() if count > 0 and word != "SHOW_STATUS"}
        # The question for the counts is one itself.
        statements = after["Questions"] - self._before["Questions"] - 1
        return {"statements": statements, "commits": words.get("COMMIT", 0), "words": words}

    def _session_counts(self) -> dict[str, int]:
        if self._kind != "mariadb":
            return {}
        cursor = self._connections[0].cursor()
        cursor.execute(
            "SHOW SESSION STATUS WHERE Variable_name LIKE 'Com\\_%' OR Variable_name = 'Questions'"
        )
        return {name: int(value) for name, value in cursor.fetchall()}


def sent(trace: str, prepared: dict[str, str]) -> list[str]:
    """The first line of each statement in a trace of libpq: simple queries, and executions of prepared ones.

    Args:
        trace: What libpq wrote.
        prepared: Statements by the names they were given; those of the trace are added.
    """
    found: list[str] = []
    for kind, rest in _SENT.findall(trace):
        if kind == "Query":
            found.append(rest.rstrip('"'))
        else:
            name, _, second = rest.partition('" "')
            if kind == "Parse":
                prepared[name] = second
            else:
                found.append(prepared[second.partition('"')[0]])
    return found


def per_iteration(few: dict[str, Any], many: dict[str, Any], iterations: int) -> dict[str, Any]:
    """What one iteration takes, by the counts of two runs of which one had so many iterations more."""
    kinds = sorted({*few["words"], *many["words"]})
    slopes = {word: (many["words"].get(word, 0) - few["words"].get(word, 0)) / iterations for word in kinds}
    return {
        "statements": (many["statements"] - few["statements"]) / iterations,
        "commits": (many["commits"] - few["commits"]) / iterations,
        "words": {word: slope for word, slope in slopes.items() if abs(slope) > 0.01},
    }


def first_word(text: str) -> str:
    """What kind of statement it is; PING for an empty one."""
    words = re.split(r"[\s;(\"]+", text.strip(), maxsplit=1)
    return words[0].upper() or "PING"


def commits(words: list[str]) -> int:
    """How many of these made something durable: transactions with a write in them, and writes outside one."""
    found, inside, wrote = 0, False, False
    for word in words:
        if word == "BEGIN":
            inside, wrote = True, False
        elif word in ("COMMIT", "END"):
            found += wrote
            inside = wrote = False
        elif word == "ROLLBACK":
            inside = wrote = False
        elif word in WRITES and inside:
            wrote = True
        elif word in WRITES:
            found += 1
    return found
