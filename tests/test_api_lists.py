"""Lists of the REST API between two times and by several filters, page by page."""

from __future__ import annotations

from base64 import b64encode
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any
from urllib.parse import urlencode

import pytest

from anvil_django import start_run
from anvil_django.models import Run

from .rest import RUNS, client_of, errors, person
from .world import registered_agent

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def client(settings: Any) -> Any:
    """Of somebody who sees six runs: one an hour from noon on, but the last two have times in between."""
    settings.ANVIL = {**settings.ANVIL, "PAGE_SIZE": 2}
    carla = person("carla", "add_run")
    with registered_agent():
        for number, hour in enumerate((0, 1, 2, 3, 1.2, 1.5)):
            run = start_run("worldly", "Go.", run_id=f"r{number}", user=carla if number % 2 else None)
            Run.objects.filter(pk=run.pk).update(created_at=NOON + timedelta(hours=hour))
    return client_of(person("vera", "view_run"))


def found(client: Any, **query: Any) -> list[str]:
    pages, url = [], f"{RUNS}?{urlencode(query)}"
    while url:
        page = client.get(url).json()
        pages.append([run["run_id"] for run in page["results"]])
        url = page["next"]
    if len(pages) > 1:
        back = client.get(page["previous"]).json()
        assert [run["run_id"] for run in back["results"]] == pages[-2]
    return [run_id for shown in pages for run_id in shown]


def test_between_two_times_runs_are_in_the_order_of_time(client: Any) -> None:
    one, three = (NOON + timedelta(hours=hours) for hours in (1, 3))
    assert found(client, created_after=one) == ["r3", "r2", "r5", "r4", "r1"]
    assert found(client, created_before=three) == ["r2", "r5", "r4", "r1", "r0"]
    assert found(client, created_after=one, created_before=three, ordering="created") == [
        "r1",
        "r4",
        "r5",
        "r2",
    ]
    assert found(client, created_after=one, creator="carla") == ["r3", "r5", "r1"]


@pytest.mark.parametrize("ordering", ["created", "-created"])
def test_every_filter_and_two_of_them_give_the_same_runs_in_the_same_order(
    client: Any, ordering: str
) -> None:
    Run.objects.filter(run_id__in=["r1", "r2", "r5"]).update(status="done", stop_reason="end_turn")
    runs = list(Run.objects.order_by("id" if ordering == "created" else "-id").select_related("user"))
    filters = {
        "agent": {"worldly": runs, "nobody": []},
        "status": {word: [run for run in runs if run.status == word] for word in ("done", "queued")},
        "creator": {"carla": [run for run in runs if run.user], "nobody": [], "me": []},
        "stop_reason": {"end_turn": [run for run in runs if run.stop_reason]},
    }
    for (one, some), (other, others) in product(filters.items(), repeat=2):
        for (value, its), (second, their) in product(some.items(), others.items()):
            wanted = [run.run_id for run in runs if run in their and (one == other or run in its)]
            assert found(client, **{one: value, other: second, "ordering": ordering}) == wanted


@pytest.mark.parametrize(
    "position", ["1", "yesterday", "2026-13-01 00:00:00+00:00", "2026-03-01 12:00:00", "0001-01-01T00:00Z"]
)
def test_a_place_in_time_that_is_none_is_refused(client: Any, position: str) -> None:
    cursor = b64encode(f"p={position}".encode()).decode()
    answer = client.get(f"{RUNS}?{urlencode({'created_after': NOON, 'cursor': cursor})}")
    assert errors(answer) == {"cursor": "bad_cursor"}
