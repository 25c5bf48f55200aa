"""The feed of a run over REST: polled, and streamed under WSGI and ASGI."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connection
from django.test import AsyncClient

from anvil_django import approvals, start_run, tasks
from anvil_django.models import Approval, Run
from anvil_django.testing import ScriptedMessagesAPI, fixed_clock, say, tool_call

from . import sse
from .rest import RUNS, Client, client_of, errors, person, problem
from .served import served
from .world import registered_agent, reviewer

pytestmark = pytest.mark.django_db(transaction=True)

URL = f"{RUNS}r/events/"


@pytest.fixture(autouse=True)
def agent(settings: Any) -> Iterator[None]:
    settings.ANVIL = {"EVENTS_POLL_SECONDS": 0.02, "EVENTS_MAX_SECONDS": 20}
    with registered_agent():
        yield


@pytest.fixture
def carla() -> Any:
    return person("carla", "add_run")


@pytest.fixture
def owner(carla: Any) -> Client:
    return client_of(carla)


def suspended(api: ScriptedMessagesAPI, user: Any) -> None:
    """A run ``r`` that waits for a decision on its second turn."""
    api.script(
        say("Looking.", tool_call("look", {"thing": "a"}), tool_call("mail", {"to": "ann"})),
        say(tool_call("deploy", {"version": "v1"})),
        say("Done."),
    )
    start_run("worldly", "Go.", user=user, run_id="r")
    assert tasks.advance("r") == "suspended"


def decide_and_finish() -> None:
    approvals.approve(Approval.objects.get(), user=reviewer())
    assert tasks.advance("r") == "done"


def polled(client: Client, query: str = "") -> list[Any]:
    events: list[Any] = client.get(URL + query).json()["events"]
    return events


def stream_of(client: Client, **headers: str) -> tuple[Any, list[sse.Event]]:
    """A whole stream through the test client, which reads it to its end."""
    response = client.get(URL, headers={"Accept": "text/event-stream", **headers})
    text = b"".join(response.streaming_content).decode("ascii")
    return response, list(sse.parse(iter(text.split("\n"))))


# Polling.


def test_events_are_polled_with_the_cursor_of_the_last_answer(
    messages_api: ScriptedMessagesAPI, carla: Any, owner: Client
) -> None:
    suspended(messages_api, carla)
    first = owner.get(URL).json()
    assert owner.get(f"{URL}?after={first['next']}").json() == {
        "events": [],
        "next": first["next"],
        "more": False,
        "ended": False,
        "status": "suspended",
        "why": "Waits for a person's decision.",
    }

    decide_and_finish()
    second = owner.get(f"{URL}?after={first['next']}").json()

    assert (second["ended"], second["status"], second["why"]) == (True, "done", "")
    assert first["events"] + second["events"] == polled(owner)
    assert second["events"][-1]["type"] == "run.ended"
    assert second["next"] == second["events"][-1]["id"]


def test_a_page_that_is_not_the_last_has_not_ended(
    messages_api: ScriptedMessagesAPI, carla: Any, owner: Client
) -> None:
    suspended(messages_api, carla)
    decide_and_finish()
    found, after, ended = [], "", False
    while not ended:
        page = owner.get(f"{URL}?limit=1&after={after}").json()
        assert page["ended"] is not page["more"]
        found += page["events"]
        after, ended = page["next"], page["ended"]

    assert found == polled(owner)


@pytest.mark.parametrize("query", ["?limit=0", "?limit=501", "?limit=x"])
def test_a_wrong_limit_is_refused(owner: Client, carla: Any, query: str) -> None:
    start_run("worldly", "Go.", user=carla, run_id="r")

    assert list(errors(owner.get(URL + query))) == ["limit"]


@pytest.mark.parametrize("accept", ["application/json", "text/event-stream"])
def test_a_wrong_cursor_is_a_problem_in_either_form(owner: Client, carla: Any, accept: str) -> None:
    start_run("worldly", "Go.", user=carla, run_id="r")

    problem(owner.get(f"{URL}?after=x", headers={"Accept": accept}), 422, "bad_input")
    problem(owner.get(URL, headers={"Accept": accept, "Last-Event-ID": "1.2"}), 422, "bad_input")
    problem(client_of(person("otto")).get(URL, headers={"Accept": accept}), 404, "unknown_run")


def test_a_second_failure_without_a_step_between_is_an_event_of_its_own(owner: Client, carla: Any) -> None:
    start_run("worldly", "Go.", user=carla, run_id="r")
    Run.objects.update(status="failed", error_code="poison", error="It died.")
    first = polled(owner)
    owner.post(f"{RUNS}r/retry/")
    Run.objects.update(status="failed", error_code="poison", error="It died again.")

    (second,) = polled(owner, f"?after={first[-1]['id']}")

    assert (first[-1]["type"], second["type"]) == ("run.ended", "run.ended")
    assert second["data"]["error"] == "It died again."


# Streams.


def test_a_stream_has_what_polling_has_and_ends_with_the_run(
    messages_api: ScriptedMessagesAPI, carla: Any, owner: Client
) -> None:
    suspended(messages_api, carla)
    decide_and_finish()

    response, events = stream_of(owner)

    assert response["Content-Type"] == "text/event-stream"
    assert "no-store" in response["Cache-Control"]
    assert sse.feed(events) == polled(owner)
    assert [event.name for event in events if event.id] == [event["type"] for event in polled(owner)]
    assert [(event.name, event.data) for event in events if not event.id] == [
        ("status", {"status": "done", "why": ""}),
        ("end", {"reason": "run_ended"}),
    ]


def test_a_client_that_has_all_of_an_ended_run_is_told_to_stop(
    messages_api: ScriptedMessagesAPI, carla: Any, owner: Client
) -> None:
    suspended(messages_api, carla)
    decide_and_finish()
    last = polled(owner)[-1]["id"]

    response = owner.get(f"{URL}?after={last}", headers={"Accept": "text/event-stream"})

    assert (response.status_code, response.content) == (204, b"")


def test_the_id_of_the_last_event_is_stronger_than_the_url(
    messages_api: ScriptedMessagesAPI, carla: Any, owner: Client
) -> None:
    suspended(messages_api, carla)
    decide_and_finish()
    everything = polled(owner)

    _, events = stream_of(owner, **{"Last-Event-ID": everything[2]["id"]})

    assert sse.feed(events) == everything[3:]


def test_a_quiet_stream_says_that_it_is_alive_and_ends_in_time(
    carla: Any, owner: Client, settings: Any
) -> None:
    settings.ANVIL = {"EVENTS_POLL_SECONDS": 1, "EVENTS_HEARTBEAT_SECONDS": 10, "EVENTS_MAX_SECONDS": 35}
    with fixed_clock():
        start_run("worldly", "Go.", user=carla, run_id="r")
        response = owner.get(URL, headers={"Accept": "text/event-stream"})
        text = b"".join(response.streaming_content).decode()

    assert text.startswith("retry: 2000\n\nid: 1.2.0\nevent: message\n")
    assert text.count(": alive\n\n") == 3
    assert "event: end" not in text


def test_a_change_of_the_status_alone_is_told(carla: Any, owner: Client) -> None:
    start_run("worldly", "Go.", user=carla, run_id="r")
    response = owner.get(URL, headers={"Accept": "text/event-stream"})
    chunks = iter(response.streaming_content)
    assert b'"queued"' in next(chunks)

    owner.post(f"{RUNS}r/pause/")

    assert next(chunks) == (
        b'event: status\ndata: {"status":"paused","why":"Paused by an operator. Resume it to go on."}\n\n'
    )
    response.close()


@pytest.mark.parametrize("lost", ["account", "permission", "run"])
def test_a_stream_ends_when_its_reader_may_no_longer_see_the_run(carla: Any, lost: str) -> None:
    start_run("worldly", "Go.", user=carla, run_id="r")
    vera = person("vera", "view_run")
    response = client_of(vera).get(URL, headers={"Accept": "text/event-stream"})
    chunks = iter(response.streaming_content)
    next(chunks)

    if lost == "account":
        type(vera).objects.filter(pk=vera.pk).update(is_active=False)
    elif lost == "permission":
        vera.user_permissions.clear()
    else:
        Run.objects.all().delete()
    client_of(carla).post(f"{RUNS}r/pause/")

    assert list(chunks) == [b'event: end\ndata: {"reason":"not_visible"}\n\n']


def test_a_stream_without_news_asks_now_and_then_who_may_see_it(carla: Any, settings: Any) -> None:
    settings.ANVIL = {"EVENTS_POLL_SECONDS": 1, "EVENTS_HEARTBEAT_SECONDS": 10}
    start_run("worldly", "Go.", user=carla, run_id="r")
    vera = person("vera", "view_run")
    with fixed_clock():
        response = client_of(vera).get(URL, headers={"Accept": "text/event-stream"})
        chunks = iter(response.streaming_content)
        next(chunks)
        vera.user_permissions.clear()
        assert b"not_visible" in next(chunks)


def test_an_idle_look_costs_one_statement_and_keeps_no_connection(
    carla: Any, owner: Client, django_assert_num_queries: Any
) -> None:
    start_run("worldly", "Go.", user=carla, run_id="r")
    from anvil_django import feed
    from anvil_django.api.events import Stream

    stream = Stream(Run.objects.get(), carla, feed.Cursor())
    stream.advance()
    assert connection.connection is None
    with django_assert_num_queries(1):
        assert stream.advance() == b""


# Under WSGI, over a real connection.


def test_under_wsgi_a_client_that_comes_back_misses_nothing_and_sees_nothing_twice(
    messages_api: ScriptedMessagesAPI, carla: Any, owner: Client, live_server: Any
) -> None:
    suspended(messages_api, carla)
    url = live_server.url + URL
    with sse.opened(url, "carla") as events:
        first = [next(events) for _ in range(4)]
    with sse.opened(url, "carla", last_id=first[-1].id) as events:
        second = until_status(events, "suspended")
        decide_and_finish()
        second += list(events)

    assert sse.feed(first + second) == polled(owner)
    assert second[-1].data == {"reason": "run_ended"}


def until_status(events: Iterator[sse.Event], status: str) -> list[sse.Event]:
    found = []
    for event in events:
        found.append(event)
        if event.name == "status" and event.data["status"] == status:
            break
    return found


# Under ASGI.


def test_under_asgi_the_iterator_is_asynchronous(
    messages_api: ScriptedMessagesAPI, carla: Any, owner: Client
) -> None:
    suspended(messages_api, carla)
    decide_and_finish()

    async def read() -> tuple[bool, bytes]:
        client = AsyncClient()
        login = base64.b64encode(b"carla:secret").decode()
        response = await client.get(
            URL, headers={"Accept": "text/event-stream", "Authorization": f"Basic {login}"}
        )
        return response.is_async, b"".join([chunk async for chunk in response.streaming_content])

    is_async, text = asyncio.run(read())

    assert is_async
    events = list(sse.parse(iter(text.decode().split("\n"))))
    assert sse.feed(events) == polled(owner)
    assert events[-1].data == {"reason": "run_ended"}


@pytest.mark.processes
def test_under_asgi_a_killed_server_loses_nothing_of_the_stream(
    messages_api: ScriptedMessagesAPI, carla: Any, owner: Client
) -> None:
    suspended(messages_api, carla)
    with served() as (url, server), sse.opened(url + URL, "carla") as events:
        first = until_status(events, "suspended")
        server.kill()
        server.wait(10)
    decide_and_finish()
    last = next(event.id for event in reversed(first) if event.id)
    with served() as (url, _), sse.opened(url + URL, "carla", last_id=last) as events:
        second = list(events)

    assert sse.feed(first + second) == polled(owner)
    assert sse.feed(first)
    assert sse.feed(second)
    assert second[-1].data == {"reason": "run_ended"}


@pytest.mark.processes
def test_under_asgi_many_quiet_streams_leave_the_server_free(
    messages_api: ScriptedMessagesAPI, carla: Any, owner: Client
) -> None:
    suspended(messages_api, carla)
    with served() as (url, _):
        seen: list[list[sse.Event]] = [[] for _ in range(8)]
        ready = threading.Barrier(9, timeout=30)

        def watch(mine: list[sse.Event]) -> None:
            with sse.opened(url + URL, "carla") as events:
                mine += until_status(events, "suspended")
                ready.wait()
                mine += list(events)

        watchers = [threading.Thread(target=watch, args=(mine,)) for mine in seen]
        for watcher in watchers:
            watcher.start()
        ready.wait()
        decide_and_finish()
        for watcher in watchers:
            watcher.join(30)

    assert all(sse.feed(mine) == polled(owner) for mine in seen)
