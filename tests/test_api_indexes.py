"""What lists cost in a large table: no page reads or sorts more than it shows (PostgreSQL's own plans)."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test.utils import CaptureQueriesContext

from anvil_django import start_run
from anvil_django.models import Run

from .rest import RUNS, Client, client_of, person
from .world import registered_agent

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(connection.vendor != "postgresql", reason="the plans of PostgreSQL"),
]

ROWS = 100_000


@pytest.fixture(autouse=True)
def many_runs() -> None:
    """A large table: half of it one agent's, one in a hundred suspended, 20 runs Carla's."""
    carla = person("carla", "add_run")
    with registered_agent():
        first = start_run("worldly", "Go.", run_id="first")
    columns = [field.column for field in Run._meta.concrete_fields if not field.primary_key]
    own = {
        "run_id": "'r' || n",
        "agent": "CASE WHEN n % 2 = 0 THEN 'worldly' ELSE 'other' END",
        "status": "CASE WHEN n % 100 = 0 THEN 'suspended' ELSE 'done' END",
        "stop_reason": "'end_turn'",
        "user_id": f"CASE WHEN n % 5000 = 0 THEN {carla.pk} END",
    }
    values = ", ".join(own.get(column, f'"{column}"') for column in columns)
    names = ", ".join(f'"{column}"' for column in columns)
    table = Run._meta.db_table
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({names}) SELECT {values} FROM {table}, generate_series(1, {ROWS}) n "
            f"WHERE id = {first.pk}"
        )
        cursor.execute(f"ANALYZE {table}")


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from nodes(inner)


def what_is_read(client: Client, query: str) -> int:
    """Rows that the most expensive step of the plan reads."""
    with CaptureQueriesContext(connection) as queries:
        assert client.get(f"{RUNS}?{query}").status_code == 200
    (statement,) = [q["sql"] for q in queries if f'FROM "{Run._meta.db_table}"' in q["sql"]]
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}")
        (found,) = cursor.fetchone()
    plan = json.loads(found) if isinstance(found, str) else found
    return max(
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        for node in nodes(plan[0]["Plan"])
    )


def test_a_page_of_runs_reads_little_more_than_it_shows() -> None:
    carla, vera = client_of(person_named("carla")), client_of(person("vera", "view_run"))
    middle = vera.get(f"{RUNS}?cursor={cursor_at(Run.objects.order_by('id')[ROWS // 2].pk)}").json()
    assert len(middle["results"]) == 50

    asked = [
        (vera, ""),
        (vera, "ordering=created"),
        (vera, middle["next"].partition("?")[2]),
        (vera, "status=suspended"),
        (vera, "agent=other"),
        (vera, "agent=other&status=suspended"),  # There is none.
        (vera, "creator=carla"),
        (carla, ""),
        (carla, "status=suspended"),
        (carla, "status=done"),
    ]
    read = {query: what_is_read(client, query) for client, query in asked}
    assert max(read.values()) < ROWS / 10, read


def person_named(username: str) -> Any:
    return get_user_model().objects.get(username=username)


def cursor_at(pk: int) -> str:
    return b64encode(f"p={pk}".encode()).decode()
