"""The campaign's databases: made for it, watched and broken by it, and gone after it.

PostgreSQL is a server of the campaign's own where the binaries are found, so that it can be restarted; else a
database on the server that the tests' settings name, whose connections alone are cut.
"""

from __future__ import annotations

import os
import pwd
import random
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from .facts import Vendor

IDLE_LIMIT = 0.9
"""Seconds that a transaction may be open with nothing said: less than the slow tools and the stalled answers
take, more than a process waits for its turn on a busy machine."""
NAME = f"anvil_faults_{os.getpid()}"


class Database:
    """What all three have in common; the defaults are those of SQLite."""

    vendor: Vendor = "sqlite"
    can_restart = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "db.sqlite3"

    def environment(self) -> dict[str, str]:
        """What ``tests/settings.py`` needs to find it."""
        return {"ANVIL_TEST_DB": self.vendor, "ANVIL_TEST_DB_NAME": str(self.path)}

    def create(self) -> None:
        """Make it, empty."""

    def drop(self) -> None:
        """Remove it and all that was started for it."""

    def connect(self) -> Any:
        """A DB-API connection of the plain driver."""
        return sqlite3.connect(self.path, timeout=20)

    def cut_connections(self) -> int:
        """Break in on those who use it; how many connections were hit. SQLite: hold its lock for a second."""
        with closing(sqlite3.connect(self.path, timeout=20, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            time.sleep(1.0)
            connection.execute("ROLLBACK")
        return 1

    def restart(self) -> None:
        raise NotImplementedError

    def idle_transactions(self, connection: Any) -> list[tuple[Any, float, str]]:
        """Transactions open for ``IDLE_LIMIT`` with nothing said: (session, seconds, statement)."""
        return []


class Postgres(Database):
    """A server of its own if possible."""

    vendor: Vendor = "postgres"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.host = os.environ.get("ANVIL_TEST_POSTGRES_HOST", "127.0.0.1")
        self.port = os.environ.get("ANVIL_TEST_POSTGRES_PORT") or "5432"
        self.user = os.environ.get("ANVIL_TEST_POSTGRES_USER", "postgres")
        self.password = os.environ.get("ANVIL_TEST_POSTGRES_PASSWORD", "")
        self._binaries = _postgres_binaries()
        self.can_restart = self._binaries is not None
        self._data: Path | None = None
        self._restarts = 0

    def environment(self) -> dict[str, str]:
        names = {"HOST": self.host, "PORT": self.port, "USER": self.user, "PASSWORD": self.password}
        return {
            "ANVIL_TEST_DB": "postgres",
            "ANVIL_TEST_DB_NAME": NAME,
            **{f"ANVIL_TEST_POSTGRES_{name}": value for name, value in names.items()},
        }

    def create(self) -> None:
        if self._binaries is not None:
            self.host, self.port, self.user, self.password = "127.0.0.1", str(free_port()), "postgres", ""
            self._data = Path(tempfile.mkdtemp(prefix="anvil-faults-pg-"))
            if os.getuid() == 0:
                shutil.chown(self._data, "postgres")
            self._run("initdb", "-A", "trust", "-U", "postgres", "-D", str(self._data / "data"), "--no-sync")
            with open(self._data / "data" / "postgresql.conf", "a") as settings:
                settings.write(f"port = {self.port}\nlisten_addresses = '127.0.0.1'\n")
                settings.write(f"unix_socket_directories = '{self._data}'\n")
                # A crash of the server alone loses nothing of what the system has in its cache.
                settings.write("fsync = off\n")
            self._control("start")
        with self._admin() as connection:
            connection.execute(f'CREATE DATABASE "{NAME}"')

    def drop(self) -> None:
        if self._data is not None:
            with suppress(subprocess.CalledProcessError):
                self._control("stop", "-m", "immediate")
            shutil.rmtree(self._data, ignore_errors=True)
            return
        with self._admin() as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{NAME}" WITH (FORCE)')

    def connect(self) -> Any:
        return self._open(NAME, application_name="anvil-campaign")

    def cut_connections(self) -> int:
        with self._admin() as connection:
            rows = connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = %s AND application_name <> 'anvil-campaign'",
                [NAME],
            ).fetchall()
        return len(rows)

    def restart(self) -> None:
        """By turns as an operator does it, and as a crash of the server."""
        self._restarts += 1
        self._control("stop", "-m", "fast" if self._restarts % 2 else "immediate")
        time.sleep(0.5)
        self._control("start")

    def idle_transactions(self, connection: Any) -> list[tuple[Any, float, str]]:
        rows: list[tuple[Any, float, str]] = connection.execute(
            "SELECT pid, extract(epoch FROM clock_timestamp() - state_change)::float, query "
            "FROM pg_stat_activity WHERE datname = %s AND state LIKE 'idle in transaction%%' "
            "AND clock_timestamp() - state_change > make_interval(secs => %s)",
            [NAME, IDLE_LIMIT],
        ).fetchall()
        return rows

    def _open(self, name: str, **options: Any) -> Any:
        import psycopg

        return psycopg.connect(
            host=self.host,
            port=self.port,
            user=self.user,
            password=self.password,
            dbname=name,
            autocommit=True,
            **options,
        )

    def _admin(self) -> Any:
        return self._open("postgres")

    def _control(self, action: str, *more: str) -> None:
        assert self._data is not None
        log = ["-l", str(self._data / "log")] if action == "start" else []
        self._run("pg_ctl", action, "-w", "-D", str(self._data / "data"), *log, *more)

    def _run(self, name: str, *arguments: str) -> None:
        assert self._binaries is not None
        command = [str(self._binaries / name), *arguments]
        if os.getuid() == 0:
            command = ["runuser", "-u", "postgres", "--", *command]
        # Not a pipe: the server that pg_ctl leaves behind would keep it open.
        subprocess.run(
            command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, cwd="/", timeout=60
        )


class MariaDB(Database):
    """A database on the server that the tests' settings name."""

    vendor: Vendor = "mariadb"

    def environment(self) -> dict[str, str]:
        return {"ANVIL_TEST_DB": "mariadb", "ANVIL_TEST_DB_NAME": NAME}

    def create(self) -> None:
        self._execute(f"CREATE DATABASE `{NAME}` CHARACTER SET utf8mb4")

    def drop(self) -> None:
        self._execute(f"DROP DATABASE IF EXISTS `{NAME}`")

    def connect(self) -> Any:
        return self._open(NAME)

    def cut_connections(self) -> int:
        hit = 0
        with closing(self._open(None)) as connection:
            cursor = connection.cursor()
            cursor.execute("SELECT id FROM information_schema.processlist WHERE db = %s", [NAME])
            for (session,) in cursor.fetchall():
                with suppress(Exception):  # It may have gone meanwhile.
                    cursor.execute(f"KILL CONNECTION {int(session)}")
                    hit += 1
        return hit

    def idle_transactions(self, connection: Any) -> list[tuple[Any, float, str]]:
        cursor = connection.cursor()
        cursor.execute(
            "SELECT p.id, p.time_ms / 1000, t.trx_state FROM information_schema.innodb_trx t "
            "JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id "
            "WHERE p.db = %s AND p.command = 'Sleep' AND p.time_ms > %s",
            [NAME, IDLE_LIMIT * 1000],
        )
        return [(row[0], float(row[1]), str(row[2])) for row in cursor.fetchall()]

    def _open(self, name: str | None) -> Any:
        import MySQLdb

        def option(key: str, default: str) -> str:
            return os.environ.get(f"ANVIL_TEST_MARIADB_{key}") or default

        where = {"database": name} if name is not None else {}
        return MySQLdb.connect(
            host=option("HOST", "127.0.0.1"),
            port=int(option("PORT", "3306")),
            user=option("USER", "root"),
            password=option("PASSWORD", ""),
            charset="utf8mb4",
            autocommit=True,
            **where,
        )

    def _execute(self, statement: str) -> None:
        with closing(self._open(None)) as connection:
            connection.cursor().execute(statement)


DATABASES: dict[str, type[Database]] = {"sqlite": Database, "postgres": Postgres, "mariadb": MariaDB}


class Redis:
    """A Redis of the campaign's own, in memory only: a crash loses the queue."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "redis.sock"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with open(self._folder / "redis.log", "ab") as log:
            self._process = subprocess.Popen(
                [
                    "redis-server",
                    "--port",
                    "0",
                    "--unixsocket",
                    self.socket,
                    "--save",
                    "",
                    "--appendonly",
                    "no",
                ],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with suppress(OSError), socket.socket(socket.AF_UNIX) as client:
                client.connect(str(self.socket))
                return
            time.sleep(0.05)
        raise RuntimeError("redis-server did not start")

    def stop(self) -> None:
        """SIGKILL: nothing is saved."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on, and that no outgoing connection gets while it is free."""
    while True:
        port = random.randrange(20_000, 30_000)
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port


def _postgres_binaries() -> Path | None:
    """The folder of the newest server that this user can start."""
    if os.getuid() == 0:
        try:
            pwd.getpwnam("postgres")
        except KeyError:
            return None
        if shutil.which("runuser") is None:
            return None
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: path.parts[-3].zfill(4))
    return found[-1].parent if found else None
