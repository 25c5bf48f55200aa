"""Scratch databases: a template with every contestant's tables, and a fresh copy for each repetition."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.settings import database as test_database

KINDS = ("sqlite", "postgres", "mariadb")
DRIVERS = {"sqlite": "sqlite3", "postgres": "psycopg", "mariadb": "MySQLdb"}


def django_database(kind: str, name: str) -> dict[str, Any]:
    """What ``DATABASES["default"]`` is for that scratch database, on the servers of the tests."""
    known = {**test_database(kind), "NAME": name}
    if kind == "sqlite":
        # Every commit reaches the disk, as on the other databases.
        known["OPTIONS"] = {
            "init_command": "PRAGMA journal_mode=WAL;PRAGMA synchronous=FULL;",
            "transaction_mode": "IMMEDIATE",
            "timeout": 30,
        }
    return known


def connect(kind: str, name: str) -> Any:
    """A connection of the plain driver, in autocommit."""
    if kind == "sqlite":
        import sqlite3

        connection = sqlite3.connect(name, isolation_level=None, timeout=30)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        return connection
    known = test_database(kind)
    if kind == "postgres":
        import psycopg

        return psycopg.connect(
            host=known["HOST"],
            port=known["PORT"] or 5432,
            user=known["USER"],
            password=known["PASSWORD"],
            dbname=name,
            autocommit=True,
        )
    import MySQLdb

    return MySQLdb.connect(
        host=known["HOST"],
        port=int(known["PORT"] or 3306),
        user=known["USER"],
        password=known["PASSWORD"],
        database=name,
        charset="utf8mb4",
        autocommit=True,
    )


def missing(kind: str) -> str:
    """Why databases of that kind cannot be had here; empty when they can."""
    try:
        connect(kind, {"sqlite": ":memory:", "postgres": "postgres", "mariadb": "mysql"}[kind]).close()
    except Exception as exc:  # noqa: BLE001 (no driver, no server, no right: all the same to the caller)
        return " ".join(str(exc).split())[:200] or type(exc).__name__
    return ""


class Scratch:
    """The scratch databases of one kind; ``drop_all`` leaves nothing behind.

    Args:
        kind: One of ``KINDS``.
        folder: Where SQLite's files are; on the disk that is to be measured.
    """

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self._folder = folder
        self._number = 0
        self._names: set[str] = set()
        self.template = self._name("template")

    def _name(self, what: str) -> str:
        if self.kind == "sqlite":
            return str(self._folder / f"{what}.db")
        return f"anvil_bench_{os.getpid()}_{what}"

    def create_template(self) -> str:
        """An empty database whose tables are then made by the caller."""
        self._names.add(self.template)
        if self.kind != "sqlite":
            self._admin(f"CREATE DATABASE {self.template}")
        return self.template

    def fresh(self) -> str:
        """A new copy of the template."""
        self._number += 1
        name = self._name(f"r{self._number}")
        self._names.add(name)
        if self.kind == "sqlite":
            shutil.copy(self.template, name)
            os.sync()
        elif self.kind == "postgres":
            self._admin(f"CREATE DATABASE {name} TEMPLATE {self.template}")
            self._admin("CHECKPOINT")
        else:
            self._copy_on_mariadb(name)
        return name

    def _copy_on_mariadb(self, name: str) -> None:
        self._admin(f"CREATE DATABASE {name}")
        source, target = connect("mariadb", self.template).cursor(), connect("mariadb", name).cursor()
        target.execute("SET foreign_key_checks=0")
        source.execute("SHOW TABLES")
        for (table,) in source.fetchall():
            source.execute(f"SHOW CREATE TABLE `{table}`")
            target.execute(source.fetchone()[1])
            target.execute(f"INSERT INTO `{table}` SELECT * FROM `{self.template}`.`{table}`")
        for cursor in (source, target):
            cursor.connection.close()

    def drop(self, name: str) -> None:
        """Drop one of them."""
        self._names.discard(name)
        if self.kind == "sqlite":
            for suffix in ("", "-wal", "-shm", "-journal"):
                Path(name + suffix).unlink(missing_ok=True)
        else:
            force = " WITH (FORCE)" if self.kind == "postgres" else ""
            self._admin(f"DROP DATABASE IF EXISTS {name}{force}")

    def drop_all(self) -> None:
        for name in sorted(self._names):
            with suppress(Exception):
                self.drop(name)

    def _admin(self, statement: str) -> None:
        connection = connect(self.kind, "postgres" if self.kind == "postgres" else "mysql")
        try:
            connection.cursor().execute(statement)
        finally:
            connection.close()


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder on the disk, not in memory where commits would cost nothing."""
    parent = "/var/tmp" if os.path.isdir("/var/tmp") else None
    with tempfile.TemporaryDirectory(prefix="anvil-bench-", dir=parent) as folder:
        yield Path(folder)


def stored_bytes(kind: str, name: str) -> int | None:
    """Bytes of a database on the disk, its log folded in; None where the server will not say."""
    if kind == "mariadb":
        return None  # Its files grow by megabytes at a time.
    connection = connect(kind, name)
    try:
        if kind == "postgres":
            return int(connection.execute("SELECT pg_database_size(current_database())").fetchone()[0])
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return os.path.getsize(name)
    finally:
        connection.close()


def server_version(kind: str) -> str:
    """The database's own word for its version."""
    if kind == "sqlite":
        import sqlite3

        return sqlite3.sqlite_version
    connection = connect(kind, "postgres" if kind == "postgres" else "mysql")
    try:
        cursor = connection.cursor()
        cursor.execute("SHOW server_version" if kind == "postgres" else "SELECT version()")
        return str(cursor.fetchone()[0]).split(" ")[0]
    finally:
        connection.close()
