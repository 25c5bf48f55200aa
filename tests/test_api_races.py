"""The same request twice at the same instant, over two connections: one run."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connections

from anvil_django import start_run, tasks
from anvil_django.models import Approval, Decision, Message, Run, Steering
from anvil_django.testing import ScriptedMessagesAPI, say, tool_call

from .rest import APPROVALS, RUNS, Client, client_of, person
from .world import registered_agent

pytestmark = pytest.mark.django_db(transaction=True)

ROUNDS = 8


@pytest.fixture(autouse=True)
def agent() -> Iterator[None]:
    with registered_agent():
        yield


def at_once(*requests: Callable[[], Any]) -> list[Any]:
    """The answers to requests that are sent at the same instant, each from a thread of its own."""
    barrier = threading.Barrier(len(requests))

    def send(request: Callable[[], Any]) -> Any:
        try:
            connections["default"].ensure_connection()
            barrier.wait(20)
            return request()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(requests)) as pool:
        return [future.result(60) for future in [pool.submit(send, request) for request in requests]]


def starter(client: Client, key: str, text: str = "Go.", **body: Any) -> Callable[[], Any]:
    headers = {"Idempotency-Key": key} if key else None
    return lambda: client.post(
        RUNS, {"agent": "worldly", "input": text, **body}, format="json", headers=headers
    )


def test_two_requests_with_one_key_at_once_start_one_run() -> None:
    carla = person("carla", "add_run")
    first, second = client_of(carla), client_of(carla)
    for number in range(ROUNDS):
        answers = at_once(starter(first, f"k{number}"), starter(second, f"k{number}"))

        assert sorted(answer.status_code for answer in answers) == [200, 201]
        assert len({answer.json()["run_id"] for answer in answers}) == 1
    assert Run.objects.count() == ROUNDS


def test_two_bodies_with_one_key_at_once_start_one_run() -> None:
    carla = person("carla", "add_run")
    first, second = client_of(carla), client_of(carla)
    for number in range(ROUNDS):
        answers = at_once(starter(first, f"k{number}", "One."), starter(second, f"k{number}", "Two."))

        assert sorted(answer.status_code for answer in answers) == [201, 422]
    assert Run.objects.count() == ROUNDS


def test_two_people_with_one_run_id_at_once_start_one_run() -> None:
    first, second = client_of(person("carla", "add_run")), client_of(person("otto", "add_run"))
    for number in range(ROUNDS):
        answers = at_once(starter(first, "", run_id=f"r{number}"), starter(second, "", run_id=f"r{number}"))

        assert sorted(answer.status_code for answer in answers) == [201, 409]
    assert Run.objects.count() == ROUNDS


@pytest.mark.parametrize("ended", [False, True], ids=["live run", "ended run"])
def test_two_messages_with_one_key_at_once_are_one(messages_api: ScriptedMessagesAPI, ended: bool) -> None:
    carla = person("carla", "add_run")
    start_run("worldly", "Go.", run_id="r", user=carla)
    first, second = client_of(carla), client_of(carla)

    def sender(client: Client, key: str) -> Callable[[], Any]:
        headers = {"Idempotency-Key": key}
        return lambda: client.post(f"{RUNS}r/messages/", {"content": key}, format="json", headers=headers)

    for number in range(ROUNDS):
        if ended:
            Run.objects.update(status="cancelled")
        answers = at_once(sender(first, f"k{number}"), sender(second, f"k{number}"))
        assert {answer.status_code for answer in answers} == {200 if ended else 202}
        sent = Message.objects.count() - 1 if ended else Steering.objects.count()
        assert sent == number + 1


def test_two_verdicts_at_once_are_one_decision(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say(tool_call("deploy", {"version": "v1"})))
    start_run("worldly", "Go.", run_id="r")
    tasks.advance("r")
    url = f"{APPROVALS}{Approval.objects.get().pk}/"
    rita, ruth = (client_of(person(name, "decide_approval")) for name in ("rita", "ruth"))

    answers = at_once(
        lambda: rita.post(f"{url}approve/"),
        lambda: ruth.post(f"{url}reject/", {"reason": "No."}, format="json"),
    )

    assert Counter(answer.status_code for answer in answers) == {200: 1, 409: 1}
    (refused,) = [answer.json() for answer in answers if answer.status_code == 409]
    assert refused["code"] == "already_decided"
    assert refused["current_status"] == Approval.objects.get().status
    assert Decision.objects.count() == 1


def test_a_retry_twice_at_once_is_one(messages_api: ScriptedMessagesAPI) -> None:
    carla = person("carla", "add_run")
    start_run("worldly", "Go.", run_id="r", user=carla)
    first, second = client_of(carla), client_of(carla)
    for _ in range(ROUNDS):
        Run.objects.update(status="failed", error_code="poison", error="It died.")
        answers = at_once(
            lambda: first.post(f"{RUNS}r/retry/"),
            lambda: second.post(f"{RUNS}r/retry/"),
        )
        assert sorted(answer.status_code for answer in answers) == [200, 409]
