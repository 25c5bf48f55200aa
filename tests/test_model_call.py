"""One call of the Messages API: what is sent, what comes back, and how it is stopped."""

from __future__ import annotations

import copy
import json
import logging
import threading
from collections.abc import Iterator

import httpx2
import pytest

from anvil_django.errors import AgentDefinitionError, LeaseLostError
from anvil_django.events import TextDelta, ThinkingDelta
from anvil_django.model_call import ModelCallStopped, stream_answer
from anvil_django.model_request import build_request
from anvil_django.testing import (
    ScriptedMessagesAPI,
    Turn,
    fault,
    redacted_thinking,
    refusal,
    say,
    text,
    thinking,
    tool_call,
    truncated,
)
from tests.model_calls import (
    EPHEMERAL,
    LOOKUP,
    PREFIX,
    QUESTION,
    ask,
    client_of,
    end,
    failure,
    play,
    start,
    streaming,
    text_block,
)

# The request


def test_the_request_is_the_prefix_and_the_history() -> None:
    request = build_request({**PREFIX, "cache": None}, QUESTION)
    assert request == {
        "model": "claude-sonnet-5-5",
        "max_tokens": 1024,
        "messages": QUESTION,
        "system": PREFIX["system"],
        "tools": PREFIX["tools"],
    }


def test_the_history_is_not_copied() -> None:
    assert build_request(PREFIX, QUESTION)["messages"] is QUESTION


def test_empty_parts_of_the_prefix_are_left_out() -> None:
    request = build_request({"model": "m", "max_tokens": 1, "system": None, "tools": []}, QUESTION)
    assert request == {"model": "m", "max_tokens": 1, "messages": QUESTION}


def test_the_cache_covers_the_prefix_and_the_history_and_the_prefix_is_not_changed() -> None:
    before = copy.deepcopy(PREFIX)
    request = build_request(PREFIX, QUESTION)
    assert request["cache_control"] == EPHEMERAL
    assert request["system"] == [
        {"type": "text", "text": "Be brief."},
        {"type": "text", "text": "Be kind.", "cache_control": EPHEMERAL},
    ]
    assert request["tools"] == [LOOKUP]
    assert before == PREFIX


def test_the_cache_can_live_for_an_hour() -> None:
    request = build_request({**PREFIX, "cache": "1h"}, QUESTION)
    hour = {"type": "ephemeral", "ttl": "1h"}
    assert request["cache_control"] == request["system"][-1]["cache_control"] == hour


def test_without_a_system_prompt_the_cache_marker_is_on_the_last_tool_that_may_carry_it() -> None:
    deferred = {**LOOKUP, "name": "rare", "defer_loading": True}
    request = build_request({**PREFIX, "system": None, "tools": [LOOKUP, deferred]}, QUESTION)
    assert request["tools"] == [{**LOOKUP, "cache_control": EPHEMERAL}, deferred]


def test_an_empty_system_block_gets_no_cache_marker() -> None:
    empty = {"type": "text", "text": " "}
    system = build_request({**PREFIX, "system": [*PREFIX["system"], empty]}, QUESTION)["system"]
    assert [("cache_control" in block) for block in system] == [False, True, False]


