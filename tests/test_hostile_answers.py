"""What a model can answer that is meant to hurt: kept as it came, told to it, or a failure that says why."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import anthropic
import httpx2
import pytest

from anvil_django import AgentResult, exactjson, model_call, tool
from anvil_django.models import Message, Run
from anvil_django.stores import DjangoStateStore

from .driving import agent, results, resume, run, stored
from .hostile import (
    BLANK,
    CALL_IDS,
    COUNTS,
    KEPT_ARGUMENTS,
    LARGE,
    REFUSED_ARGUMENTS,
    TEXTS,
    UNFIT_ARGUMENTS,
    VALUES,
    WHOLE,
    nested,
)
from .hostile_checks import quiet, requests_are_valid, shown_everywhere
from .model_calls import client_of, end, start, text_block

__all__ = ["quiet"]

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.usefixtures("quiet", "clock"),
    # The SDK's own, about a field that has not the type it expects.
    pytest.mark.filterwarnings("ignore:Pydantic serializer warnings"),
]

Events = list[Any]
FINE: Events = [start(), *text_block("Done."), *end("end_turn")]
got: list[Any] = []


class Died(BaseException):
    """The process is gone."""


class Model:
    """A model whose answers are given as events; where there is none left, whoever asks dies."""

    def __init__(self, *answers: Events) -> None:
        self.answers = list(answers)
        self.requests: list[Any] = []
        self.client: anthropic.Anthropic = client_of(self._answer)

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        body = json.loads(request.content)
        body.pop("stream")
        self.requests.append(body)
        if not self.answers:
            raise Died
        headers = {"content-type": "text/event-stream", "request-id": "req_1"}
        return httpx2.Response(200, headers=headers, content=b"".join(map(_event, self.answers.pop(0))))


def _event(event: Any) -> bytes:
    if isinstance(event, bytes):
        return event
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


def block(opening: dict[str, Any], *deltas: dict[str, Any], index: int = 0) -> Events:
    """The events of one block."""
    return [
        {"type": "content_block_start", "index": index, "content_block": opening},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def call(arguments: str, *, name: Any = "take", id: Any = "toolu_1", index: int = 0) -> Events:
    """A tool call whose arguments are these bytes."""
    opening = {"type": "tool_use", "id": id, "name": name, "input": {}}
    return block(opening, {"type": "input_json_delta", "partial_json": arguments}, index=index)


@tool(side_effect=True)
def take(what: Any = None) -> str:
    """Take anything."""
    got.append(what)
    return "taken"


@pytest.fixture(autouse=True)
def forgotten() -> None:
    got.clear()


TAKER = agent(take)


def crash_and_go_on(*answers: Events, show: bool = False) -> tuple[AgentResult, Model]:
    """The answers, then a crash in the next call; then another process that finds all it needs stored."""
    model = Model(*answers)
    with pytest.raises(Died):
        run(TAKER, DjangoStateStore(), client=model.client)
    before = stored(DjangoStateStore()).messages
    model.answers = [FINE]
    done = resume_with(model)
    assert (done.status, done.final_text) == ("done", "Done.")
    assert exactjson.dumps(done.messages[: len(before)]) == exactjson.dumps(before)
    assert exactjson.dumps(stored(DjangoStateStore()).messages) == exactjson.dumps(done.messages)
    assert exactjson.dumps(model.requests[-1]) == exactjson.dumps(model.requests[-2])
    requests_are_valid(model.requests)
    if show:
        shown_everywhere("r")
    return done, model


def resume_with(model: Model) -> AgentResult:
    from anvil_django import Checkpointer, resume_agent

    return resume_agent(TAKER, checkpoint=Checkpointer(DjangoStateStore(), "r"), client=model.client)


# What is said.


def test_every_text_of_a_model_is_sent_back_as_it_came() -> None:
    said = [
        event
        for i, text in enumerate(TEXTS.values())
        for event in block({"type": "text", "text": ""}, {"type": "text_delta", "text": text}, index=i)
    ]
    used = call('{"what": 1}', index=len(TEXTS))

    done, _ = crash_and_go_on([start(), *said, *used, *end("tool_use")], show=True)

    kept = [exactjson.clean_text(text, keep_nul=True) for text in TEXTS.values()]
    assert [b["text"] for b in done.messages[1]["content"][:-1]] == kept
    assert got == [1]


def test_blank_texts_are_left_out_and_thinking_is_not_touched() -> None:
    thoughts = list(WHOLE.values())
    events = [
        event
        for i, text in enumerate([*thoughts, *BLANK.values()])
        for event in block(
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": text},
            {"type": "signature_delta", "signature": f"sig{i}" + text},
            index=i,
        )
    ]
    at = len(thoughts) + len(BLANK)
    for i, text in enumerate(BLANK.values()):
        events += block({"type": "text", "text": ""}, {"type": "text_delta", "text": text}, index=at + i)

    done, _ = crash_and_go_on(
        [start(), *events, *call("{}", index=at + len(BLANK)), *end("tool_use")], show=True
    )

    content = done.messages[1]["content"]
    assert [b["thinking"] for b in content[:-1]] == [*thoughts, *BLANK.values()]
    assert content[-1]["type"] == "tool_use"


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_a_block_nobody_knows_is_kept_or_asked_for_again(value: Any) -> None:
    """Neither a number that no float holds nor any depth gets into the history."""
    try:
        unknown = block({"type": "hostile_result", "content": exactjson.clean(value)})
    except ValueError:
        pytest.skip("not JSON at all")
    done, _ = crash_and_go_on([start(), *unknown, *call("{}", index=1), *end("tool_use")], show=True)

    assert done.messages[1]["content"][0]["type"] == "hostile_result"


MALFORMED: dict[str, Events] = {
    "a text that is a number": block({"type": "text", "text": 5}),
    "thinking that is a list": block({"type": "thinking", "thinking": ["hostile"], "signature": "x"}),
    "thinking with half a character": block(
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "hostile \ud800"},
        {"type": "signature_delta", "signature": "x"},
    ),
    "a type that is a number": block({"type": 5, "text": "hostile"}),
    "no type": block({"text": "hostile"}),
    "deep": [b'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":'
             b'{"type":"hostile","x":' + b"[" * 5000 + b"]" * 5000 + b"}}\n\n"],
    "a long number": [b'event: content_block_start\ndata: {"type":"content_block_start","index":0,'
                      b'"content_block":{"type":"hostile","x":' + b"9" * 5000 + b"}}\n\n"],
    "bytes": [b"event: content_block_start\ndata: \xff\xfe hostile\n\n"],
    **{f"arguments: {name}": call(text) for name, text in REFUSED_ARGUMENTS.items()},
}  # fmt: skip


@pytest.mark.parametrize("events", MALFORMED.values(), ids=MALFORMED.keys())
def test_an_answer_that_cannot_be_kept_is_asked_for_again_and_nothing_of_it_is_done(events: Events) -> None:
    model = Model([start(), *events, *end("tool_use")], FINE)

    done = run(TAKER, DjangoStateStore(), client=model.client)

    assert (done.status, done.final_text, got) == ("done", "Done.", [])
    assert model.requests[0] == model.requests[1]


def test_a_model_that_never_answers_in_order_fails_the_run_with_a_reason(settings: Any) -> None:
    settings.ANVIL = {"MAX_MODEL_ATTEMPTS": 2}
    bad = [start(), *call('{"what": NaN}'), *end("tool_use")]

    failed = run(TAKER, DjangoStateStore(), client=Model(bad, bad).client)

    assert (failed.status, failed.error_code, got) == ("failed", "bad_tool_json", [])
    assert "not valid JSON" in failed.error
    shown_everywhere("r")


# What is asked for.


@pytest.mark.parametrize("case", KEPT_ARGUMENTS.values(), ids=KEPT_ARGUMENTS.keys())
def test_a_tool_runs_on_the_arguments_as_they_were_written(case: tuple[str, Any]) -> None:
    written, arguments = case
    done, _ = crash_and_go_on([start(), *call(written), *end("tool_use")])

    assert got == [arguments["what"]]
    assert done.messages[1]["content"][0]["input"] == arguments


@pytest.mark.parametrize("written", UNFIT_ARGUMENTS.values(), ids=UNFIT_ARGUMENTS.keys())
def test_a_tool_does_not_run_on_what_is_not_what_was_written(written: str) -> None:
    done, _ = crash_and_go_on([start(), *call(written), *end("tool_use")], show=True)

    (result,) = results(done)
    assert got == []
    assert result["is_error"] is True
    assert "so it was not run" in result["content"]


def test_every_text_as_an_argument_reaches_the_tool_and_the_history() -> None:
    done, _ = crash_and_go_on([start(), *call(json.dumps({"what": WHOLE})), *end("tool_use")], show=True)

    assert got == [WHOLE]
    assert done.messages[1]["content"][0]["input"]["what"] == WHOLE


@pytest.mark.parametrize("id", [*CALL_IDS.values(), None, 5], ids=[*CALL_IDS, "none", "a number"])
def test_two_calls_of_one_odd_id_are_two_calls(id: Any) -> None:
    twice = [*call('{"what": 1}', id=id), *call('{"what": 2}', id=id, index=1)]
    done, _ = crash_and_go_on([start(), *twice, *end("tool_use")])

    assert got == [1, 2]
    assert len({block["tool_use_id"] for block in results(done)}) == 2


@pytest.mark.parametrize(
    "name", [TEXTS["nul"], TEXTS["a script"], "t" * 10_000, None, 5, ["hostile"]], ids=range(6)
)
def test_a_tool_of_no_possible_name_is_not_found(name: Any) -> None:
    model = Model([start(), *call("{}", name=name), *end("tool_use")], FINE)

    done = run(TAKER, DjangoStateStore(), client=model.client)

    assert (done.status, results(done)[0]["is_error"], got) == ("done", True, [])
    requests_are_valid(model.requests)


# What stands beside it.


ODD_WORDS = [TEXTS[name] for name in ("nul", "a high surrogate", "astral", "a script", "line ends")]
ODD_WORDS.append("hostile" * 20_000)


def _with_usage(usage: Any) -> Events:
    events = end("end_turn")
    events[0]["usage"] = usage
    return [start(usage={"input_tokens": 7, **usage}), *text_block("Done."), *events]


@pytest.mark.parametrize("count", COUNTS.values(), ids=COUNTS.keys())
def test_a_count_that_is_none_costs_something_unknown_and_loses_no_answer(count: Any) -> None:
    names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    model = Model(_with_usage(dict.fromkeys(names, count)))

    done = run(TAKER, DjangoStateStore(), client=model.client)

    assert (done.status, done.final_text, done.total_cost_usd) == ("done", "Done.", None)
    assert done.total_usage.total == 0
    assert stored(DjangoStateStore()).total_usage == done.total_usage
    shown_everywhere("r")


@pytest.mark.parametrize(
    "usage",
    [
        {"output_tokens": None},
        {"output_tokens": 1, "iterations": [{"input_tokens": 10**9, "output_tokens": 10**9}] * 50},
        {"output_tokens": 1, "cache_creation": "hostile", "server_tool_use": {"web_search_requests": 10**40}},
        {"output_tokens": 1, "hostile": nested(90), "more": {"a": "\ud800\x00"}},
    ],
    ids=["none", "many", "odd parts", "more than is known"],
)
def test_a_report_of_usage_can_hold_anything(usage: dict[str, Any]) -> None:
    done = run(TAKER, DjangoStateStore(), client=Model(_with_usage(usage)).client)

    assert (done.status, done.final_text) == ("done", "Done.")
    shown_everywhere("r")


@pytest.mark.parametrize("text", ODD_WORDS, ids=range(len(ODD_WORDS)))
def test_ids_and_the_models_name_are_stored_as_far_as_they_fit(text: str) -> None:
    answer = [start(id=text, model=text), *text_block("Done."), *end("end_turn")]

    done = run(TAKER, DjangoStateStore(), client=Model(answer).client)

    assert (done.status, done.total_cost_usd) == ("done", None)
    row = Message.objects.get(role="assistant")
    assert row.message_id == row.model == exactjson.clean_text(text)[:100]


@pytest.mark.parametrize("text", ODD_WORDS, ids=range(len(ODD_WORDS)))
def test_why_an_answer_ended_is_told_whatever_the_words(text: str) -> None:
    refused = end("refusal")
    refused[0]["delta"]["stop_details"] = {"category": text, "explanation": text}
    done = run(TAKER, DjangoStateStore(), client=Model([start(), *refused]).client)
    assert (done.status, done.stop_reason) == ("done", "refusal")
    Run.objects.all().delete()

    failed = run(TAKER, DjangoStateStore(), client=Model([start(), *text_block("x"), *end(text)]).client)

    assert (failed.status, failed.error_code) == ("failed", "unknown_stop_reason")
    shown_everywhere("r")


@pytest.mark.parametrize("id", [5, None, ["hostile"], "hostile\x00\ud800"], ids=range(4))
def test_a_container_of_any_name_is_kept_or_forgotten(id: Any) -> None:
    answer = [start(), *call("{}"), *end("tool_use")]
    answer[-2]["delta"]["container"] = {"id": id, "expires_at": "hostile\x00"}

    done, model = crash_and_go_on(answer)

    assert model.requests[-1].get("container", "") in ("", "hostile\x00\ufffd", "hostile\ufffd\ufffd")
    assert done.status == "done"


# What is too much.


def _endless(events: Callable[[], Iterator[Any]]) -> anthropic.Anthropic:
    headers = {"content-type": "text/event-stream"}
    return client_of(lambda request: httpx2.Response(200, headers=headers, content=map(_event, events())))


def test_an_answer_without_an_end_is_broken_off_and_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_call, "MAX_ANSWER_CHARS", 300_000)
    sent: list[int] = []

    def events() -> Iterator[Any]:
        yield start()
        yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        while len(sent) < 1000:
            sent.append(1)
            delta = {"type": "text_delta", "text": "hostile \U0001f600" * 1000}
            yield {"type": "content_block_delta", "index": 0, "delta": delta}

    failed = run(TAKER, DjangoStateStore(), client=_endless(events))

    assert (failed.status, failed.error_code) == ("failed", "answer_too_large")
    assert "Lower max_tokens" in failed.error
    assert len(sent) < 25
    assert stored(DjangoStateStore()).messages == failed.messages[:1]


def test_a_block_that_comes_whole_is_measured_too() -> None:
    too_much = block({"type": "hostile_result", "content": LARGE})

    failed = run(TAKER, DjangoStateStore(), client=Model([start(), *too_much, *end("end_turn")]).client)

    assert (failed.status, failed.error_code) == ("failed", "answer_too_large")


def test_megabytes_of_text_are_kept_and_sent_back() -> None:
    text = "hostile" * 500_000
    said = block({"type": "text", "text": ""}, {"type": "text_delta", "text": text})

    done, _ = crash_and_go_on([start(), *said, *call("{}", index=1), *end("tool_use")], show=True)

    assert done.messages[1]["content"][0]["text"] == text


def test_a_failed_run_can_be_resumed_after_all_this() -> None:
    huge = block({"type": "hostile_result", "content": "x" * model_call.MAX_ANSWER_CHARS})
    run(TAKER, DjangoStateStore(), client=Model([start(), *huge, *end("end_turn")]).client)

    assert resume_with(Model(FINE)).final_text == "Done."
    assert resume(TAKER, DjangoStateStore()).status == "done"
