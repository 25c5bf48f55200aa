"""Every failure of a call has a kind, a code and a sentence; and when it is worth trying again."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import anthropic
import httpx2
import pytest

from anvil_django.errors import AnvilError
from anvil_django.model_errors import (
    DETAIL_LIMIT,
    ModelCallError,
    classify,
    clean_detail,
    retry_after_seconds,
    retry_delay,
)
from anvil_django.testing import Fault, ScriptedMessagesAPI, fault, say
from tests.model_calls import (
    PREFIX,
    ask,
    client_of,
    end,
    error_event,
    failure,
    start,
    streaming,
    text_block,
    tool_block,
)

# Failures, over real HTTP

TRANSIENT = {
    "overloaded": (fault.overloaded(), "overloaded", 529),
    "overloaded in mid stream": (fault.overloaded_mid_stream(), "overloaded", 529),
    "rate limit": (fault.rate_limited(), "rate_limited", 429),
    "ramp limit": (fault.rate_limited(error_code="ramp_limit_exceeded"), "rate_limited", 429),
    "server error": (fault.http(500), "server_error", 500),
    "bad gateway": (fault.http(502), "server_error", 502),
    "conflict": (fault.http(409, "conflict_error"), "server_error", 409),
    "gateway timeout": (fault.http(504, "timeout_error"), "timeout", 504),
    "request timeout": (fault.http(408, "timeout_error"), "timeout", 408),
    "refused, but worth a retry": (
        fault.http(400, "invalid_request_error", headers={"x-should-retry": "true"}),
        "server_error",
        400,
    ),
    "early end": (fault.early_eof(), "cut_stream", None),
    "early end before anything": (fault.early_eof(events=0), "bad_response", None),
    "dropped": (fault.dropped(), "connection", None),
    "no answer": (fault.no_answer(), "connection", None),
    "silence": (fault.stall(5), "timeout", None),
    "a page of a proxy": (fault.garbage(), "bad_response", None),
}


@pytest.mark.parametrize(("problem", "code", "status"), TRANSIENT.values(), ids=TRANSIENT.keys())
def test_a_transient_failure_is_to_be_tried_again_and_then_works(
    problem: Fault, code: str, status: int | None
) -> None:
    with ScriptedMessagesAPI([say("Done.").after(problem)]) as api, api.client(timeout=1.0) as client:
        error = failure(client)
        assert (error.kind, error.code, error.status) == ("retry", code, status)
        assert ask(client).content == [{"type": "text", "text": "Done."}]
        assert len(api.requests) == 2


LASTING = {
    "wrong key": (fault.http(401, "authentication_error"), "auth", "auth"),
    "not permitted": (fault.http(403, "permission_error"), "auth", "auth"),
    "on hold": (
        fault.http(400, "invalid_request_error", error_code="organization_on_hold"),
        "auth",
        "auth",
    ),
    "no money": (fault.http(402, "billing_error"), "quota", "quota"),
    "spend limit of the contract": (
        fault.rate_limited(error_code="contract_spend_limit_reached"),
        "quota",
        "quota",
    ),
    "spend limit of the tier": (
        fault.rate_limited(error_code="enforced_spend_limit_reached"),
        "quota",
        "quota",
    ),
    "own spend limit": (
        fault.http(400, "invalid_request_error", "You have reached your specified API usage limits."),
        "quota",
        "quota",
    ),
    "too long": (
        fault.http(400, "invalid_request_error", "prompt is too long: 1000001 tokens > 1000000 maximum"),
        "context",
        "context_window",
    ),
    "too large": (fault.http(413, "request_too_large"), "context", "context_window"),
    "changed history": (
        fault.http(400, "invalid_request_error", "messages.1: bound to a different conversation"),
        "thinking",
        "thinking_mismatch",
    ),
    "changed signature": (
        fault.http(400, "invalid_request_error", "messages.1: Invalid `signature` in `thinking` block"),
        "thinking",
        "thinking_mismatch",
    ),
    "unknown model": (fault.http(404, "not_found_error", "model: claude-0"), "fatal", "unknown_model"),
    "bad request": (
        fault.http(400, "invalid_request_error", "max_tokens: too large"),
        "fatal",
        "request_refused",
    ),
    "unprocessable": (fault.http(422, "invalid_request_error"), "fatal", "request_refused"),
}


@pytest.mark.parametrize(("problem", "kind", "code"), LASTING.values(), ids=LASTING.keys())
def test_a_lasting_failure_says_what_is_to_be_done(problem: Fault, kind: str, code: str) -> None:
    with ScriptedMessagesAPI([say("Done.").after(problem)]) as api, api.client() as client:
        error = failure(client)
        assert (error.kind, error.code, error.status) == (kind, code, problem.status)
        assert problem.message in error.message
        assert error.request_id
        assert error.request_id in error.message
        ask(client)


def test_how_long_the_api_asks_to_wait_is_known() -> None:
    with (
        ScriptedMessagesAPI([say("x").after(fault.rate_limited(7), fault.rate_limited(0.25))]) as api,
        api.client() as client,
    ):
        waits = [failure(client).retry_after, failure(client).retry_after]
        ask(client)
    assert waits == [7.0, 0.25]


def test_what_was_used_before_an_answer_broke_off_is_known() -> None:
    with ScriptedMessagesAPI([say("Done.").after(fault.dropped(events=3))]) as api, api.client() as client:
        error = failure(client)
        ask(client)
    assert error.usage["input_tokens"] > 0
    assert error.request_id


# Failures that need bytes no API would send


@pytest.mark.parametrize(
    ("error_type", "kind", "code", "status"),
    [
        ("overloaded_error", "retry", "overloaded", 529),
        ("rate_limit_error", "retry", "rate_limited", 429),
        ("api_error", "retry", "server_error", 500),
        ("timeout_error", "retry", "timeout", 504),
        ("authentication_error", "auth", "auth", 401),
        ("billing_error", "quota", "quota", 402),
        ("invalid_request_error", "fatal", "request_refused", 400),
        ("unheard_of_error", "fatal", "request_refused", 200),
    ],
)
def test_an_error_inside_a_stream_is_told_by_its_type(
    error_type: str, kind: str, code: str, status: int
) -> None:
    error = failure(streaming(start(), error_event(error_type)))
    assert (error.kind, error.code, error.status) == (kind, code, status)
    assert error.request_id == "req_stream"


@pytest.mark.parametrize(
    "events",
    {
        "nothing": [],
        "an error that is no JSON": [start(), b"event: error\ndata: upstream closed\n\n"],
        "data that is no JSON": [start(), b"event: content_block_start\ndata: {oops\n\n"],
        "bytes that are no text": [start(), b"event: content_block_start\ndata: \xff\xfe\n\n"],
        "no content": [start(content=None), *text_block("x"), *end("end_turn")],
        "no usage": [start(usage=None), *text_block("x"), *end("end_turn")],
        "no beginning": [*text_block("x"), *end("end_turn")],
        "a block without a beginning": [start(), *text_block("x")[1:], *end("end_turn")],
        "no stop reason": [start(), *text_block("x"), *end(None)],
    }.items(),
    ids=lambda item: item[0],
)
def test_a_stream_that_makes_no_sense_is_tried_again(events: tuple[str, list[Any]]) -> None:
    assert failure(streaming(*events[1])).kind == "retry"


@pytest.mark.parametrize(
    "body",
    [
        {"type": "message", "content": None},
        {"type": "message", "role": "assistant", "content": [], "stop_reason": None, "usage": None},
        ["no", "object"],
    ],
)
def test_json_instead_of_a_stream_is_tried_again(body: Any) -> None:
    assert failure(client_of(lambda request: httpx2.Response(200, json=body))).kind == "retry"


@pytest.mark.parametrize(
    "problem",
    [
        httpx2.RemoteProtocolError("peer closed connection"),
        httpx2.ReadError("reset"),
        httpx2.ReadTimeout("slow"),
        httpx2.ConnectError("refused"),
    ],
)
def test_the_raw_error_of_a_broken_stream_is_tried_again(problem: Exception) -> None:
    error = failure(streaming(start(), *text_block("x"), then=problem))
    assert error.kind == "retry"
    assert error.code == ("timeout" if isinstance(problem, httpx2.ReadTimeout) else "connection")
    assert error.usage["input_tokens"] == 7
    # Whatever prints the error must not print what the library said, which may hold a key.
    assert error.__cause__ is None
    assert error.__suppress_context__


@pytest.mark.parametrize(
    "parts",
    [
        ['{"number": "A-1", "am'],
        ['{"number": tru'],
        ['{"number": ,,'],
        ['{"number": "\\ud83d"}'],
        ['{"number": "\ud83d"}'],
    ],
    ids=["cut", "cut in a word", "broken", "half an escaped character", "half a character"],
)
def test_a_tool_never_runs_on_half_of_its_arguments(parts: list[str]) -> None:
    error = failure(streaming(start(), *tool_block(*parts), *end("tool_use")))
    assert error.kind == "retry"
    assert error.code in ("bad_tool_json", "bad_response")
    assert "A-1" not in error.message
    assert "A-1" not in error.detail


def test_a_tool_without_arguments_is_whole() -> None:
    assert ask(streaming(start(), *tool_block(), *end("tool_use"))).content[0]["input"] == {}
    assert ask(streaming(start(), *tool_block(""), *end("tool_use"))).content[0]["input"] == {}


def test_a_redirect_to_nowhere_is_no_answer() -> None:
    error = failure(client_of(lambda request: httpx2.Response(304)))
    assert error.kind == "fatal"


def test_an_error_page_of_a_proxy_is_quoted_briefly() -> None:
    page = "<html>" + "blocked by policy " * 500
    error = failure(client_of(lambda request: httpx2.Response(403, text=page)))
    assert (error.kind, error.status) == ("auth", 403)
    assert "blocked by policy" in error.message
    assert len(error.detail) == DETAIL_LIMIT


# Failures before anything is sent


def test_a_missing_key_is_a_matter_of_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    # Neither a key of the shell nor a profile of whoever runs the tests.
    for name in [name for name in os.environ if name.startswith("ANTHROPIC_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    error = failure(anthropic.Anthropic(base_url="http://127.0.0.1:9", max_retries=0))
    assert (error.kind, error.code) == ("config", "not_configured")
    assert "Set ANTHROPIC_API_KEY" in error.message


@pytest.mark.parametrize(
    ("prefix", "word"),
    [
        ({**PREFIX, "system": [{"type": "text", "text": "\ud83d"}]}, "surrogates"),
        ({**PREFIX, "params": {"metadata": {"x": float("nan")}}}, "not json compliant"),
        ({**PREFIX, "params": {"metadata": {"x": object()}}}, "object"),
    ],
)
def test_what_cannot_be_written_as_json_is_not_tried_again(prefix: dict[str, Any], word: str) -> None:
    with ScriptedMessagesAPI([]) as api, api.client() as client:
        error = failure(client, prefix=prefix)
    assert (error.kind, error.code) == ("fatal", "not_sendable")
    assert word in error.message.lower()
    assert not api.requests


def test_a_client_of_another_make_needs_only_a_stream() -> None:
    class Stream:
        request_id = "req_other"

        def __iter__(self) -> Iterator[Any]:
            return iter([anthropic.types.MessageStopEvent.construct(type="message_stop")])

        def get_final_message(self) -> Any:
            return anthropic.types.Message.construct(**start()["message"] | {"stop_reason": "end_turn"})

    class Client:
        fails = False
        messages: Any

        def __init__(self) -> None:
            self.messages = self

        def stream(self, **request: Any) -> Any:
            return self

        def __enter__(self) -> Stream:
            if self.fails:
                raise ConnectionResetError("by peer")
            return Stream()

        def __exit__(self, *exc_info: object) -> None:
            raise OSError("cannot hang up")

    client = Client()
    answer = ask(client)
    assert (answer.stop_reason, answer.request_id) == ("end_turn", "req_other")
    client.fails = True
    assert failure(client).code == "connection"


# The error itself


def test_the_message_of_an_error_is_a_sentence_for_the_operator() -> None:
    with (
        ScriptedMessagesAPI(
            [say("x").after(fault.http(401, "authentication_error", "invalid x-api-key"))]
        ) as api,
        api.client() as client,
    ):
        error = failure(client)
        ask(client)
    assert error.message == (
        "The API refused the credentials. Check the API key and what it may do, then resume the run. "
        f"The API said: invalid x-api-key (HTTP 401, request {error.request_id})"
    )
    assert isinstance(error, AnvilError)
    assert (error.http_status, ModelCallError.code) == (502, "model_call")


@pytest.mark.parametrize(
    "secret",
    [
        "sk-ant-api03-abcDEF_123-xyz",
        "Authorization: Bearer abcdefgh12345678",
        "Bearer abcdefghijklmnopqrstuvwxyzabcdef",
        "x-api-key=verysecret",
        "{'api_key': 'verysecret'}",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIx.abc-def",
        "AKIAIOSFODNN7EXAMPLE",
        "ya29.a0AfH6SMBx",
    ],
)
def test_secrets_are_removed_from_what_the_api_says(secret: str) -> None:
    said = clean_detail(f"The key {secret} is no good.")
    assert "[removed]" in said
    assert said.startswith("The key ")
    assert said.endswith(" is no good.")
    for part in ("abc", "verysecret", "eyJ", "IOSFODNN7", "a0Af"):
        assert part not in said


def test_a_secret_is_removed_also_where_the_text_is_cut() -> None:
    said = clean_detail("x" * (DETAIL_LIMIT - 10) + " sk-ant-api03-abcdefghijklmnop")
    assert "sk-" not in said


@pytest.mark.parametrize(
    "plain", ["invalid x-api-key", "Bearer authentication is required", "Use an API key."]
)
def test_words_about_secrets_are_left_alone(plain: str) -> None:
    assert clean_detail(plain) == plain


def test_what_the_api_says_can_be_stored_by_every_database() -> None:
    assert clean_detail("a\x00b\n\tc\ud83d") == "a b c?"


def test_an_error_survives_its_way_from_another_process() -> None:
    error = ModelCallError("retry", "overloaded", "Busy.", status=529, request_id="req_1", retry_after=2.0)
    error.usage = {"input_tokens": 1}
    twin = pickle.loads(pickle.dumps(error))
    assert (twin.message, vars(twin)) == (error.message, vars(error))


def test_an_exception_of_another_kind_is_not_taken_for_the_apis_fault() -> None:
    assert classify(KeyError("x")).kind == "fatal"
    assert classify(KeyError("x"), answering=True).kind == "retry"
    assert classify(anthropic.CredentialsError("no profile")).kind == "config"
    assert classify(anthropic.RetryableError("again")).kind == "retry"


# When to try again


def error_asking(seconds: float | None) -> ModelCallError:
    return ModelCallError("retry", "rate_limited", retry_after=seconds)


def test_the_delay_doubles_up_to_its_cap() -> None:
    delays = [retry_delay(error_asking(None), n, base=1, cap=10, random=lambda: 1.0) for n in range(1, 7)]
    assert delays == [1, 2, 4, 8, 10, 10]
    assert retry_delay(error_asking(None), 10_000, cap=300, random=lambda: 1.0) == 300


def test_half_of_the_delay_is_random() -> None:
    assert retry_delay(error_asking(None), 3, base=1, random=lambda: 0.0) == 2
    assert 2 <= retry_delay(error_asking(None), 3, base=1) <= 4


def test_the_delay_is_no_shorter_than_the_api_asks() -> None:
    assert retry_delay(error_asking(60), 1, random=lambda: 0.0) >= 60


def test_a_delay_of_weeks_is_not_accepted() -> None:
    assert retry_delay(error_asking(4_294_967), 1, cap=300) == 300


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "12"}, 12.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9.0),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Tue, 01 Dec 2026 12:00:30 GMT"}, 30.0),
        ({"retry-after": "Tue, 01 Dec 2026 12:00:30 -0000"}, 30.0),
        ({"retry-after": "Tue, 01 Dec 2026 11:00:00 GMT"}, 0.0),
    ],
)
def test_retry_after_is_read_in_all_its_forms(headers: dict[str, str], seconds: float | None) -> None:
    now = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)
    assert retry_after_seconds(headers, now=now) == seconds
