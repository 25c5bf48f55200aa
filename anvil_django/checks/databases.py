"""That the databases of the runs can be written by several workers at once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, Tags, register
from django.db import DatabaseError, connections, router

from ..conf import get_settings
from .asking import has_settings, may_ask
from .queue import effective_cluster

MOST_SQLITE_WORKERS = 4
"""More of them mostly wait for each other: SQLite has one writer at a time."""


@register(Tags.database)
def check_sqlite(databases: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """SQLite begins its transactions as writers, and has few workers."""
    from ..models import Run

    alias = router.db_for_write(Run)
    if alias not in (databases or []) or connections[alias].vendor != "sqlite":
        return []
    found: list[CheckMessage] = []
    if connections[alias].settings_dict.get("OPTIONS", {}).get("transaction_mode", "").upper() != "IMMEDIATE":
        found.append(
            checks.Warning(
                f'Database {alias!r} is SQLite without transaction_mode "IMMEDIATE": several workers '
                'will meet "database is locked".',
                hint='Set OPTIONS = {"transaction_mode": "IMMEDIATE", "timeout": 20, "init_command": '
                '"PRAGMA journal_mode=WAL;"}.',
                id="anvil_django.W001",
            )
        )
    workers = effective_cluster().get("workers") or os.cpu_count() or 1 if has_settings() else 1
    if workers > MOST_SQLITE_WORKERS:
        found.append(
            checks.Warning(
                f"Database {alias!r} is SQLite, and a cluster has {workers} workers: they will mostly wait "
                "for each other.",
                hint=f"Set Q_CLUSTER['workers'] to {MOST_SQLITE_WORKERS} or fewer, or use PostgreSQL.",
                id="anvil_django.W008",
            )
        )
    return found


@register(Tags.database)
def check_isolation(databases: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Transactions see what others have committed since they began."""
    from ..models import Run

    if not may_ask(databases, Run):
        return []
    alias = router.db_for_write(Run)
    try:
        level = _isolation(connections[alias])
    except DatabaseError:
        return []
    if level not in {"REPEATABLE READ", "SERIALIZABLE"}:
        return []
    return [
        checks.Warning(
            f"Database {alias!r} works at {level}: an atomic tool that takes longer than "
            f"ANVIL['HEARTBEAT_SECONDS'] ({get_settings().heartbeat_seconds:g}) cannot be committed.",
            hint="Leave the isolation level as Django sets it, READ COMMITTED: take isolation_level out of "
            "OPTIONS, and on PostgreSQL default_transaction_isolation out of the server's settings.",
            id="anvil_django.W015",
        )
    ]


def _isolation(connection: Any) -> str:
    # The server is asked: the level may come from OPTIONS, from the role, or from the server's own settings.
    if connection.vendor == "postgresql":
        sql = "SHOW transaction_isolation"
    elif connection.vendor == "mysql":
        sql = f"SELECT @@SESSION.{'tx' if connection.mysql_is_mariadb else 'transaction'}_isolation"
    else:
        return ""
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return str(cursor.fetchone()[0]).upper().replace("-", " ")


@register(Tags.compatibility)
def check_pool(**kwargs: Any) -> list[CheckMessage]:
    """The workers, which are forked, do not share the sockets of a pool."""
    from ..models import Run

    alias = router.db_for_write(Run)
    found = connections[alias]
    if found.vendor != "postgresql" or not found.settings_dict.get("OPTIONS", {}).get("pool"):
        return []
    return [
        checks.Warning(
            f"Database {alias!r} has OPTIONS['pool']: workers are forked and would share its sockets, and "
            "read each other's rows.",
            hint="Take it out of the settings of the workers; CONN_MAX_AGE = 600 with CONN_HEALTH_CHECKS "
            "does as well there. Other processes may have it.",
            id="anvil_django.W018",
        )
    ]


@register(Tags.compatibility)
def check_routers(**kwargs: Any) -> list[CheckMessage]:
    """A step of a run is one transaction, so all that it writes is in one database."""
    homes: dict[str, list[str]] = {}
    for model in [
        *apps.get_app_config("anvil_django").get_models(),
        apps.get_model(settings.AUTH_USER_MODEL),
    ]:
        homes.setdefault(router.db_for_write(model), []).append(model._meta.label)
    found: list[CheckMessage] = []
    if len(homes) > 1:
        found.append(
            Error(
                f"DATABASE_ROUTERS keeps what belongs together apart: {'; '.join(_listed(homes))}.",
                hint="Route all models of anvil_django, and those of the users, to one database.",
                id="anvil_django.E010",
            )
        )
    from ..models import Run

    reads, writes = router.db_for_read(Run), router.db_for_write(Run)
    if reads != writes:
        found.append(
            checks.Warning(
                f"DATABASE_ROUTERS has runs read from {reads!r} and written to {writes!r}: what was just "
                "done may not be seen, and is said to have failed.",
                hint="Read the models of anvil_django from the database that they are written to.",
                id="anvil_django.W016",
            )
        )
    return found


def _listed(homes: dict[str, list[str]]) -> Iterator[str]:
    for alias, labels in homes.items():
        yield f"{', '.join(labels)} in {alias!r}"
