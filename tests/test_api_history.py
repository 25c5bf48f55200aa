"""Messages, tool calls and checkpoints over REST; further messages, retries and forks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from anvil_django import AgentCheckpoint, start_run, tasks
from anvil_django.models import Run, Steering
from anvil_django.stores import DjangoStateStore
from anvil_django.testing import ScriptedMessagesAPI, pause, say, tool_call

from .rest import RUNS, Client, client_of, errors, person, problem
from .world import registered_agent

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def agent() -> Iterator[None]:
    with registered_agent():
        yield


@pytest.fixture
def carla() -> Any:
    return person("carla", "add_run")


@pytest.fixture
def owner(carla: Any) -> Client:
    return client_of(carla)


def finished(api: ScriptedMessagesAPI, user: Any, *turns: Any) -> None:
    """A run ``r`` that has ended."""
    api.script(*turns)
    start_run("worldly", "Go.", user=user, run_id="r")
    assert tasks.advance("r") == "done"


TURNS = (
    say("Looking.", tool_call("look", {"thing": "a"}), tool_call("mail", {"to": "ann"})),
    say(tool_call("broken", {"why": "rain"})),
    say("Done."),
)


def post(client: Client, verb: str, **body: Any) -> Any:
    return client.post(f"{RUNS}r/{verb}/", body, format="json")


# Messages.


@pytest.mark.parametrize("limit", [1, 2, 3, 50])
def test_messages_are_what_was_sent_in_pages_of_any_size(
    messages_api: ScriptedMessagesAPI, carla: Any, owner: Client, limit: int
) -> None:
    finished(messages_api, carla, *TURNS)
    found, url = [], f"{RUNS}r/messages/?limit={limit}"
    while url:
        page = owner.get(url).json()
        found += page["results"]
        url = page["next"]

    checkpoint = DjangoStateStore().load("r")
    assert checkpoint is not None
    assert [{"role": m["role"], "content": m["content"]} for m in found] == checkpoint.messages
    assert [m["seq"] for m in found] == [0, 1, 2, 3, 4, 5]
    assert [m["composed"] for m in found] == [False, False, True, False, True, False]
    assert found[1]["stop_reason"] == "tool_use"
    assert found[1]["usage"]["output_tokens"] > 0
    assert float(found[1]["cost_usd"]) > 0
    assert all(m["created_at"] for m in found)


@pytest.mark.parametrize("after", [-1, 0, 1, 2, 3, 4])
def test_results_of_a_paused_turn_are_composed_wherever_a_page_begins(
    messages_api: ScriptedMessagesAPI, carla: Any, owner: Client, after: int
) -> None:
    finished(messages_api, carla, pause("Hm."), say(tool_call("look", {"thing": "a"})), say("Done."))

    found = owner.get(f"{RUNS}r/messages/?after={after}").json()["results"]

    checkpoint = DjangoStateStore().load("r")
    assert checkpoint is not None
    assert [m["content"] for m in found] == [m["content"] for m in checkpoint.messages[after + 1 :]]


@pytest.mark.parametrize("query", ["after=x", "after=-2", "limit=0", "limit=501", "after=9999999999"])
def test_a_place_that_is_none_is_refused(owner: Client, carla: Any, query: str) -> None:
    start_run("worldly", "Go.", user=carla, run_id="r")

    assert list(errors(owner.get(f"{RUNS}r/messages/?{query}"))) == [query.partition("=")[0]]


def test_messages_beyond_the_end_are_none(owner: Client, carla: Any) -> None:
    start_run("worldly", "Go.", user=carla, run_id="r")

    assert owner.get(f"{RUNS}r/messages/?after=7").json() == {"next": None, "results": []}


# Calls.


def test_calls_say_what_became_of_them(messages_api: ScriptedMessagesAPI, carla: Any, owner: Client) -> None:
    finished(messages_api, carla, *TURNS)

    first, second, third = owner.get(f"{RUNS}r/calls/").json()["results"]

    assert (first["tool"], first["input"], first["status"]) == ("look", {"thing": "a"}, "done")
    assert (second["effect"], second["outcome"], second["attempts"]) == ("external", "returned", 1)
    assert second["result"] == "sent to ann"
    assert (third["outcome"], third["is_error"]) == ("failed", True)


def test_a_call_that_waits_names_its_approvals(
    messages_api: ScriptedMessagesAPI, carla: Any, owner: Client
) -> None:
    messages_api.script(say(tool_call("deploy", {"version": "v1"})))
    start_run("worldly", "Go.", user=carla, run_id="r")
    tasks.advance("r")

    (call,) = owner.get(f"{RUNS}r/calls/").json()["results"]

    assert (call["status"], call["outcome"], call["result"]) == ("waiting", None, None)
    assert call["approvals"] == [owner.get(f"{RUNS}r/").json()["pending_approvals"][0]["id"]]


def statements(client: Client, url: str) -> int:
    with CaptureQueriesContext(connection) as queries:
        assert client.get(url).status_code == 200
    return len(queries)


@pytest.mark.parametrize("part", ["messages", "calls", "events", "checkpoint"])
def test_a_long_history_takes_as_many_statements_as_a_short_one(
    messages_api: ScriptedMessagesAPI, carla: Any, owner: Client, part: str
) -> None:
    messages_api.script(say(tool_call("deploy", {"version": "v"})), match="short")
    messages_api.script(
        say(*[tool_call("look", {"thing": str(n)}) for n in range(5)]),
        say(*[tool_call("deploy", {"version": str(n)}) for n in range(5)]),
        match="long",
    )
    for name in ("short", "long"):
        start_run("worldly", name, user=carla, run_id=name)
        tasks.advance(name)

    short, long = (statements(owner, f"{RUNS}{name}/{part}/") for name in ("short", "long"))
    assert long == short


# The checkpoint.


def test_a_checkpoint_can_be_read_back(messages_api: ScriptedMessagesAPI, carla: Any) -> None:
    finished(messages_api, carla, *TURNS)

    body = client_of(person("vera", "view_run")).get(f"{RUNS}r/checkpoint/").json()

    checkpoint = DjangoStateStore().load("r")
    assert checkpoint is not None
    assert body == checkpoint.to_dict()
    assert AgentCheckpoint.from_dict(body).to_dict() == body
    assert body["prefix"]["system"]


def test_the_owner_does_not_see_the_sites_own_prompt(
    messages_api: ScriptedMessagesAPI, carla: Any, owner: Client
) -> None:
    finished(messages_api, carla, *TURNS)

    body = owner.get(f"{RUNS}r/checkpoint/").json()

    assert body["prefix"] == {}
    assert "Be good." not in str(body)
    assert len(body["messages"]) == 6


# Further messages.


def test_a_finished_run_goes_on_with_a_message(
    messages_api: ScriptedMessagesAPI, carla: Any, owner: Client
) -> None:
    finished(messages_api, carla, say("Hello."), say("Noon."))

    response = post(owner, "messages", content="What time is it?")

    assert (response.status_code, response.json()["status"]) == (200, "queued")
    assert tasks.advance("r") == "done"
    assert owner.get(f"{RUNS}r/").json()["final_text"] == "Noon."


def test_a_message_to_a_live_run_is_accepted_and_waits(
    messages_api: ScriptedMessagesAPI, carla: Any, owner: Client
) -> None:
    messages_api.script(say("Both."))
    start_run("worldly", "One.", user=carla, run_id="r")

    response = post(owner, "messages", content=[{"type": "text", "text": "Two."}])

    assert response.status_code == 202
    assert Steering.objects.get().sender == "carla"
    tasks.advance("r")
    assert [m["role"] for m in owner.get(f"{RUNS}r/messages/").json()["results"]] == [
        "user",
        "user",
        "assistant",
    ]


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ({}, {"content": "required"}),
        ({"content": 5}, {"content": "not_an_input"}),
        ({"content": None}, {"content": "null"}),
        ({"content": "Hi.", "sender": "root"}, {"sender": "unknown_field"}),
    ],
)
def test_a_message_that_is_none_is_refused(
    carla: Any, owner: Client, body: dict[str, Any], wrong: dict[str, str]
) -> None:
    start_run("worldly", "One.", user=carla, run_id="r")

    assert errors(post(owner, "messages", **body)) == wrong
    problem(post(owner, "messages", content=" "), 422, "bad_input")
    assert not Steering.objects.exists()


# Retry and fork.


def test_a_failed_run_is_retried_and_any_other_is_a_conflict(
    messages_api: ScriptedMessagesAPI, carla: Any, owner: Client
) -> None:
    messages_api.script(say("Hello."))
    start_run("worldly", "Go.", user=carla, run_id="r")
    refused = problem(post(owner, "retry"), 409, "illegal_transition")
    assert (refused["current_status"], refused["wanted_status"]) == ("queued", "queued")
    Run.objects.update(status="failed", error_code="poison", error="It died.")

    assert post(owner, "retry").json()["status"] == "queued"
    assert tasks.advance("r") == "done"


def test_a_fork_is_a_run_of_whoever_makes_it(
    messages_api: ScriptedMessagesAPI, carla: Any, owner: Client
) -> None:
    finished(messages_api, carla, *TURNS)
    vera = client_of(person("vera", "view_run", "add_run"))

    response = post(vera, "fork", iteration=1, run_id="f", metadata={"why": "again"})

    assert response.status_code == 201
    assert response["Location"] == f"http://testserver{RUNS}f/"
    assert (response.json()["started_by"], response.json()["metadata"]) == ("vera", {"why": "again"})
    assert len(vera.get(f"{RUNS}f/messages/").json()["results"]) == 3
    problem(owner.get(f"{RUNS}f/"), 404, "unknown_run")
    assert post(owner, "fork", message="Once more.").status_code == 201


def test_a_fork_that_cannot_be_is_refused(
    messages_api: ScriptedMessagesAPI, carla: Any, owner: Client
) -> None:
    finished(messages_api, carla, *TURNS)
    start_run("worldly", "Go.", user=carla, run_id="live")

    problem(post(owner, "fork"), 422, "bad_input")
    problem(post(owner, "fork", iteration=9, message="Hm?"), 422, "bad_input")
    problem(post(owner, "fork", iteration=0, run_id="r"), 409, "run_id_taken")
    problem(owner.post(f"{RUNS}live/fork/", {}, format="json"), 409, "illegal_transition")
    assert errors(post(owner, "fork", iteration=-1)) == {"iteration": "min_value"}
    assert Run.objects.count() == 2


# The list.


def listed(client: Client, query: str) -> list[str]:
    return [run["run_id"] for run in client.get(f"{RUNS}?{query}").json()["results"]]


def test_runs_are_filtered_and_ordered(carla: Any, settings: Any) -> None:
    settings.ANVIL = {"PAGE_SIZE": 2}
    otto = person("otto", "add_run")
    for name, user in (("a", carla), ("b", otto), ("c", carla), ("d", None)):
        start_run("worldly", "Go.", user=user, run_id=name)
    Run.objects.filter(run_id="a").update(status="done", stop_reason="end_turn")
    Run.objects.filter(run_id="b").update(status="cancelled", stop_reason="cancelled")
    Run.objects.filter(run_id="a").update(created_at="2026-01-01T00:00:00Z")
    vera = client_of(person("vera", "view_run"))

    assert listed(vera, "status=done&status=cancelled") == ["b", "a"]
    assert listed(vera, "stop_reason=end_turn") == ["a"]
    assert listed(vera, "creator=carla") == ["c", "a"]
    assert listed(vera, "creator=nobody") == listed(vera, "creator=me") == []
    assert listed(client_of(otto), "creator=me") == ["b"]
    assert listed(client_of(otto), "creator=carla") == []
    assert listed(vera, "created_before=2026-02-01T00:00:00Z") == ["a"]
    assert listed(vera, "created_after=2026-02-01T00:00:00Z&ordering=created") == ["b", "c"]
    pages, url = [], f"{RUNS}?ordering=created"
    while url:
        page = vera.get(url).json()
        pages.append([run["run_id"] for run in page["results"]])
        url = page["next"]
    assert pages == [["a", "b"], ["c", "d"]]
    assert [run["run_id"] for run in vera.get(page["previous"]).json()["results"]] == ["a", "b"]


@pytest.mark.parametrize(
    ("query", "wrong"),
    [
        ("status=done&status=x", {"status": "invalid_choice"}),
        ("ordering=cost_usd", {"ordering": "invalid_choice"}),
        ("created_after=yesterday", {"created_after": "invalid"}),
        ("agent=%00", {"agent": "null_characters_not_allowed"}),
    ],
)
def test_a_wrong_filter_is_named(owner: Client, query: str, wrong: dict[str, str]) -> None:
    assert errors(owner.get(f"{RUNS}?{query}")) == wrong
