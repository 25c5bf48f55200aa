"""The scripted Messages API, driven by the real SDK."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import pytest

from anvil_django.testing import (
    Request,
    ScriptedMessagesAPI,
    Turn,
    fault,
    pause,
    redacted_thinking,
    refusal,
    say,
    server_tool_call,
    text,
    thinking,
    tool_call,
    truncated,
)
from anvil_django.testing.pytest_plugin import messages_api  # noqa: F401  the plugin need not be installed

ROOT = Path(__file__).resolve().parents[2]
MODEL = "claude-sonnet-5-5"
# Loading the certificates, which none of this needs, is most of what a client costs.
HTTP = anthropic.DefaultHttpxClient(verify=False)
Message = dict[str, Any]


def user(content: Any = "Hi") -> Any:
    return {"role": "user", "content": content}


def create(api: ScriptedMessagesAPI, *messages: Any, **options: Any) -> Message:
    """The answer without a stream, as the untouched JSON of the API."""
    client = api.client(http_client=HTTP)
    raw = client.messages.with_raw_response.create(
        model=MODEL, max_tokens=100, messages=messages or [user()], **options
    )
    answer: Message = json.loads(raw.read())
    return answer


def stream(api: ScriptedMessagesAPI, *messages: Any, **options: Any) -> Message:
    """The answer put together from a stream, as the API's JSON."""
    client = api.client(http_client=HTTP)
    with client.messages.stream(
        model=MODEL, max_tokens=100, messages=messages or [user()], **options
    ) as events:
        return events.get_final_message().to_dict(mode="json", warnings=False)


def turn_of(answer: Message) -> Message:
    return {"role": "assistant", "content": answer["content"]}


def results_for(answer: Message) -> Any:
    calls = [block for block in answer["content"] if block["type"] == "tool_use"]
    return user([{"type": "tool_result", "tool_use_id": block["id"], "content": "seen"} for block in calls])


