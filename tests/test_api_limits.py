"""What is too much: rates, sizes, and bodies that are meant to hurt."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import BytesIO
from typing import Any

import pytest
from django.core.cache import cache
from django.core.exceptions import RequestDataTooBig
from django.test import RequestFactory

from anvil_django import start_run
from anvil_django.api.formats import JSONParser, body_limit
from anvil_django.conf import problems as settings_problems
from anvil_django.errors import TooLargeError
from anvil_django.models import Run, Steering

from .rest import AGENTS, APPROVALS, RUNS, Client, client_of, person, problem
from .world import registered_agent

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def agent() -> Iterator[None]:
    cache.clear()
    with registered_agent():
        yield
    cache.clear()


@pytest.fixture
def owner() -> Client:
    return client_of(person("carla", "add_run", "decide_approval"))


def start(client: Client, **body: Any) -> Any:
    return client.post(RUNS, {"agent": "worldly", "input": "Go.", **body}, format="json")


# Rates.


def test_there_is_no_limit_unless_the_site_sets_one(owner: Client) -> None:
    assert {start(owner).status_code for _ in range(5)} == {201}


def test_starting_too_often_is_429_and_says_when_to_come_back(owner: Client, settings: Any) -> None:
    settings.ANVIL = {"THROTTLE_START": "2/min"}
    assert [start(owner, run_id=name).status_code for name in ("a", "b")] == [201, 201]

    for verb, body in (("", None), ("a/messages/", {"content": "Hi."}), ("a/fork/", {}), ("a/resume/", {})):
        response = owner.post(RUNS + verb, body or {"agent": "worldly", "input": "Go."}, format="json")
        problem(response, 429, "throttled")
        assert 0 < int(response["Retry-After"]) <= 60
    assert Run.objects.count() == 2
    assert owner.post(f"{RUNS}a/cancel/").status_code == 200, "what stops a run is never refused"
    assert owner.get(RUNS).status_code == 200
    assert start(client_of(person("otto", "add_run"))).status_code == 201, "each person counts alone"


def test_reading_and_deciding_have_rates_of_their_own(owner: Client, settings: Any) -> None:
    settings.ANVIL = {"THROTTLE_READ": "1/hour", "THROTTLE_DECIDE": "1/day"}
    assert owner.get(AGENTS).status_code == 200

    problem(owner.get(RUNS), 429, "throttled")
    problem(owner.post(f"{APPROVALS}1/claim/"), 404, "not_found")
    problem(owner.post(f"{APPROVALS}1/approve/"), 429, "throttled")
    assert start(owner).status_code == 201


@pytest.mark.parametrize("rate", ["60", "0/min", "60/week", "x/min", 60, "60/min "])
def test_a_rate_that_is_none_is_reported(rate: Any) -> None:
    (sentence,) = settings_problems({"THROTTLE_READ": rate})
    assert sentence == f"ANVIL['THROTTLE_READ'] must be a rate such as \"60/min\", or None, not {rate!r}."


# Sizes.


@pytest.mark.parametrize("everywhere", [2_500_000, None])
def test_ten_megabytes_are_too_large_and_are_not_read(
    owner: Client, settings: Any, everywhere: int | None
) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = everywhere
    body = json.dumps({"agent": "worldly", "input": "x" * 10_000_000})

    response = owner.generic("POST", RUNS, body, content_type="application/json")

    problem(response, 413, "too_large")
    assert not Run.objects.exists()


@pytest.mark.parametrize("length", ["", "5", "x"])
def test_a_length_that_is_a_lie_does_not_help(settings: Any, length: str) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 100
    request = RequestFactory().post(RUNS)
    request.META["CONTENT_LENGTH"] = length

    with pytest.raises(TooLargeError, match="more than the 100 bytes"):
        JSONParser().parse(BytesIO(b'"' + b"x" * 200 + b'"'), None, {"request": request})


def test_the_site_or_our_own_limit_decides_whichever_is_smaller(settings: Any) -> None:
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = None
    settings.ANVIL = {"INPUT_LIMIT": 1000}
    assert body_limit() == 106_000
    settings.DATA_UPLOAD_MAX_MEMORY_SIZE = 5000
    assert body_limit() == 5000


def test_an_input_or_metadata_beyond_the_limit_are_too_large(owner: Client, settings: Any) -> None:
    settings.ANVIL = {"INPUT_LIMIT": 1000}

    problem(start(owner, input="x" * 1001), 413, "too_large")
    problem(start(owner, metadata={"x": "y" * 16_000}), 413, "too_large")
    start_run("worldly", "Go.", run_id="r", user=None)
    operator = client_of(person("olga", "control_run"))
    problem(operator.post(f"{RUNS}r/messages/", {"content": "x" * 1001}, format="json"), 413, "too_large")
    assert Run.objects.count() == 1
    assert not Steering.objects.exists()


def test_what_of_the_host_finds_a_body_too_large_is_413_too(
    owner: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parse(*args: Any) -> None:
        raise RequestDataTooBig

    monkeypatch.setattr("anvil_django.api.formats.JSONParser.parse", parse)

    problem(start(owner), 413, "too_large")


# Bodies that are meant to hurt.

BIG = "9" * 5000
DEEP = "[" * 3000 + "]" * 3000
HOSTILE = {
    "wrong types": '{"agent": {}, "input": {"a": 1}, "content": {}, "reason": [], "answer": null}',
    "a list": "[[[]]]",
    "null": "null",
    "a number": "1e999",
    "deep": f'{{"agent": "worldly", "input": {DEEP}, "content": {DEEP}, "metadata": {{"a": {DEEP}}}}}',
    "NUL in a name": '{"agent": "a\\u0000b", "input": "Hi.", "content": ["\\u0000"], "run_id": "\\u0000"}',
    "a lone surrogate": '{"agent": "\\ud800", "input": "Hi.", "reason": "\\ud800", "content": ["\\ud800"]}',
    "unknown fields": '{"agent": "worldly", "input": "Hi.", "content": "Hi.", "user": 1, "__proto__": {}}',
    "a huge number": f'{{"agent": "x", "input": "", "metadata": {{"n": {BIG}}}, "iteration": {BIG}}}',
    "double keys": '{"agent": "x", "agent": ["worldly"], "content": "a", "content": 5, "run_id": []}',
}
TARGETS = [
    RUNS,
    *(f"{RUNS}r/{verb}/" for verb in ("messages", "fork", "cancel", "pause", "resume", "retry")),
    *(f"{APPROVALS}1/{verb}/" for verb in ("approve", "reject", "answer", "settle", "claim", "release")),
]


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("url", TARGETS)
def test_a_hostile_body_is_a_problem_and_has_no_effect(owner: Client, url: str, body: str) -> None:
    start_run("worldly", "Go.", run_id="r", user=None)
    client = client_of(person("olga", "add_run", "view_run", "control_run", "decide_approval"))
    before = Run.objects.values().get()

    response = client.generic("POST", url, body, content_type="application/json")

    assert 400 <= response.status_code < 500, response.content
    assert response["Content-Type"] == "application/problem+json"
    assert Run.objects.values().get() == before
    assert not Steering.objects.exists()
