"""The OpenAPI document is the checked-in one, is valid, and is true of real answers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from anvil_django.models import Approval, Run
from anvil_django.states import ApprovalStatus, RunStatus
from anvil_django.testing import ScriptedMessagesAPI

from . import openapi
from .cases import ask, bank
from .rest import AGENTS, APPROVALS, RUNS, client_of, person


def test_the_document_is_the_one_that_is_checked_in() -> None:
    assert openapi.as_text(openapi.generate()) == openapi.DOCUMENT.read_text(), (
        "The API has changed: run `python -m tests.openapi` and look at the difference."
    )


def test_the_document_is_valid_in_the_older_version_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(openapi.SETTINGS, "OAS_VERSION", "3.0.3")

    openapi.generate()


def test_enums_have_names_of_their_own() -> None:
    schemas = openapi.generate()["components"]["schemas"]

    assert schemas["AnvilRunStatus"]["enum"] == [str(status) for status in RunStatus]
    assert schemas["AnvilApprovalStatus"]["enum"] == [str(status) for status in ApprovalStatus]
    assert all(name.startswith(("Anvil", "PaginatedAnvil")) for name in schemas)


def test_every_operation_describes_itself_and_its_problems() -> None:
    for _, _, operation in openapi.operations():
        assert operation["description"]
        assert {"401", "403", "406", "429"} <= set(operation["responses"])
        for status, answer in operation["responses"].items():
            if int(status) >= 400:
                (schema,) = [content["schema"] for content in answer["content"].values()]
                assert list(answer["content"]) == ["application/problem+json"]
                assert schema == {"$ref": "#/components/schemas/AnvilProblem"}


def test_the_key_and_the_stream_are_described() -> None:
    paths = openapi.generate()["paths"]
    create, events = paths["/v1/runs/"]["post"], paths["/v1/runs/{run_id}/events/"]["get"]

    assert "Idempotency-Key" in [parameter["name"] for parameter in create["parameters"]]
    assert "Last-Event-ID" in [parameter["name"] for parameter in events["parameters"]]
    assert set(events["responses"]["200"]["content"]) == {"application/json", "text/event-stream"}


@pytest.fixture
def agents() -> Iterator[None]:
    with bank():
        yield


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("agents")
def test_a_good_answer_of_every_operation_fits(messages_api: ScriptedMessagesAPI) -> None:
    carla, rita = person("carla", "add_run"), person("rita", "decide_approval", groups=("Tellers",))
    owner, reviewer = client_of(carla), client_of(rita)
    seen: set[tuple[str, int]] = set()

    def send(client: Any, method: str, url: str, **body: Any) -> None:
        response = client.generic(method, url) if method == "GET" else client.post(url, body, format="json")
        assert response.status_code < 300, response.content
        seen.add((client.operation, response.status_code))

    cases = {"approve": "deploy", "reject": "wire", "answer": "wire", "settle": "mail"}
    bodies = {"reject": {"reason": "No."}, "answer": {"answer": 1}}
    bodies["settle"] = {"verdict": "happened", "result": "sent"}
    for verb, tool in cases.items():
        case = ask(messages_api, tool, user=carla, run_id=f"r-{verb}")
        url = f"{APPROVALS}{case.pk}/"
        for read in (APPROVALS, url):
            send(reviewer, "GET", read)
        send(owner, "GET", f"{RUNS}r-{verb}/")
        send(owner, "POST", f"{RUNS}r-{verb}/messages/", content="And hurry.")
        send(reviewer, "POST", f"{url}claim/")
        send(reviewer, "POST", f"{url}release/")
        send(reviewer, "POST", f"{url}{verb}/", **bodies.get(verb, {}))
        for part in ("messages", "calls", "checkpoint", "events"):
            send(owner, "GET", f"{RUNS}r-{verb}/{part}/")
    for url in (AGENTS, f"{AGENTS}teller/", RUNS):
        send(owner, "GET", url)
    for _ in range(2):
        send(owner, "POST", RUNS, agent="teller", input="Hi.", run_id="r")
    for verb in ("pause", "resume", "cancel"):
        send(owner, "POST", f"{RUNS}r/{verb}/")
    send(owner, "POST", f"{RUNS}r/fork/", iteration=0)
    send(owner, "POST", f"{RUNS}r/messages/", content="Go on.")
    Run.objects.filter(run_id="r").update(status="failed", error_code="poison", error="It died.")
    send(owner, "POST", f"{RUNS}r/retry/")
    assert Approval.objects.exists()

    good = {
        (operation["operationId"], int(status))
        for _, _, operation in openapi.operations()
        for status in operation["responses"]
        if int(status) < 300
    }
    assert seen == good - {("anvil_run_events", 204)}, "the 204 is that of a stream: see test_api_events"


WITHOUT = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "drf_spectacular":
            raise ModuleNotFoundError(name, name=name)
import importlib.util
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *a: None if name == "drf_spectacular" else find(name, *a)
sys.meta_path.insert(0, Blocked())
import django
django.setup()
from django.urls import resolve
from anvil_django.api.schema import VIEW_SCHEMA
assert VIEW_SCHEMA is None
match = resolve("/api/agents/v1/runs/")
assert match.func.cls.__name__ == "RunViewSet"
from rest_framework.test import APIRequestFactory
response = match.func(APIRequestFactory().get("/api/agents/v1/runs/"))
assert response.status_code == 403, response.status_code
assert not [name for name in sys.modules if name.startswith("drf_spectacular")]
"""


def test_the_api_works_without_drf_spectacular() -> None:
    command = [sys.executable, "-c", WITHOUT]
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    root = openapi.DOCUMENT.parents[1]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=root, env=environment)

    assert result.returncode == 0, result.stderr