EVERY_BLOCK = say(
    thinking("First I look, then I tell."),
    thinking(),
    redacted_thinking(),
    text("As the order says.", citations=[{"type": "char_location", "cited_text": "x", "document_index": 0}]),
    server_tool_call("web_search", {"query": "z"}, id="srvtoolu_1"),
    {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
    {"type": "invented_block", "value": {"b": 1, "a": 2}},
    tool_call("look", {"z": [1, {"y": "ü\u2028\U0001f600"}], "a": None}),
    tool_call("look"),
)


def test_a_stream_and_a_plain_answer_give_the_same_message() -> None:
    with ScriptedMessagesAPI([EVERY_BLOCK]) as api:
        plain, streamed = create(api), stream(api)
        assert streamed["content"] == plain["content"]
        assert streamed["usage"] | {"input_tokens": 0} == plain["usage"] | {"input_tokens": 0}
        assert {key: streamed[key] for key in ("id", "model", "stop_reason")} == {
            key: plain[key] for key in ("id", "model", "stop_reason")
        }
        assert [list(block["input"]) for block in streamed["content"] if block["type"] == "tool_use"] == [
            ["z", "a"],
            [],
        ]


def test_every_block_may_be_sent_back_as_the_sdk_has_it() -> None:
    with ScriptedMessagesAPI([EVERY_BLOCK, say("Done.")]) as api:
        first = stream(api)
        assert stream(api, user(), turn_of(first), results_for(first))["content"] == [text("Done.")]


def test_a_stream_shows_pings_names_and_split_arguments() -> None:
    with ScriptedMessagesAPI([say(tool_call("look", {"number": "A-1", "amount": 12}))]) as api:
        request = urllib.request.Request(
            f"{api.url}/v1/messages",
            json.dumps({"model": MODEL, "max_tokens": 1, "messages": [user()], "stream": True}).encode(),
            {"authorization": "Bearer k"},
        )
        with urllib.request.urlopen(request) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            lines = response.read().decode().splitlines()
    assert [line for line in lines if line.startswith("event: ")] == [
        "event: message_start",
        "event: content_block_start",
        "event: ping",
        *["event: content_block_delta"] * 5,
        "event: content_block_stop",
        "event: message_delta",
        "event: message_stop",
    ]


def test_ids_signatures_and_usage_are_the_same_in_every_process() -> None:
    answers = []
    for _ in range(2):
        with ScriptedMessagesAPI([say(thinking("Hm"), tool_call("look"))]) as api:
            answers.append(create(api))
    assert answers[0] == answers[1]
    assert answers[0]["content"][1]["id"].startswith("toolu_01")


def test_given_usage_is_laid_over_the_default() -> None:
    with ScriptedMessagesAPI([say("Ho", usage={"output_tokens": 7, "cache_read_input_tokens": 90})]) as api:
        for usage in (create(api)["usage"], stream(api)["usage"]):
            assert (usage["output_tokens"], usage["cache_read_input_tokens"]) == (7, 90)
            assert usage["input_tokens"] > 0


# Which turn a request gets


def test_a_request_repeated_after_a_crash_gets_the_same_bytes() -> None:
    with ScriptedMessagesAPI([say(tool_call("look")), say("Done.")]) as api:
        first = create(api)
        assert create(api) == first
        assert create(api, user(), turn_of(first), results_for(first))["content"] == [text("Done.")]
        assert create(api) == first
        assert [billed.turn for billed in api.billed] == [0, 0, 1, 0]


def test_by_order_each_request_gets_the_next_turn() -> None:
    with ScriptedMessagesAPI([say("One"), say("Two")], keyed="order") as api:
        assert [create(api)["content"][0]["text"] for _ in range(2)] == ["One", "Two"]


def test_scripts_are_chosen_by_the_first_user_message() -> None:
    with ScriptedMessagesAPI([say("Whatever")]) as api:
        api.add([say("Refunded.")], match="refund")
        api.script(say("Shipped."), match="ship")
        openings = ["Please refund me", "Did it ship?", "Hello"]
        assert [create(api, user(opening))["content"][0]["text"] for opening in openings] == [
            "Refunded.",
            "Shipped.",
            "Whatever",
        ]


def test_a_script_may_be_a_function_of_the_request() -> None:
    def echo(request: Request) -> Turn:
        return say(f"{request.assistant_turns}: {request.opening}").after(fault.overloaded())

    with ScriptedMessagesAPI(echo) as api:
        with pytest.raises(anthropic.APIStatusError):
            create(api)
        assert create(api)["content"] == [text("0: Hi")]


def test_a_conversation_may_start_with_a_history() -> None:
    with ScriptedMessagesAPI() as api:
        api.add([say("Fine.")], seeded=1)
        history = [user(), {"role": "assistant", "content": "Hello"}, user("How are you?")]
        assert create(api, *history)["content"] == [text("Fine.")]


def test_a_paused_turn_is_gone_on_with() -> None:
    with ScriptedMessagesAPI([pause("Searching."), say("Found.")]) as api:
        first = stream(api)
        assert first["stop_reason"] == "pause_turn"
        assert stream(api, user(), turn_of(first))["content"] == [text("Found.")]


def test_a_refusal_can_come_before_the_answer_to_the_same_request() -> None:
    with ScriptedMessagesAPI([say("Gladly.").after(refusal("cyber", "No."))]) as api:
        refused = stream(api)
        assert refused["stop_reason"] == "refusal"
        assert refused["stop_details"] == {"type": "refusal", "category": "cyber", "explanation": "No."}
        assert stream(api)["content"] == [text("Gladly.")]


def test_a_truncated_stream_leaves_the_arguments_open() -> None:
    with ScriptedMessagesAPI([truncated(tool_call("write", {"path": "/a"}))]) as api:
        assert stream(api)["content"][0]["input"] == {"path": "/a"}
        assert stream(api)["stop_reason"] == "max_tokens"


# Faults, as the SDK sees them


@pytest.fixture
def api() -> Iterator[ScriptedMessagesAPI]:
    with ScriptedMessagesAPI() as server:
        yield server


@pytest.mark.parametrize("ask", [create, stream])
@pytest.mark.parametrize(
    ("failure", "error", "status", "kind"),
    [
        (fault.overloaded(), anthropic.InternalServerError, 529, "overloaded_error"),
        (fault.rate_limited(3), anthropic.RateLimitError, 429, "rate_limit_error"),
        (fault.http(500), anthropic.InternalServerError, 500, "api_error"),
        (fault.http(402, "billing_error", "Pay."), anthropic.APIStatusError, 402, "billing_error"),
    ],
)
def test_an_http_fault_raises_its_class_and_the_next_request_succeeds(
    api: ScriptedMessagesAPI, ask: Any, failure: Any, error: type[Exception], status: int, kind: str
) -> None:
    api.script(say("Done.").after(failure))
    with pytest.raises(error) as raised:
        ask(api)
    assert isinstance(raised.value, anthropic.APIStatusError)
    assert (raised.value.status_code, raised.value.type) == (status, kind)
    assert raised.value.request_id
    assert ask(api)["content"] == [text("Done.")]
    assert len(api.billed) == 1


def test_retry_after_is_a_header_in_seconds_or_milliseconds(api: ScriptedMessagesAPI) -> None:
    limited = fault.rate_limited(1.5, error_code="enforced_spend_limit_reached")
    api.script(say("Done.").after(fault.rate_limited(3), limited))
    with pytest.raises(anthropic.RateLimitError) as whole:
        create(api)
    with pytest.raises(anthropic.RateLimitError) as fraction:
        create(api)
    create(api)
    assert whole.value.response.headers["retry-after"] == "3"
    assert fraction.value.response.headers["retry-after-ms"] == "1500"
    assert fraction.value.error_code == "enforced_spend_limit_reached"


def test_the_sdk_retries_by_itself_when_it_is_allowed_to(api: ScriptedMessagesAPI) -> None:
    api.script(say("Done.").after(fault.http(529, "overloaded_error", headers={"retry-after-ms": "1"})))
    with api.client(max_retries=1) as client:
        answer = client.messages.create(model=MODEL, max_tokens=1, messages=[user()])
    assert answer.stop_reason == "end_turn"
    assert len(api.requests) == 2


def test_an_overload_in_mid_stream_is_a_status_error_with_status_200(api: ScriptedMessagesAPI) -> None:
    api.script(say("Done.").after(fault.overloaded_mid_stream()))
    with pytest.raises(anthropic.APIStatusError) as raised:
        stream(api)
    assert (raised.value.status_code, raised.value.type) == (200, "overloaded_error")
    assert stream(api)["content"] == [text("Done.")]


@pytest.mark.parametrize("events", [1, 3, None, 99])
def test_an_early_end_of_a_stream_leaves_no_stop_reason(api: ScriptedMessagesAPI, events: int | None) -> None:
    api.script(say("Done.").after(fault.early_eof(events=events)))
    assert stream(api)["stop_reason"] is None
    assert stream(api)["stop_reason"] == "end_turn"


def test_a_dropped_stream_is_a_raw_protocol_error(api: ScriptedMessagesAPI) -> None:
    api.script(say("Done.").after(fault.dropped()))
    with pytest.raises(httpx2.RemoteProtocolError):
        stream(api)
    assert stream(api)["stop_reason"] == "end_turn"


def test_a_stalled_stream_is_a_raw_read_timeout(api: ScriptedMessagesAPI) -> None:
    api.script(say("Done.").after(fault.stall(30)))
    with pytest.raises(httpx2.ReadTimeout):
        stream(api, timeout=0.2)
    assert stream(api)["stop_reason"] == "end_turn"


@pytest.mark.parametrize("failure", [fault.dropped(), fault.no_answer()])
def test_a_dropped_plain_answer_is_a_connection_error(api: ScriptedMessagesAPI, failure: Any) -> None:
    api.script(say("Done.").after(failure))
    with pytest.raises((anthropic.APIConnectionError, httpx2.RemoteProtocolError)):
        create(api)
    assert create(api)["stop_reason"] == "end_turn"


def test_a_stalled_plain_answer_is_a_timeout(api: ScriptedMessagesAPI) -> None:
    api.script(say("Done.").after(fault.stall(30)))
    with pytest.raises(anthropic.APITimeoutError):
        create(api, timeout=0.2)
    assert create(api)["stop_reason"] == "end_turn"


def test_garbage_makes_create_return_a_string(api: ScriptedMessagesAPI) -> None:
    api.script(say("Done.").after(fault.garbage()))
    answer: Any = api.client(http_client=HTTP).messages.create(model=MODEL, max_tokens=1, messages=[user()])
    assert answer == "<html><body>Bad gateway</body></html>"
    create(api)


def test_stopping_ends_a_stall() -> None:
    api = ScriptedMessagesAPI([say("Done.").after(fault.stall(60))]).start()
    failed: list[Exception] = []

    def ask() -> None:
        try:
            stream(api)
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    while not api.requests:
        time.sleep(0.01)
    api.stop()
    thread.join(timeout=5)
    assert not thread.is_alive()
    assert isinstance(failed[0], httpx2.TransportError)


def test_a_delay_comes_before_the_first_byte_and_a_pace_between_events(api: ScriptedMessagesAPI) -> None:
    api.script(say("Done.", delay=0.1, pace=0.01))
    began = time.monotonic()
    assert stream(api)["stop_reason"] == "end_turn"
    assert time.monotonic() - began > 0.15


# What the server finds wrong


@contextmanager
def found(script: list[Turn], sentence: str) -> Iterator[ScriptedMessagesAPI]:
    """A server whose check fails with the sentence (a regular expression)."""
    server = ScriptedMessagesAPI(script).start()
    try:
        yield server
    finally:
        server.stop()
    with pytest.raises(AssertionError, match=sentence):
        server.check()


def test_a_violation_is_answered_with_400_and_fails_the_check() -> None:
    with found(
        [say("Done.")], r"request 1: messages\.0\.content\.0: text content blocks must be non-empty"
    ) as api:
        with pytest.raises(anthropic.BadRequestError, match="must be non-empty") as raised:
            create(api, user([{"type": "text", "text": ""}]))
        assert raised.value.type == "invalid_request_error"
        create(api)


def test_a_changed_history_is_answered_with_400_and_fails_the_check() -> None:
    script = [say(tool_call("look", {"b": 1, "a": 2})), say("Done.")]
    with found(script, r"request 2: messages\.1: not what it was before") as api:
        first = create(api)
        turn = json.loads(json.dumps(turn_of(first), sort_keys=True))
        with pytest.raises(anthropic.BadRequestError):
            create(api, user(), turn, results_for(first))
        create(api, user(), turn_of(first), results_for(first))


def test_a_cut_answer_kept_in_the_history_is_a_violation() -> None:
    script = [say("Once upon a time").after(fault.early_eof(events=5)), say("x")]
    with found(script, r"messages\.1: this assistant turn was never sent") as api:
        cut = stream(api)
        with pytest.raises(anthropic.BadRequestError):
            stream(api, user(), turn_of(cut), user("Go on"))
        whole = stream(api)
        stream(api, user(), turn_of(whole), user("Go on"))


def test_a_request_without_a_turn_is_answered_with_400_and_fails_the_check() -> None:
    with found([say("Done.")], r"unexpected request 2 \(1 assistant turns, opening 'Hi'\)") as api:
        first = create(api)
        with pytest.raises(anthropic.BadRequestError, match="no script has a turn for it"):
            create(api, user(), turn_of(first), user("And?"))


def test_what_is_not_json_is_refused() -> None:
    with found([], "not valid JSON: NaN is not JSON") as api:
        reply = httpx2.post(f"{api.url}/v1/messages", content=b'{"a": NaN}', headers={"x-api-key": "k"})
        assert reply.status_code == 400


def test_turns_never_served_fail_the_check() -> None:
    api = ScriptedMessagesAPI([say("One"), say(tool_call("look"))])
    api.script(say("Refunded."), match="refund")
    with pytest.raises(AssertionError) as raised, api:
        create(api)
    assert str(raised.value).splitlines() == [
        "The scripted Messages API found:",
        "  - never served: turn 1 of the script for any conversation: tool_use, look",
        "  - never served: turn 0 of the script for match='refund': end_turn, Refunded.",
    ]


def test_an_exception_on_its_way_is_not_hidden_by_the_check() -> None:
    with pytest.raises(ZeroDivisionError), ScriptedMessagesAPI([say("One")]):
        raise ZeroDivisionError


def test_check_can_be_called_at_any_time(api: ScriptedMessagesAPI) -> None:
    api.script(say("One"))
    with pytest.raises(AssertionError, match="never served"):
        api.check()
    create(api)
    api.check()


def test_rules_can_be_switched_off() -> None:
    with ScriptedMessagesAPI([say("Done.")], check_history=False) as api:
        assert create(api, user(" "))["stop_reason"] == "end_turn"


def test_parallel_runs_of_one_input_are_told_apart_by_a_function() -> None:
    def by_user(body: Any, headers: Any) -> str:
        return str(body["metadata"]["user_id"])

    with ScriptedMessagesAPI([say(tool_call("look")), say("Done.")], conversation=by_user) as api:
        for name, seen in (("a", "one"), ("b", "two")):
            options = {"metadata": {"user_id": name}}
            first = create(api, **options)
            answer = results_for(first)
            answer["content"][0]["content"] = seen
            create(api, user(), turn_of(first), answer, **options)
        assert [request.conversation for request in api.requests] == ["a", "a", "b", "b"]


def test_a_request_without_credentials_is_401(api: ScriptedMessagesAPI) -> None:
    reply = httpx2.post(f"{api.url}/v1/messages", json={})
    assert (reply.status_code, reply.json()["error"]["type"]) == (401, "authentication_error")


# What happened


def test_requests_show_bodies_and_headers_but_no_credentials(api: ScriptedMessagesAPI) -> None:
    api.script(say("Done."))
    stream(api, system="Be brief.")
    (request,) = api.requests
    assert request.number == 1
    assert request.body["system"] == "Be brief."
    assert request.body["stream"] is True
    assert request.headers["anthropic-version"]
    assert request.headers["authorization"] == "[hidden]"


def test_only_answers_delivered_whole_are_billed(api: ScriptedMessagesAPI) -> None:
    api.script(say("Done.", usage={"output_tokens": 3}).after(fault.dropped(), fault.overloaded()))
    for error in (httpx2.RemoteProtocolError, anthropic.InternalServerError):
        with pytest.raises(error):
            stream(api)
    stream(api)
    (billed,) = api.billed
    assert (billed.request, billed.turn, billed.model, billed.usage["output_tokens"]) == (3, 0, MODEL, 3)


def test_the_report_is_readable_by_another_process(api: ScriptedMessagesAPI) -> None:
    api.script(say("One"), say("Two"))
    first = create(api)
    with urllib.request.urlopen(f"{api.url}/_script/report") as response:
        report = json.load(response)
    assert report["requests"] == 1
    assert report["billed"][0]["message_id"] == first["id"]
    assert report["violations"] == report["unexpected"] == []
    assert len(report["unconsumed"]) == 1
    create(api, user(), turn_of(first), user("And?"))


def test_many_threads_are_served_at_once(api: ScriptedMessagesAPI) -> None:
    api.script(say(tool_call("look")), say("Done."))
    failures: list[Exception] = []

    def converse(number: int) -> None:
        try:
            opening = user(f"Hi {number}")
            first = stream(api, opening)
            stream(api, opening, turn_of(first), results_for(first))
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=converse, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(api.billed) == 32


def test_tokens_are_counted_and_models_are_listed(api: ScriptedMessagesAPI) -> None:
    with api.client(base_url=f"{api.url}/prefix") as client:
        counted = client.messages.count_tokens(model=MODEL, messages=[user()])
        assert counted.input_tokens > 0
        assert MODEL in [model.id for model in client.models.list()]
        assert client.models.retrieve(MODEL).max_input_tokens == 1_000_000
        with pytest.raises(anthropic.NotFoundError):
            client.models.retrieve("claude-nothing")


def test_the_async_client_works_too(api: ScriptedMessagesAPI) -> None:
    import asyncio

    api.script(say("Done."))

    async def ask() -> str | None:
        async with (
            anthropic.AsyncAnthropic(base_url=api.url, api_key="k", max_retries=0) as client,
            client.messages.stream(model=MODEL, max_tokens=1, messages=[user()]) as events,
        ):
            return (await events.get_final_message()).stop_reason

    assert asyncio.run(ask()) == "end_turn"


# Around the server


def test_the_fixture_points_the_environment_at_the_server(messages_api: ScriptedMessagesAPI) -> None:  # noqa: F811
    messages_api.script(say("Done."))
    with anthropic.Anthropic() as client:
        answer = client.messages.create(model=MODEL, max_tokens=1, messages=[user()])
    assert answer.stop_reason == "end_turn"


def test_the_fixture_fails_a_test_that_leaves_turns_unserved(tmp_path: Path) -> None:
    module = tmp_path / "test_shop.py"
    module.write_text(
        "from anvil_django.testing import say\n"
        "from anvil_django.testing.pytest_plugin import messages_api\n"
        "def test_nothing(messages_api):\n"
        "    messages_api.script(say('Never asked for'))\n"
        "def test_fails_by_itself(messages_api):\n"
        "    messages_api.script(say('Nor this'))\n"
        "    assert False, 'its own failure'\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:django", "-p", "no:cacheprovider", "-c", os.devnull]
    done = subprocess.run(
        [*command, str(module)], capture_output=True, text=True, cwd=tmp_path, env=python_environment()
    )
    assert "never served: turn 0 of the script for any conversation: end_turn, Never asked for" in done.stdout
    assert "its own failure" in done.stdout
    assert "end_turn, Nor this" not in done.stdout


def python_environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def serve(tmp_path: Path, *options: str) -> subprocess.Popen[str]:
    (tmp_path / "shop_script.py").write_text(
        "from anvil_django.testing import say\n"
        "def script():\n"
        "    return {'refund': [say('Refunded.')], None: [say('Hello.')]}\n"
    )
    return subprocess.Popen(
        [sys.executable, "-m", "anvil_django.testing.server", "shop_script:script", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=tmp_path,
        env=python_environment(),
    )


def test_as_a_process_it_serves_until_it_is_told_to_stop(tmp_path: Path) -> None:
    with serve(tmp_path) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        with anthropic.Anthropic(base_url=url, api_key="k", max_retries=0) as client:
            client.messages.create(
                model=MODEL, max_tokens=1, messages=[{"role": "user", "content": "A refund, please"}]
            )
        process.send_signal(signal.SIGTERM)
        assert (process.wait(timeout=10), process.stdout.read()) == (0, "")


def test_as_a_process_it_reports_violations_by_its_exit_code(tmp_path: Path) -> None:
    with serve(tmp_path, "--all-served") as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        client = anthropic.Anthropic(base_url=url, api_key="k", max_retries=0, http_client=HTTP)
        with pytest.raises(anthropic.BadRequestError):
            client.messages.create(model=MODEL, max_tokens=1, messages=[user("")])
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=10) == 1
        printed = process.stdout.read().splitlines()
    assert printed == [
        "- rule broken by request 1: messages.0.content.0: text content blocks must be non-empty",
        "- never served: turn 0 of the script for match='refund': end_turn, Refunded.",
        "- never served: turn 0 of the script for any conversation: end_turn, Hello.",
    ]


def test_importing_the_kit_loads_neither_django_nor_the_sdk() -> None:
    code = "import sys, anvil_django.testing.server; print({'django', 'anthropic'} & set(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=python_environment(), check=True
    )
    assert done.stdout.strip() == "set()"


def test_a_client_that_dies_in_the_middle_of_its_request_breaks_no_rule() -> None:
    with ScriptedMessagesAPI() as api, socket.socket() as client:
        client.connect(("127.0.0.1", int(api.url.rpartition(":")[2])))
        client.sendall(b'POST /v1/messages HTTP/1.1\r\nx-api-key: k\r\ncontent-length: 100\r\n\r\n{"mod')
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
        assert (api.requests, api.violations) == ([], [])
