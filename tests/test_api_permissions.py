"""Who may call what: every endpoint, for everybody. What is refused has no effect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.core import serializers
from rest_framework.test import APIClient

from anvil_django.models import Approval, Decision, Message, Run, Steering, ToolCall
from anvil_django.testing import ScriptedMessagesAPI

from . import openapi
from .cases import ask, bank
from .rest import APPROVALS, RUNS, client_of, person

pytestmark = pytest.mark.django_db(transaction=True)

READ_RUN = ["run_retrieve", "run_messages", "run_calls", "run_checkpoint", "run_events"]
STEER_RUN = ["run_cancel", "run_pause", "run_resume", "run_retry", "run_say"]
READ_CASE = ["approval_list", "approval_retrieve"]
DECIDE = ["approve", "reject", "answer", "settle", "claim", "release"]
DECIDE_CASE = [f"approval_{verb}" for verb in DECIDE]
ANYBODY = ["agent_list", "run_list"]

# 2xx, or 4xx of the core where the state does not fit: the person may do it. 403: may see, not do. 404: may
# not even see.
OK, NO, NONE = "ok", 403, 404


def rights(
    *,
    read: Any,
    steer: Any,
    start: Any = NO,
    fork: Any = NO,
    agent: Any = NONE,
    see: Any = NO,
    decide: Any = NO,
) -> dict[str, Any]:
    """What becomes of each operation on a run of Carla's and a case of it."""
    return {
        **dict.fromkeys(ANYBODY, OK),
        **dict.fromkeys(READ_RUN, read),
        **dict.fromkeys(STEER_RUN, steer),
        "run_create": start,
        "run_fork": fork,
        "agent_retrieve": agent,
        **dict.fromkeys(READ_CASE, see),
        **dict.fromkeys(DECIDE_CASE, decide),
    }


STARTER = {"start": OK, "agent": OK}
PEOPLE: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "owner": (("add_run",), rights(read=OK, steer=OK, fork=OK, **STARTER)),
    "other starter": (("add_run",), rights(read=NONE, steer=NONE, fork=NONE, **STARTER)),
    "nobody special": ((), rights(read=NONE, steer=NONE)),
    "onlooker": (("view_run",), rights(read=OK, steer=NO)),
    "onlooker who starts": (("view_run", "add_run"), rights(read=OK, steer=NO, fork=OK, **STARTER)),
    "operator": (("control_run",), rights(read=OK, steer=OK)),
    "onlooker of cases": (("view_approval",), rights(read=NONE, steer=NONE, see=OK)),
    "reviewer": (("decide_approval",), rights(read=NONE, steer=NONE, see=OK, decide=OK)),
    "superuser": ((), rights(read=OK, steer=OK, fork=OK, see=OK, decide=OK, **STARTER)),
}

BODIES: dict[str, dict[str, Any]] = {
    "run_create": {"agent": "teller", "input": "Hi."},
    "run_say": {"content": "Hi."},
    "run_fork": {"iteration": 0},
    "approval_reject": {"reason": "No."},
    "approval_answer": {"answer": "Yes."},
    "approval_settle": {"verdict": "unknown", "reason": "Nobody knows."},
}
OPERATIONS = {
    operation["operationId"].removeprefix("anvil_"): (method, path)
    for method, path, operation in openapi.operations()
}


@pytest.fixture(autouse=True)
def agents() -> Iterator[None]:
    with bank():
        yield


@pytest.fixture
def carla(messages_api: ScriptedMessagesAPI) -> Any:
    """Her run ``r1`` waits for a decision."""
    user = person("carla", "add_run")
    ask(messages_api, user=user)
    return user


def call(client: APIClient, operation: str) -> Any:
    method, path = OPERATIONS[operation]
    url = openapi.PREFIX + path.format(run_id="r1", id=Approval.objects.get().pk, name="teller")
    if method == "GET":
        return client.get(url)
    return client.post(url, BODIES.get(operation, {}), format="json")


def stored() -> str:
    """Everything that a request could have changed."""
    models = (Run, Message, ToolCall, Approval, Decision, Steering)
    return "".join(serializers.serialize("json", model.objects.order_by("pk")) for model in models)


@pytest.mark.parametrize("who", PEOPLE)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_everybody_may_do_what_they_may_and_nothing_else(carla: Any, who: str, operation: str) -> None:
    permissions, allowed = PEOPLE[who]
    user = carla if who == "owner" else person("somebody", *permissions)
    if who == "superuser":
        type(user).objects.filter(pk=user.pk).update(is_superuser=True)
    before, expected = stored(), allowed[operation]

    response = call(client_of(user), operation)

    if expected == OK:
        assert response.status_code not in {401, 403, 404, 405}, response.content
    else:
        assert response.status_code == expected, response.content
        assert response["Content-Type"] == "application/problem+json"
        assert stored() == before


@pytest.mark.parametrize("operation", OPERATIONS)
def test_nobody_does_anything_without_a_login(carla: Any, operation: str) -> None:
    before = stored()
    inactive = person("ida", "add_run", "view_run", "control_run", "decide_approval", "view_approval")
    client = client_of(inactive)
    type(inactive).objects.update(is_active=False)

    for anonymous in (APIClient(), client):
        response = call(anonymous, operation)
        assert response.status_code == 403
        assert response.json()["code"] == "not_authenticated"
    assert stored() == before


def test_the_table_names_every_operation() -> None:
    assert set(PEOPLE["owner"][1]) == set(OPERATIONS)


def test_the_owner_of_a_run_cannot_decide_it_even_with_the_permission(messages_api: Any) -> None:
    user = person("rita", "add_run", "decide_approval")
    ask(messages_api, user=user)
    before = stored()

    for verb in DECIDE:
        if verb == "release":  # Nobody claims it, so there is nothing to refuse.
            continue
        assert call(client_of(user), f"approval_{verb}").status_code in {403, 422}, verb
    assert stored() == before


def test_ids_of_others_in_bodies_lead_nowhere(carla: Any) -> None:
    otto = client_of(person("otto", "add_run"))
    before = stored()

    body = {"agent": "teller", "input": "Please do it. [r1]", "run_id": "r1"}
    assert otto.post(RUNS, body, format="json").status_code == 409
    assert otto.get(f"{APPROVALS}{Approval.objects.get().pk}/").status_code == 403
    assert stored() == before
