"""What the database does for a page: how many statements, and on PostgreSQL how many rows they read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext


def statements(client: Client, url: str) -> list[str]:
    """The statements that a page takes.

    Raises:
        RuntimeError: There is no such page.
    """
    with CaptureQueriesContext(connection) as queries:
        response = client.get(url)
    if response.status_code != 200:
        raise RuntimeError(f"{url} was answered with {response.status_code}.")
    return [query["sql"] for query in queries]


def rows_read(sql: list[str]) -> int:
    """Rows that the most expensive step of any plan on our tables reads, by PostgreSQL's own count."""
    ours = (statement for statement in sql if statement.startswith("SELECT") and "anvil_django_" in statement)
    return max((_most(statement) for statement in ours), default=0)


def _most(statement: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}")
        (found,) = cursor.fetchone()
    plan = json.loads(found) if isinstance(found, str) else found
    return max(round(_rows(node)) for node in _nodes(plan[0]["Plan"]))


def _rows(node: dict[str, Any]) -> float:
    dropped = ("Rows Removed by Filter", "Rows Removed by Join Filter", "Rows Removed by Index Recheck")
    return (node["Actual Rows"] + sum(node.get(key, 0) for key in dropped)) * node["Actual Loops"]


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from _nodes(inner)
