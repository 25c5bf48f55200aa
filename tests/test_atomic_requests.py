"""The REST API on a site whose requests are transactions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection
from django_q.models import OrmQ

from anvil_django import tasks
from anvil_django.models import Run
from anvil_django.testing import ScriptedMessagesAPI, say

from .rest import RUNS, client_of, person, problem
from .world import registered_agent

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    with registered_agent():
        yield


def test_runs_are_started_steered_and_watched_as_elsewhere(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say("Hello."))
    client = client_of(person("carla", "add_run"))

    started = client.post(RUNS, {"agent": "worldly", "input": "Go.", "run_id": "r1"}, format="json")
    assert (started.status_code, OrmQ.objects.count()) == (201, 1)
    assert tasks.advance("r1") == "done"
    refused = client.post(f"{RUNS}r1/fork/", {"iteration": 7, "message": "On."}, format="json")
    problem(refused, 422, "bad_input")
    assert (Run.objects.count(), OrmQ.objects.count()) == (1, 1)
    stream = client.get(f"{RUNS}r1/events/", headers={"Accept": "text/event-stream"})
    assert "run_ended" in b"".join(stream.streaming_content).decode()