def test_cache_markers_of_the_agent_are_kept_and_never_exceed_what_the_api_takes() -> None:
    own = {"type": "text", "text": "x", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    assert build_request({**PREFIX, "system": [own]}, QUESTION)["system"] == [own]
    plain = {"type": "text", "text": "y"}
    full = [own, own, own, plain]
    assert build_request({**PREFIX, "system": full}, QUESTION)["system"] == full


def test_parameters_of_the_agent_are_sent() -> None:
    params = {
        "thinking": {"type": "adaptive"},
        "tool_choice": {"type": "auto"},
        "cache_control": {"type": "x"},
    }
    request = build_request({**PREFIX, "params": params}, QUESTION)
    assert {name: request[name] for name in params} == params


def test_parameters_unknown_to_the_sdk_travel_in_the_body() -> None:
    params = {"mcp_servers": [1], "extra_body": {"a": 1}}
    request = build_request({**PREFIX, "params": params}, QUESTION)
    assert request["extra_body"] == {"a": 1, "mcp_servers": [1]}
    assert "mcp_servers" not in request
    assert params == {"mcp_servers": [1], "extra_body": {"a": 1}}


def test_betas_become_one_header() -> None:
    headers = {"Anthropic-Beta": "one, two", "x-team": "shop"}
    params = {"betas": ["two", "three"], "extra_headers": headers}
    request = build_request({**PREFIX, "params": params}, QUESTION)
    assert request["extra_headers"] == {"x-team": "shop", "anthropic-beta": "one,two,three"}
    assert "betas" not in request
    assert headers == {"Anthropic-Beta": "one, two", "x-team": "shop"}


@pytest.mark.parametrize("name", ["model", "messages", "system", "tools", "max_tokens", "stream"])
def test_parameters_cannot_replace_what_the_run_is_made_of(name: str) -> None:
    with pytest.raises(AgentDefinitionError, match=f"cannot set {name}"):
        build_request({**PREFIX, "params": {name: "x"}}, QUESTION)


def test_the_container_of_the_last_answer_is_named() -> None:
    assert build_request(PREFIX, QUESTION, container="c_1")["container"] == "c_1"
    with_skills = {**PREFIX, "params": {"container": {"skills": ["pdf"]}}}
    assert build_request(with_skills, QUESTION, container="c_1")["container"] == {
        "skills": ["pdf"],
        "id": "c_1",
    }
    assert build_request(with_skills, QUESTION)["container"] == {"skills": ["pdf"]}


def test_the_request_arrives_as_it_was_built() -> None:
    with ScriptedMessagesAPI([say("Hello.")]) as api, api.client() as client:
        ask(client, {**PREFIX, "params": {"betas": ["some-beta"], "new_field": {"b": 1, "a": 2}}})
        (request,) = api.requests
    assert request.headers["anthropic-beta"] == "some-beta"
    assert request.body == {
        "model": "claude-sonnet-5-5",
        "max_tokens": 1024,
        "messages": QUESTION,
        "system": [*PREFIX["system"][:1], {**PREFIX["system"][1], "cache_control": EPHEMERAL}],
        "tools": PREFIX["tools"],
        "cache_control": EPHEMERAL,
        "new_field": {"b": 1, "a": 2},
        "stream": True,
    }


# The answer


def test_an_answer_arrives_in_pieces_and_as_a_whole() -> None:
    turn = say(
        thinking("Hm, an order."),
        "It has shipped.",
        tool_call("lookup_order", {"number": "A-1"}, id="toolu_1"),
    )
    with ScriptedMessagesAPI([turn]) as api, api.client() as client:
        deltas, answer = play(stream_answer(client, build_request(PREFIX, QUESTION)))
    assert "".join(d.text for d in deltas if isinstance(d, ThinkingDelta)) == "Hm, an order."
    assert "".join(d.text for d in deltas if isinstance(d, TextDelta)) == "It has shipped."
    thought, words, call = answer.content
    assert thought["thinking"] == "Hm, an order."
    assert thought["signature"]
    assert words == {"type": "text", "text": "It has shipped."}
    assert call == {"type": "tool_use", "id": "toolu_1", "name": "lookup_order", "input": {"number": "A-1"}}
    assert (answer.stop_reason, answer.stop_details, answer.container) == ("tool_use", None, None)
    assert answer.model == "claude-sonnet-5-5"
    assert answer.message_id.startswith("msg_")
    assert answer.request_id
    assert answer.usage["input_tokens"] > 0
    assert answer.usage["output_tokens"] > 1


def test_blocks_the_sdk_does_not_know_come_back_as_they_were_sent() -> None:
    odd = {"type": "hologram", "from": {"z": 1, "a": None}, "depth": [1, {"b": 2.5}]}
    with (
        ScriptedMessagesAPI([say(redacted_thinking("abc"), odd, text("x", citations=[]))]) as api,
        api.client() as client,
    ):
        answer = ask(client)
    assert answer.content[:2] == [{"type": "redacted_thinking", "data": "abc"}, odd]
    assert json.loads(json.dumps(answer.content)) == answer.content


def test_a_turn_may_end_with_nothing_said() -> None:
    with ScriptedMessagesAPI([Turn([])]) as api, api.client() as client:
        answer = ask(client)
    assert (answer.content, answer.stop_reason) == ([], "end_turn")


def test_an_answer_carries_its_details_and_its_container() -> None:
    container = {"id": "container_1", "expires_at": "2027-01-01T00:00:00Z"}
    with (
        ScriptedMessagesAPI(
            [refusal("cyber", "No."), Turn([text("x")], container=container)], keyed="order"
        ) as api,
        api.client() as client,
    ):
        refused, answer = ask(client), ask(client)
    assert refused.stop_reason == "refusal"
    assert refused.stop_details == {"type": "refusal", "category": "cyber", "explanation": "No."}
    assert answer.container is not None
    assert answer.container["id"] == "container_1"


def test_arguments_cut_by_max_tokens_are_an_answer_that_says_so() -> None:
    with (
        ScriptedMessagesAPI([truncated(tool_call("lookup_order", {"number": "A-1"}))]) as api,
        api.client() as client,
    ):
        assert ask(client).stop_reason == "max_tokens"


# Stopping


def test_a_call_can_be_stopped_between_two_events() -> None:
    asked = []

    def should_stop() -> bool:
        asked.append(True)
        return len(asked) > 4

    client = streaming(start(), *text_block("Hello."), *end("end_turn"))
    with pytest.raises(ModelCallStopped) as caught:
        ask(client, should_stop=should_stop)
    assert len(asked) == 5
    assert caught.value.request_id == "req_stream"
    assert caught.value.usage["input_tokens"] == 7


def test_a_call_that_is_already_stopped_is_not_made() -> None:
    with ScriptedMessagesAPI([]) as api, api.client() as client, pytest.raises(ModelCallStopped):
        ask(client, should_stop=lambda: True)
    assert not api.requests


def test_leaving_a_call_early_closes_its_connection() -> None:
    closed = threading.Event()

    class Body(httpx2.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            for event in (start(), *text_block("Hello.")):
                yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()

        def close(self) -> None:
            closed.set()

    headers = {"content-type": "text/event-stream"}
    client = client_of(lambda request: httpx2.Response(200, headers=headers, stream=Body()))
    call = stream_answer(client, build_request(PREFIX, QUESTION))
    assert next(call) == TextDelta("Hello.")
    call.close()
    assert closed.is_set()


def test_an_error_of_whoever_watches_comes_out_unchanged() -> None:
    def lose_the_lease() -> bool:
        raise LeaseLostError("r", 1)

    with ScriptedMessagesAPI([]) as api, api.client() as client, pytest.raises(LeaseLostError):
        ask(client, should_stop=lose_the_lease)
    call = stream_answer(streaming(start(), *text_block("Hello.")), build_request(PREFIX, QUESTION))
    next(call)
    with pytest.raises(KeyError):
        call.throw(KeyError("of the watcher"))


# The log


def test_the_log_holds_ids_and_no_word_of_prompt_or_answer(caplog: pytest.LogCaptureFixture) -> None:
    refused = fault.http(400, "invalid_request_error", "about order A-1")
    caplog.set_level(logging.INFO, logger="anvil_django")
    with ScriptedMessagesAPI([say("My answer.").after(refused)]) as api, api.client() as client:
        failed = failure(client, attempt=1)
        answer = ask(client, attempt=2)
    ours = [record.getMessage() for record in caplog.records if record.name == "anvil_django.model_call"]
    called = "model=claude-sonnet-5-5 request_id"
    assert ours == [
        f"Model call failed: {called}={failed.request_id} attempt=1 kind=fatal code=request_refused",
        f"Model call answered: {called}={answer.request_id} attempt=2",
    ]
