"""Agents over REST: which one may start, and what happens with those one may not."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from anvil_django import Agent, register, start_run, tasks
from anvil_django.agents import may_start, unregister
from anvil_django.errors import AgentDefinitionError
from anvil_django.models import Run
from anvil_django.testing import ScriptedMessagesAPI, say

from .rest import AGENTS, RUNS, client_of, person, problem

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def agents() -> Iterator[None]:
    model = "claude-sonnet-5-5"
    register(Agent(name="open", model=model, description="For all.", max_cost_usd=Decimal("0.50")))
    register(Agent(name="kept", model=model, permission="anvil_django.control_run"))
    yield
    unregister("open")
    unregister("kept")


def names(client: Any) -> list[str]:
    found = [agent["name"] for agent in client.get(AGENTS).json()["results"]]
    return [name for name in found if name in {"open", "kept"}]


def test_an_agent_says_what_it_is_for_and_what_a_run_may_use() -> None:
    body = client_of(person("carla", "add_run")).get(f"{AGENTS}open/").json()

    assert body == {
        "name": "open",
        "description": "For all.",
        "model": "claude-sonnet-5-5",
        "limits": {
            "max_iterations": 50,
            "max_cost_usd": "0.5",
            "max_tokens_total": None,
            "max_seconds": None,
            "max_pauses": 10,
            "on_limit": "stop",
        },
        "links": {"self": f"http://testserver{AGENTS}open/", "runs": f"http://testserver{RUNS}"},
    }


def test_people_see_the_agents_they_may_start() -> None:
    assert names(client_of(person("carla", "add_run"))) == ["open"]
    assert names(client_of(person("olga", "add_run", "control_run"))) == ["kept", "open"]
    assert names(client_of(person("vera", "view_run", "control_run"))) == []


def test_an_agent_one_may_not_start_is_as_if_it_were_none() -> None:
    client = client_of(person("carla", "add_run"))

    kept = problem(client.get(f"{AGENTS}kept/"), 404, "unknown_agent")["detail"]
    none = problem(client.get(f"{AGENTS}none/"), 404, "unknown_agent")["detail"]
    assert kept.replace("kept", "none") == none
    unknown = problem(client.post(RUNS, {"agent": "x", "input": "Hi."}, format="json"), 422, "unknown_agent")
    assert "open" in unknown["detail"]
    assert "kept" not in unknown["detail"]


def test_starting_takes_the_agents_own_permission() -> None:
    carla, olga = person("carla", "add_run"), person("olga", "add_run", "control_run")
    body = {"agent": "kept", "input": "Hi."}

    refused = problem(client_of(carla).post(RUNS, body, format="json"), 403, "agent_not_allowed")

    assert refused["detail"] == (
        "You need the permission anvil_django.control_run to start runs of the agent 'kept'."
    )
    assert not Run.objects.exists()
    assert client_of(olga).post(RUNS, body, format="json").status_code == 201


def test_forking_takes_it_too_and_code_decides_for_itself(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say("Hello."))
    carla = person("carla", "add_run")
    start_run("kept", "Hi.", user=carla, run_id="r")
    tasks.advance("r")

    refused = client_of(carla).post(f"{RUNS}r/fork/", {"iteration": 0}, format="json")

    problem(refused, 403, "agent_not_allowed")
    assert Run.objects.count() == 1


@pytest.mark.parametrize("permission", ["", "x", "a.b.c", "a b.c", 5])
def test_a_permission_that_is_none_is_refused(permission: Any) -> None:
    with pytest.raises(AgentDefinitionError, match=r"app_label\.codename"):
        Agent(name="x", model="m", permission=permission)


def test_superusers_may_start_everything() -> None:
    root = person("root")
    root.is_superuser = True

    assert may_start(root, Agent(name="x", model="m", permission="a.b"))
