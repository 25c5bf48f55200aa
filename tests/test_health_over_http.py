"""Whether runs get on, asked over HTTP: our own view, and the check for django-health-check."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
from django.db import OperationalError, connection
from django.test import Client
from django.urls import path
from django_q.models import Schedule
from health_check.views import HealthCheckView

from anvil_django import queue
from anvil_django.api.health import ready
from anvil_django.models import Cluster
from anvil_django.stores.database_time import database_now

pytestmark = pytest.mark.django_db(transaction=True)

urlpatterns = [
    path("health/agents/", ready),
    path("health/", HealthCheckView.as_view(checks=["anvil_django.health_check.Agents"])),
    path(
        "health/night/",
        HealthCheckView.as_view(checks=[("anvil_django.health_check.Agents", {"queue_name": "night"})]),
    ),
]

SILENT = "No cluster has given a sign of life for 180 s."


@pytest.fixture
def client(settings: Any) -> Client:
    """Whoever monitors the site; a schedule is there."""
    settings.ROOT_URLCONF = __name__
    queue.install_schedules("default")
    return Client()


def live(queue_name: str = "anvil-tests") -> None:
    """A cluster that was seen just now."""
    now = database_now()
    Cluster.objects.create(name=queue_name, queue=queue_name, workers=2, started_at=now, seen_at=now)


def test_all_is_well(client: Client) -> None:
    live()

    response = client.get("/health/agents/")

    assert (response.status_code, response.json()) == (200, {"well": True, "problems": []})
    assert "no-cache" in response["Cache-Control"]
    assert client.head("/health/agents/").status_code == 200
    assert client.post("/health/agents/").status_code == 405


def test_a_problem_is_a_503_with_a_sentence(client: Client) -> None:
    response = client.get("/health/agents/")

    assert (response.status_code, response.json()) == (503, {"well": False, "problems": [SILENT]})


def test_a_database_that_does_not_answer_is_a_problem_and_no_error(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    with mock.patch.object(connection, "cursor", side_effect=OperationalError("gone")):
        response = client.get("/health/agents/")

    assert (response.status_code, response.json()) == (
        503,
        {"well": False, "problems": ["The database does not answer: OperationalError."]},
    )


def test_the_check_for_django_health_check_says_the_same(client: Client) -> None:
    def asked(place: str) -> tuple[int, str]:
        response = client.get(place, headers={"Accept": "application/json"})
        (said,) = response.json().values()
        return response.status_code, said

    assert asked("/health/") == (500, f"Unavailable: {SILENT}")
    live()
    assert asked("/health/") == (200, "OK")
    assert asked("/health/night/") == (500, f"Unavailable: {SILENT}")
    live("night")
    assert asked("/health/night/") == (200, "OK")
    Schedule.objects.all().delete()
    assert asked("/health/") == (
        500,
        "Unavailable: The recovery sweep is not scheduled (anvil_django.recover); run migrate.",
    )
