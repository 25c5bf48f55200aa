"""Calls of the model by the SDK's own client; where bytes are odd a function stands in for HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator
from typing import Any

import anthropic
import httpx2
import pytest

from anvil_django.events import Delta
from anvil_django.model_call import Answer, stream_answer
from anvil_django.model_errors import ModelCallError
from anvil_django.model_request import build_request

QUESTION = [{"role": "user", "content": "Where is order A-1?"}]
LOOKUP = {"name": "lookup_order", "description": "Look up an order.", "input_schema": {"type": "object"}}
PREFIX: dict[str, Any] = {
    "model": "claude-sonnet-5-5",
    "max_tokens": 1024,
    "system": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}],
    "tools": [LOOKUP],
    "params": {},
    "cache": "5m",
}
EPHEMERAL = {"type": "ephemeral"}


def play(call: Generator[Delta, None, Answer]) -> tuple[list[Delta], Answer]:
    """Run a call to its end."""
    deltas = []
    while True:
        try:
            deltas.append(next(call))
        except StopIteration as end:
            return deltas, end.value


def ask(client: Any, prefix: dict[str, Any] = PREFIX, **options: Any) -> Answer:
    return play(stream_answer(client, build_request(prefix, QUESTION), **options))[1]


def failure(client: Any, **options: Any) -> ModelCallError:
    with pytest.raises(ModelCallError) as caught:
        ask(client, **options)
    return caught.value


def client_of(respond: Callable[[httpx2.Request], httpx2.Response]) -> anthropic.Anthropic:
    """An SDK client whose HTTP is answered by a function."""
    return anthropic.Anthropic(
        api_key="k",
        base_url="http://api.test",
        max_retries=0,
        http_client=anthropic.DefaultHttpxClient(transport=httpx2.MockTransport(respond)),
    )


def streaming(*events: dict[str, Any] | bytes, then: Exception | None = None) -> anthropic.Anthropic:
    """A client that gets exactly these server-sent events, and then the error, if one is given."""

    def body() -> Iterator[bytes]:
        for event in events:
            if isinstance(event, bytes):
                yield event
            else:
                yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
        if then is not None:
            raise then

    headers = {"content-type": "text/event-stream", "request-id": "req_stream"}
    return client_of(lambda request: httpx2.Response(200, headers=headers, content=body()))


def start(**overrides: Any) -> dict[str, Any]:
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-5-5",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 7, "output_tokens": 1},
    }
    return {"type": "message_start", "message": message | overrides}


def end(stop_reason: str | None) -> list[dict[str, Any]]:
    delta = {"stop_reason": stop_reason, "stop_sequence": None}
    return [
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]


def tool_block(*partial_json: str) -> list[dict[str, Any]]:
    block = {"type": "tool_use", "id": "toolu_1", "name": "lookup_order", "input": {}}
    deltas = [
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": part},
        }
        for part in partial_json
    ]
    return [
        {"type": "content_block_start", "index": 0, "content_block": block},
        *deltas,
        {"type": "content_block_stop", "index": 0},
    ]


def text_block(value: str) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": value}},
        {"type": "content_block_stop", "index": 0},
    ]


def error_event(error_type: str, message: str = "No.") -> dict[str, Any]:
    return {"type": "error", "error": {"type": error_type, "message": message}}
