"""The REST API over HTTP: every endpoint, every refusal, and who is said to have done what."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.http import JsonResponse
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from rest_framework.test import APIClient
from rest_framework.throttling import BaseThrottle

from anvil_django import Agent, register, start_run, tasks, tool
from anvil_django.agents import unregister
from anvil_django.api.runs import RunViewSet
from anvil_django.models import Approval, Run
from anvil_django.stores import DjangoStateStore
from anvil_django.testing import ScriptedMessagesAPI, say, tool_call

from .rest import APPROVALS, RUNS, client_of, errors, person, problem

HOSTILE = '<script>alert("1")</script> \u202e {{ 7*7 }} \'; DROP TABLE x; -- \U0001f600 {"a": 1}'
NOT_UNICODE = b'"\\ud800"'

pytestmark = pytest.mark.django_db(transaction=True)

deployed: list[str] = []


@tool(side_effect=True, requires_approval=True)
def deploy(version: str) -> str:
    """Deploy a version."""
    deployed.append(version)
    return f"deployed {version}"


@pytest.fixture(autouse=True)
def agent() -> Iterator[Agent]:
    deployed.clear()
    yield register(Agent(name="operator", model="claude-sonnet-5-5", tools=[deploy]))
    unregister("operator")


@pytest.fixture
def carla() -> Any:
    return person("carla", "add_run")


@pytest.fixture
def owner(carla: Any) -> APIClient:
    return client_of(carla)


@pytest.fixture
def reviewer() -> APIClient:
    return client_of(person("rita", "decide_approval"))


def start(client: APIClient, headers: dict[str, str] | None = None, **body: Any) -> Any:
    return client.post(
        RUNS, {"agent": "operator", "input": "Deploy 1.2.", **body}, format="json", headers=headers
    )


def waiting_run(api: ScriptedMessagesAPI, owner: APIClient, version: str = "1.2", **body: Any) -> str:
    """A run that waits for a decision on its one call."""
    api.script(say(tool_call("deploy", {"version": version})))
    run_id = start(owner, **body).json()["run_id"]
    assert tasks.advance(run_id) == "suspended"
    return str(run_id)


def go_on(api: ScriptedMessagesAPI, run_id: str) -> str:
    """Advance a decided run; the model then has the last word."""
    api.script(say("That is all."))
    return tasks.advance(run_id)


def asked(run_id: str) -> str:
    return f"{APPROVALS}{Approval.objects.get(run__run_id=run_id).pk}/"


# Starting.


def test_start_answers_201_with_the_run_and_where_to_find_it(owner: APIClient) -> None:
    response = start(owner, metadata={"ticket": 7}, run_id="order-1")

    assert response.status_code == 201
    assert response["Content-Type"] == "application/json"
    assert response["Location"] == f"http://testserver{RUNS}order-1/"
    body = response.json()
    stamps = {key: body.pop(key) for key in ("created_at", "updated_at")}
    assert body == {
        "run_id": "order-1",
        "agent": "operator",
        "status": "queued",
        "why": "Waits for a worker.",
        "stop_reason": "",
        "error_code": "",
        "error": "",
        "iterations": 0,
        "usage": {"input_tokens": 0, "output_tokens": 0, "cache_read_tokens": 0, "cache_write_tokens": 0},
        "cost_usd": "0",
        "metadata": {"ticket": 7},
        "started_by": "carla",
        "cancel_requested": False,
        "pause_requested": False,
        "requested_by": "",
        "next_attempt_at": None,
        "started_at": None,
        "finished_at": None,
        "final_text": "",
        "pending_approvals": [],
        "links": {
            "self": f"http://testserver{RUNS}order-1/",
            **{
                name: f"http://testserver{RUNS}order-1/{name}/"
                for name in (
                    *("messages", "calls", "checkpoint", "events"),
                    *("cancel", "pause", "resume", "retry", "fork"),
                )
            },
        },
    }
    assert stamps["created_at"].endswith("Z")


def test_a_started_run_belongs_to_the_authenticated_user(owner: APIClient, carla: Any) -> None:
    run = Run.objects.get(run_id=start(owner).json()["run_id"])

    assert run.user == carla
    assert run.user_name == "carla"


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ("Hi.", [{"role": "user", "content": "Hi."}]),
        ([{"type": "text", "text": "Hi."}], [{"role": "user", "content": [{"type": "text", "text": "Hi."}]}]),
        (
            [
                {"role": "user", "content": "Hi."},
                {"role": "assistant", "content": "Yes?"},
                {"role": "user", "content": "Go on."},
            ],
            [
                {"role": "user", "content": "Hi."},
                {"role": "assistant", "content": "Yes?"},
                {"role": "user", "content": "Go on."},
            ],
        ),
    ],
    ids=["text", "content blocks", "messages"],
)
def test_input_may_be_text_content_blocks_or_messages(owner: APIClient, given: Any, stored: Any) -> None:
    run_id = start(owner, input=given).json()["run_id"]

    checkpoint = DjangoStateStore().load(run_id)
    assert checkpoint is not None
    assert checkpoint.messages == stored


def test_an_unknown_agent_is_refused(owner: APIClient) -> None:
    body = problem(start(owner, agent="nobody"), 422, "unknown_agent")

    assert body["detail"].startswith("No agent named 'nobody' is registered")
    assert not Run.objects.exists()


@pytest.mark.parametrize("empty", ["", "  ", [], [{"role": "user", "content": ""}]])
def test_an_empty_input_is_refused(owner: APIClient, empty: Any) -> None:
    problem(start(owner, input=empty), 422, "bad_input")
    assert not Run.objects.exists()


@pytest.mark.parametrize("run_id", ["x" * 201, "a/b", "a b", "-a", "ä", "a\n"])
def test_an_over_long_or_unusable_run_id_is_refused(owner: APIClient, run_id: str) -> None:
    assert problem(start(owner, run_id=run_id), 422, "bad_input")["detail"].startswith("run_id ")
    assert not Run.objects.exists()


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ({}, {"agent": "required", "input": "required"}),
        ({"agent": "operator", "input": 5}, {"input": "not_an_input"}),
        ({"agent": "operator", "input": None}, {"input": "null"}),
        ({"agent": ["operator"], "input": "Hi."}, {"agent": "invalid"}),
        ({"agent": "operator\0", "input": "Hi."}, {"agent": "null_characters_not_allowed"}),
        ({"agent": "operator", "input": "Hi.", "metadata": [1]}, {"metadata": "not_a_dict"}),
        ({"agent": "operator", "input": "Hi.", "run_id": True}, {"run_id": "invalid"}),
        ([1], {"": "invalid"}),
    ],
)
def test_missing_fields_and_wrong_types_are_named(owner: APIClient, body: Any, wrong: dict[str, str]) -> None:
    assert errors(owner.post(RUNS, body, format="json")) == wrong
    assert not Run.objects.exists()


def test_unknown_fields_are_refused_and_named(owner: APIClient) -> None:
    assert errors(start(owner, user="admin", code=1, message=2)) == {
        "user": "unknown_field",
        "code": "unknown_field",
        "message": "unknown_field",
    }
    assert not Run.objects.exists()


@pytest.mark.parametrize(
    ("body", "content_type", "status", "code"),
    [
        (b"{", "application/json", 400, "parse_error"),
        (b'{"agent": "operator", "input": NaN}', "application/json", 400, "parse_error"),
        (b'{"input": "\xff"}', "application/json", 400, "parse_error"),
        (b"[" * 100_000, "application/json", 400, "parse_error"),
        (b"agent=operator&input=Hi", "application/x-www-form-urlencoded", 415, "unsupported_media_type"),
    ],
    ids=["cut off", "not a number", "not UTF-8", "deep", "form"],
)
def test_a_body_that_is_not_json_is_refused(
    owner: APIClient, body: bytes, content_type: str, status: int, code: str
) -> None:
    problem(owner.generic("POST", RUNS, body, content_type=content_type), status, code)
    assert not Run.objects.exists()


def test_starting_takes_the_permission() -> None:
    body = problem(start(client_of(person("paul"))), 403, "permission_denied")

    assert body["detail"] == "You need the permission anvil_django.add_run to start runs."
    assert not Run.objects.exists()


# The same request again.


def test_the_same_request_with_the_same_run_id_answers_200_with_that_run(owner: APIClient) -> None:
    first, second = start(owner, run_id="r1"), start(owner, run_id="r1")

    assert (first.status_code, second.status_code) == (201, 200)
    assert second.json() == owner.get(f"{RUNS}r1/").json()
    assert Run.objects.count() == 1


def test_a_run_id_of_another_request_is_a_conflict(owner: APIClient) -> None:
    start(owner, run_id="r1")

    body = problem(start(owner, run_id="r1", input="Deploy 6.6."), 409, "run_id_taken")

    assert body["run_id"] == "r1"
    assert Run.objects.count() == 1


def test_a_run_id_of_another_user_is_a_conflict_that_shows_nothing_of_the_run(owner: APIClient) -> None:
    start(owner, run_id="r1", metadata={"secret": "x"})
    other = client_of(person("otto", "add_run"))

    body = problem(start(other, run_id="r1", metadata={"secret": "x"}), 409, "run_id_taken")

    assert "metadata" not in body
    assert Run.objects.count() == 1


def test_the_same_idempotency_key_and_body_give_the_same_run(owner: APIClient) -> None:
    first = start(owner, {"Idempotency-Key": "k-1"})
    second = start(owner, {"Idempotency-Key": "k-1"})

    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["run_id"] == second.json()["run_id"]
    assert Run.objects.count() == 1


def test_an_idempotency_key_with_another_body_is_refused(owner: APIClient) -> None:
    start(owner, {"Idempotency-Key": "k-1"})

    problem(start(owner, {"Idempotency-Key": "k-1"}, input="Deploy 6.6."), 422, "idempotency_key_reused")
    problem(start(owner, {"Idempotency-Key": "k-1"}, run_id="mine"), 422, "idempotency_key_reused")
    assert Run.objects.count() == 1


def test_an_idempotency_key_is_one_users_own(owner: APIClient) -> None:
    other = client_of(person("otto", "add_run"))

    assert start(owner, {"Idempotency-Key": "k-1"}).status_code == 201
    assert start(other, {"Idempotency-Key": "k-1"}).status_code == 201
    assert Run.objects.count() == 2


@pytest.mark.parametrize("key", ["", "k" * 201])
def test_an_unusable_idempotency_key_is_refused(owner: APIClient, key: str) -> None:
    problem(start(owner, {"Idempotency-Key": key}), 422, "bad_input")


# Reading.


def test_a_finished_run_shows_its_text_usage_and_cost(
    messages_api: ScriptedMessagesAPI, owner: APIClient
) -> None:
    usage = {"input_tokens": 1000, "output_tokens": 200}
    messages_api.script(say("Nothing ", "to do.", usage=usage))
    run_id = start(owner).json()["run_id"]
    tasks.advance(run_id)

    body = owner.get(f"{RUNS}{run_id}/").json()

    assert body["status"] == "done"
    assert body["stop_reason"] == "end_turn"
    assert body["final_text"] == "Nothing to do."
    assert body["why"] == body["error"] == body["error_code"] == ""
    assert body["iterations"] == 1
    assert body["usage"]["input_tokens"] == 1000
    assert body["usage"]["output_tokens"] == 200
    assert "E" not in body["cost_usd"]
    assert float(body["cost_usd"]) > 0
    assert body["started_at"]
    assert body["finished_at"]
    assert "final_text" not in owner.get(RUNS).json()["results"][0]


def test_an_unknown_price_is_null_and_not_nothing(owner: APIClient) -> None:
    run_id = start(owner).json()["run_id"]
    Run.objects.update(cost_usd=None)

    assert owner.get(f"{RUNS}{run_id}/").json()["cost_usd"] is None


def test_a_waiting_run_says_for_what(messages_api: ScriptedMessagesAPI, owner: APIClient) -> None:
    run_id = waiting_run(messages_api, owner)

    body = owner.get(f"{RUNS}{run_id}/").json()

    assert body["status"] == "suspended"
    assert body["why"] == "Waits for a person's decision."
    (call,) = body["pending_approvals"]
    assert (call["tool"], call["kind"], call["status"]) == ("deploy", "tool", "pending")
    assert call["input"] == {"version": "1.2"}
    assert call["decisions"] == []


def test_a_failed_run_says_why(owner: APIClient) -> None:
    run_id = start(owner).json()["run_id"]
    Run.objects.update(status="failed", error_code="poison", error="The worker died.")

    body = owner.get(f"{RUNS}{run_id}/").json()

    assert (body["status"], body["error_code"]) == ("failed", "poison")
    assert body["error"] == body["why"] == "The worker died."


@pytest.mark.parametrize("run_id", ["a.json", "2026-01-01T00:00:00+01:00", "me@x.y", "k=v,w~z", "a" * 200])
def test_every_run_id_that_can_be_chosen_can_be_asked_for(owner: APIClient, run_id: str) -> None:
    link = start(owner, run_id=run_id).json()["links"]["self"]

    assert owner.get(link).json()["run_id"] == run_id
    assert owner.get(f"{RUNS}{run_id}/").json()["run_id"] == run_id


@pytest.mark.parametrize("run_id", ["nope", "a%00b", "%20", "a%0A", "x" * 5000])
@pytest.mark.parametrize("verb", ["", "cancel/", "pause/", "resume/"])
def test_an_unknown_run_is_404(owner: APIClient, run_id: str, verb: str) -> None:
    url = f"{RUNS}{run_id}/{verb}"

    problem(owner.post(url) if verb else owner.get(url), 404, "unknown_run")


def test_other_peoples_runs_are_404_and_not_listed(owner: APIClient) -> None:
    start(owner, run_id="r1")
    other = client_of(person("otto", "add_run"))

    mine = problem(owner.get(f"{RUNS}r2/"), 404, "unknown_run")["detail"]
    theirs = problem(other.get(f"{RUNS}r1/"), 404, "unknown_run")["detail"]
    for verb in ("cancel", "pause", "resume"):
        problem(other.post(f"{RUNS}r1/{verb}/"), 404, "unknown_run")

    # A run one may not see is told apart from none by nothing.
    assert theirs == mine.replace("r2", "r1")
    assert other.get(RUNS).json()["results"] == []
    assert Run.objects.get().status == "queued"


def test_people_who_may_view_runs_see_all_and_steer_none(owner: APIClient) -> None:
    start(owner, run_id="r1")
    onlooker = client_of(person("vera", "view_run"))

    assert onlooker.get(f"{RUNS}r1/").json()["started_by"] == "carla"
    assert [run["run_id"] for run in onlooker.get(RUNS).json()["results"]] == ["r1"]
    for verb in ("cancel", "pause", "resume"):
        problem(onlooker.post(f"{RUNS}r1/{verb}/"), 403, "permission_denied")
    run = Run.objects.get()
    assert (run.status, run.cancel_requested, run.pause_requested) == ("queued", False, False)


def test_the_list_is_newest_first_and_pages_by_cursor(owner: APIClient, settings: Any) -> None:
    settings.ANVIL = {"PAGE_SIZE": 2}
    for number in range(5):
        start(owner, run_id=f"r{number}")

    pages, url = [], RUNS
    while url:
        page = owner.get(url).json()
        pages.append([run["run_id"] for run in page["results"]])
        url = page["next"]

    assert pages == [["r4", "r3"], ["r2", "r1"], ["r0"]]
    assert [run["run_id"] for run in owner.get(page["previous"]).json()["results"]] == ["r2", "r1"]


def test_runs_are_filtered_by_status_and_agent(owner: APIClient) -> None:
    start(owner, run_id="r1")
    start(owner, run_id="r2")
    owner.post(f"{RUNS}r2/pause/")

    def found(query: str) -> list[str]:
        return [run["run_id"] for run in owner.get(f"{RUNS}?{query}").json()["results"]]

    assert found("status=paused") == ["r2"]
    assert found("status=queued&agent=operator") == ["r1"]
    assert found("agent=other") == []


@pytest.mark.parametrize(
    ("query", "wrong"),
    [
        ("status=sleeping", {"status": "invalid_choice"}),
        ("agent=%00", {"agent": "null_characters_not_allowed"}),
        ("cursor=zzz", {"cursor": "bad_cursor"}),
        ("cursor=" + base64.b64encode(b"p=abc").decode(), {"cursor": "bad_cursor"}),
        ("cursor=" + base64.b64encode(b"p=" + b"9" * 40).decode(), {"cursor": "bad_cursor"}),
        ("cursor=%C3%A4", {"cursor": "bad_cursor"}),
    ],
)
def test_a_wrong_query_is_named(owner: APIClient, query: str, wrong: dict[str, str]) -> None:
    assert errors(owner.get(f"{RUNS}?{query}")) == wrong


# Steering.


def test_pause_and_resume(owner: APIClient) -> None:
    start(owner, run_id="r1")

    paused = owner.post(f"{RUNS}r1/pause/").json()
    resumed = owner.post(f"{RUNS}r1/resume/").json()

    assert (paused["status"], paused["why"]) == ("paused", "Paused by an operator. Resume it to go on.")
    assert paused["requested_by"] == resumed["requested_by"] == "carla"
    assert (resumed["status"], resumed["why"]) == ("queued", "Waits for a worker.")


def test_cancel_ends_a_run_and_may_be_repeated(owner: APIClient) -> None:
    start(owner, run_id="r1")

    first, second = owner.post(f"{RUNS}r1/cancel/"), owner.post(f"{RUNS}r1/cancel/", {}, format="json")

    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json()["status"] == second.json()["status"] == "cancelled"
    assert first.json()["why"] == "Cancelled by a person."


def test_an_illegal_transition_is_a_conflict_that_says_where_the_run_stands(owner: APIClient) -> None:
    start(owner, run_id="r1")
    owner.post(f"{RUNS}r1/cancel/")

    body = problem(owner.post(f"{RUNS}r1/pause/"), 409, "illegal_transition")

    assert (body["run_id"], body["current_status"], body["wanted_status"]) == ("r1", "cancelled", "paused")


def test_a_run_that_waits_for_a_decision_cannot_be_resumed_past_it(
    messages_api: ScriptedMessagesAPI, owner: APIClient
) -> None:
    run_id = waiting_run(messages_api, owner)

    body = problem(owner.post(f"{RUNS}{run_id}/resume/"), 409, "illegal_transition")

    assert body["current_status"] == "suspended"
    assert "until a person decides" in body["detail"]
    assert deployed == []


def test_resuming_a_finished_run_does_nothing(messages_api: ScriptedMessagesAPI, owner: APIClient) -> None:
    messages_api.script(say("Done."))
    run_id = start(owner).json()["run_id"]
    tasks.advance(run_id)
    before = owner.get(f"{RUNS}{run_id}/").json()

    assert owner.post(f"{RUNS}{run_id}/resume/").json() == before


def test_people_who_may_control_runs_steer_those_of_others(owner: APIClient) -> None:
    start(owner, run_id="r1")
    operator = client_of(person("olga", "control_run"))

    assert operator.get(f"{RUNS}r1/").status_code == 200
    owner.post(f"{RUNS}r1/pause/")
    assert operator.post(f"{RUNS}r1/resume/").json()["requested_by"] == "olga"
    cancelled = operator.post(f"{RUNS}r1/cancel/").json()
    assert (cancelled["status"], cancelled["requested_by"]) == ("cancelled", "olga")


def test_steering_takes_no_fields(owner: APIClient) -> None:
    start(owner, run_id="r1")

    response = owner.post(f"{RUNS}r1/cancel/", {"force": True}, format="json")

    assert errors(response) == {"force": "unknown_field"}
    assert Run.objects.get().status == "queued"


# Deciding.


def test_an_approval_runs_the_call_and_names_the_authenticated_person(
    messages_api: ScriptedMessagesAPI, owner: APIClient, reviewer: APIClient
) -> None:
    run_id = waiting_run(messages_api, owner)
    (listed,) = reviewer.get(APPROVALS).json()["results"]
    assert reviewer.get(listed["links"]["self"]).json() == listed

    response = reviewer.post(listed["links"]["approve"], {"reason": "Tested."}, format="json")

    assert response.status_code == 200
    body = response.json()
    (decision,) = body.pop("decisions")
    assert decision.pop("created_at")
    assert decision == {
        "reviewer": "rita",
        "verdict": "approved",
        "approved": True,
        "reason": "Tested.",
        "edited_input": None,
        "answer": None,
        "channel": "api",
    }
    assert (body["status"], body["run_id"], body["input"]) == ("approved", run_id, {"version": "1.2"})
    assert Approval.objects.get().decisions.get().user.username == "rita"
    assert deployed == []
    assert go_on(messages_api, run_id) == "done"
    assert deployed == ["1.2"]
    assert owner.get(f"{RUNS}{run_id}/").json()["final_text"] == "That is all."


def test_an_approval_needs_no_body(
    messages_api: ScriptedMessagesAPI, owner: APIClient, reviewer: APIClient
) -> None:
    run_id = waiting_run(messages_api, owner)

    assert reviewer.post(f"{asked(run_id)}approve/").json()["status"] == "approved"


def test_a_rejection_does_not_run_the_call(
    messages_api: ScriptedMessagesAPI, owner: APIClient, reviewer: APIClient
) -> None:
    run_id = waiting_run(messages_api, owner)

    body = reviewer.post(f"{asked(run_id)}reject/", {"reason": "Not on a Friday."}, format="json").json()

    assert body["status"] == "rejected"
    assert body["decisions"][0]["reason"] == "Not on a Friday."
    assert go_on(messages_api, run_id) == "done"
    assert deployed == []


def test_a_call_may_be_approved_with_other_arguments(
    messages_api: ScriptedMessagesAPI, owner: APIClient, reviewer: APIClient
) -> None:
    run_id = waiting_run(messages_api, owner)

    body = reviewer.post(
        f"{asked(run_id)}approve/", {"edited_input": {"version": "1.1"}}, format="json"
    ).json()

    assert body["decisions"][0]["edited_input"] == {"version": "1.1"}
    go_on(messages_api, run_id)
    assert deployed == ["1.1"]


def test_a_call_may_be_answered_in_the_tools_place(
    messages_api: ScriptedMessagesAPI, owner: APIClient, reviewer: APIClient
) -> None:
    run_id = waiting_run(messages_api, owner)

    response = reviewer.post(f"{asked(run_id)}approve/", {"answer": "Did it myself."}, format="json")

    assert response.json()["decisions"][0]["answer"] == "Did it myself."
    go_on(messages_api, run_id)
    assert deployed == []
    assert "Did it myself." in json.dumps(messages_api.requests[-1].body)


@pytest.mark.parametrize("second", ["approve", "reject"])
def test_what_is_decided_stays_decided_and_says_by_whom(
    messages_api: ScriptedMessagesAPI, owner: APIClient, reviewer: APIClient, second: str
) -> None:
    run_id = waiting_run(messages_api, owner)
    reviewer.post(f"{asked(run_id)}reject/", {"reason": "No."}, format="json")
    late = client_of(person("lars", "decide_approval"))

    response = late.post(f"{asked(run_id)}{second}/", {"reason": "Yes!"}, format="json")

    body = problem(response, 409, "already_decided")
    assert (body["current_status"], body["decided_by"]) == ("rejected", "rita")
    assert Approval.objects.get().decisions.count() == 1
    go_on(messages_api, run_id)
    assert deployed == []


def test_an_expired_approval_is_gone(
    messages_api: ScriptedMessagesAPI, owner: APIClient, reviewer: APIClient, settings: Any
) -> None:
    settings.ANVIL = {"APPROVAL_TTL": 1e-6}
    run_id = waiting_run(messages_api, owner)

    problem(reviewer.post(f"{asked(run_id)}approve/"), 410, "approval_expired")

    assert Approval.objects.get().status == "pending"
    assert deployed == []


@pytest.mark.parametrize(
    ("verb", "body", "wrong"),
    [
        ("reject", {}, {"reason": "required"}),
        ("reject", {"reason": " "}, {"reason": "blank"}),
        ("reject", {"reason": "No.", "edited_input": {}}, {"edited_input": "unknown_field"}),
        ("approve", {"reviewer": "boss"}, {"reviewer": "unknown_field"}),
        ("approve", {"user": 1, "approved": False}, {"user": "unknown_field", "approved": "unknown_field"}),
        ("approve", {"edited_input": "1.1"}, {"edited_input": "not_an_object"}),
        ("approve", {"edited_input": None}, {"edited_input": "null"}),
        # Null is no answer; were it taken as none given, the call would run.
        ("approve", {"answer": None}, {"answer": "null"}),
        ("approve", {"reason": "a\0b"}, {"reason": "null_characters_not_allowed"}),
        ("approve", {"answer": json.loads("[" * 150 + "]" * 150)}, {"answer": "not_storable"}),
    ],
)
def test_a_decision_that_is_not_clear_is_refused(
    messages_api: ScriptedMessagesAPI,
    owner: APIClient,
    reviewer: APIClient,
    verb: str,
    body: Any,
    wrong: dict[str, str],
) -> None:
    run_id = waiting_run(messages_api, owner)

    assert errors(reviewer.post(f"{asked(run_id)}{verb}/", body, format="json")) == wrong
    assert Approval.objects.get().status == "pending"


def test_what_has_no_unicode_form_is_refused_in_a_decision(
    messages_api: ScriptedMessagesAPI, owner: APIClient, reviewer: APIClient
) -> None:
    run_id = waiting_run(messages_api, owner)

    for field, code in (("reason", "surrogate_characters_not_allowed"), ("answer", "not_storable")):
        sent = b'{"%s": %s}' % (field.encode(), NOT_UNICODE)
        url = f"{asked(run_id)}approve/"
        assert errors(reviewer.generic("POST", url, sent, content_type="application/json")) == {field: code}


def test_edited_arguments_that_do_not_fit_the_tool_are_refused(
    messages_api: ScriptedMessagesAPI, owner: APIClient, reviewer: APIClient
) -> None:
    run_id = waiting_run(messages_api, owner)

    response = reviewer.post(f"{asked(run_id)}approve/", {"edited_input": {"version": 5}}, format="json")

    assert 400 <= response.status_code < 500
    assert response["Content-Type"] == "application/problem+json"
    assert Approval.objects.get().status == "pending"


def test_people_who_may_only_view_approvals_cannot_decide(
    messages_api: ScriptedMessagesAPI, owner: APIClient
) -> None:
    run_id = waiting_run(messages_api, owner)
    onlooker = client_of(person("vera", "view_approval", "view_run", "change_approval"))

    assert len(onlooker.get(APPROVALS).json()["results"]) == 1
    assert onlooker.get(asked(run_id)).status_code == 200
    problem(onlooker.post(f"{asked(run_id)}approve/"), 403, "not_allowed")
    problem(onlooker.post(f"{asked(run_id)}reject/", {"reason": "No."}, format="json"), 403, "not_allowed")
    approval = Approval.objects.get()
    assert approval.status == "pending"
    assert not approval.decisions.exists()


def test_the_owner_of_a_run_without_permission_cannot_decide(
    messages_api: ScriptedMessagesAPI, owner: APIClient
) -> None:
    run_id = waiting_run(messages_api, owner)

    problem(owner.get(APPROVALS), 403, "permission_denied")
    problem(owner.get(asked(run_id)), 403, "permission_denied")
    problem(owner.post(f"{asked(run_id)}approve/"), 403, "permission_denied")
    assert Approval.objects.get().status == "pending"


def test_approvals_are_listed_while_they_wait_and_by_status(
    messages_api: ScriptedMessagesAPI, owner: APIClient, reviewer: APIClient
) -> None:
    run_id = waiting_run(messages_api, owner)

    def found(query: str = "") -> list[str]:
        return [approval["status"] for approval in reviewer.get(f"{APPROVALS}{query}").json()["results"]]

    assert found() == ["pending"]
    reviewer.post(f"{asked(run_id)}approve/")
    assert found() == []
    assert found("?status=approved") == ["approved"]
    assert found("?status=all") == ["approved"]
    assert errors(reviewer.get(f"{APPROVALS}?status=maybe")) == {"status": "invalid_choice"}
    assert reviewer.get(asked(run_id)).json()["status"] == "approved"


@pytest.mark.parametrize("pk", ["0", "999", "x", "1e3", "9" * 30, "%00"])
def test_an_unknown_approval_is_404(reviewer: APIClient, pk: str) -> None:
    problem(reviewer.get(f"{APPROVALS}{pk}/"), 404, "not_found")
    problem(reviewer.post(f"{APPROVALS}{pk}/approve/"), 404, "not_found")


# What holds everywhere.


ENDPOINTS = [
    ("get", RUNS),
    ("post", RUNS),
    ("get", f"{RUNS}r1/"),
    ("post", f"{RUNS}r1/cancel/"),
    ("post", f"{RUNS}r1/pause/"),
    ("post", f"{RUNS}r1/resume/"),
    ("get", APPROVALS),
    ("get", f"{APPROVALS}1/"),
    ("post", f"{APPROVALS}1/approve/"),
    ("post", f"{APPROVALS}1/reject/"),
]


@pytest.mark.parametrize(("method", "url"), ENDPOINTS)
def test_nobody_gets_in_without_a_login(carla: Any, method: str, url: str) -> None:
    start_run("operator", "Hi.", user=carla, run_id="r1")

    # 403, or 401 where the host's first authentication class has a challenge to make.
    problem(getattr(APIClient(), method)(url), 403, "not_authenticated")
    assert Run.objects.get().status == "queued"


def test_wrong_credentials_are_401_with_a_challenge(carla: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from rest_framework.authentication import BasicAuthentication

    monkeypatch.setattr(RunViewSet, "authentication_classes", [BasicAuthentication])
    token = base64.b64encode(b"carla:wrong").decode()

    response = APIClient().get(RUNS, headers={"Authorization": f"Basic {token}"})

    problem(response, 401, "authentication_failed")
    assert response["WWW-Authenticate"].startswith("Basic")


def test_a_session_needs_its_csrf_token(carla: Any) -> None:
    client = APIClient(enforce_csrf_checks=True)
    client.force_login(carla)

    problem(start(client), 403, "permission_denied")
    assert not Run.objects.exists()


def test_a_wrong_method_is_405(owner: APIClient) -> None:
    response = owner.delete(RUNS)

    problem(response, 405, "method_not_allowed")


def test_a_format_we_do_not_write_is_406(owner: APIClient) -> None:
    problem(owner.get(RUNS, headers={"Accept": "text/csv"}), 406, "not_acceptable")


def test_a_client_that_accepts_problems_only_gets_one(owner: APIClient) -> None:
    problem(owner.get(f"{RUNS}nope/", headers={"Accept": "application/problem+json"}), 406, "not_acceptable")


def test_a_throttled_request_says_when_to_come_back(
    owner: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(BaseThrottle):
        def allow_request(self, request: Any, view: Any) -> bool:
            return False

        def wait(self) -> float:
            return 6.2

    monkeypatch.setattr(RunViewSet, "throttle_classes", [Full])

    response = owner.get(RUNS)

    problem(response, 429, "throttled")
    assert response["Retry-After"] == "7"


def test_the_hosts_own_defaults_and_error_handler_do_not_reach_in(owner: APIClient, settings: Any) -> None:
    settings.REST_FRAMEWORK = {
        "EXCEPTION_HANDLER": "tests.test_api.host_handler",
        "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.AllowAny"],
        "DEFAULT_VERSIONING_CLASS": "rest_framework.versioning.NamespaceVersioning",
        "DATETIME_FORMAT": "%d.%m.%Y",
        "COMPACT_JSON": False,
    }

    problem(owner.get(f"{RUNS}nope/"), 404, "unknown_run")
    problem(APIClient().get(RUNS), 403, "not_authenticated")
    assert start(owner).json()["created_at"][10] == "T"


def host_handler(exc: Exception, context: Any) -> JsonResponse:
    return JsonResponse({"host": str(exc)}, status=418)


def test_an_error_that_is_nobodys_fault_but_ours_is_left_to_the_host(
    owner: APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*args: Any, **kwargs: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr("anvil_django.runs.get_or_start", explode)

    with pytest.raises(ZeroDivisionError):
        start(owner)


def test_answers_are_kept_out_of_caches(owner: APIClient) -> None:
    assert "no-store" in owner.get(RUNS)["Cache-Control"]
    assert "no-store" in owner.get(f"{RUNS}nope/")["Cache-Control"]


def test_a_browser_gets_the_browsable_api(owner: APIClient) -> None:
    start(owner, run_id="r1", metadata={"note": HOSTILE})

    for url in (RUNS, f"{RUNS}r1/"):
        response = owner.get(url, headers={"Accept": "text/html"})
        assert response.status_code == 200
        assert response["Content-Type"].startswith("text/html")
        assert b"<script>alert(" not in response.content


def test_options_describe_the_endpoints(owner: APIClient, reviewer: APIClient) -> None:
    start(owner, run_id="r1")

    assert set(owner.options(RUNS).json()["actions"]["POST"]) == {"agent", "input", "metadata", "run_id"}
    assert owner.options(f"{RUNS}r1/cancel/").status_code == 200
    assert reviewer.options(APPROVALS).status_code == 200


def test_routes_have_stable_names() -> None:
    assert reverse("anvil_django:run-list") == RUNS
    assert reverse("anvil_django:run-resume", kwargs={"run_id": "a.b"}) == f"{RUNS}a.b/resume/"
    assert reverse("anvil_django:approval-reject", kwargs={"pk": 3}) == f"{APPROVALS}3/reject/"


def test_hostile_text_comes_back_as_json_and_untouched(
    messages_api: ScriptedMessagesAPI, owner: APIClient, reviewer: APIClient
) -> None:
    run_id = waiting_run(messages_api, owner, version=HOSTILE, metadata={HOSTILE: HOSTILE})

    run = owner.get(f"{RUNS}{run_id}/")
    assert run["Content-Type"] == "application/json"
    assert run.content.isascii()
    assert run.json()["metadata"] == {HOSTILE: HOSTILE}
    assert run.json()["pending_approvals"][0]["input"] == {"version": HOSTILE}
    decided = reviewer.post(f"{asked(run_id)}reject/", {"reason": HOSTILE}, format="json")
    assert decided.json()["decisions"][0]["reason"] == HOSTILE


def test_what_the_model_wrote_never_breaks_an_answer(owner: APIClient) -> None:
    run_id = start(owner).json()["run_id"]
    Run.objects.update(metadata='{"half":"\\ud800","nul":"\\u0000"}')

    assert owner.get(f"{RUNS}{run_id}/").json()["metadata"] == {"half": "\ud800", "nul": "\0"}


def test_input_with_nul_and_lone_surrogates_is_stored_as_it_can_be_sent(owner: APIClient) -> None:
    body = b'{"agent": "operator", "input": "a\\u0000b\\ud800c"}'

    response = owner.generic("POST", RUNS, body, content_type="application/json")

    assert response.status_code == 201
    checkpoint = DjangoStateStore().load(response.json()["run_id"])
    assert checkpoint is not None
    assert checkpoint.messages[0]["content"] == "a\ufffdb\ufffdc"


# What a list costs.


def statements(client: APIClient, url: str) -> int:
    with CaptureQueriesContext(connection) as queries:
        assert client.get(url).json()["results"]
    return len(queries)


def test_listing_runs_takes_as_many_statements_for_many_as_for_one(owner: APIClient) -> None:
    start(owner)
    one = statements(owner, RUNS)
    for _ in range(9):
        start(owner)

    assert statements(owner, RUNS) == one
    assert len(owner.get(RUNS).json()["results"]) == 10


def test_listing_approvals_takes_as_many_statements_for_many_as_for_one(
    messages_api: ScriptedMessagesAPI, owner: APIClient, reviewer: APIClient
) -> None:
    calls = [tool_call("deploy", {"version": str(n)}) for n in range(4)]
    messages_api.script(say(*calls[:1]), match="one")
    messages_api.script(say(*calls), match="many")
    first = start(owner, input="one").json()["run_id"]
    tasks.advance(first)
    pending_one, detail_one = statements(reviewer, APPROVALS), detail_statements(owner, first)
    second = start(owner, input="many").json()["run_id"]
    tasks.advance(second)

    assert statements(reviewer, APPROVALS) == pending_one
    assert detail_statements(owner, second) == detail_one
    assert len(owner.get(f"{RUNS}{second}/").json()["pending_approvals"]) == 4
    for approval in Approval.objects.all():
        reviewer.post(f"{APPROVALS}{approval.pk}/reject/", {"reason": "No."}, format="json")
    decided_one = statements(reviewer, f"{APPROVALS}?status=all")
    assert decided_one == pending_one


def detail_statements(client: APIClient, run_id: str) -> int:
    with CaptureQueriesContext(connection) as queries:
        client.get(f"{RUNS}{run_id}/")
    return len(queries)
