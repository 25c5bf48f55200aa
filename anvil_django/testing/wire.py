"""Turns as the bytes the Messages API sends: one JSON object, or server-sent events."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from anvil_django.testing.history_rules import canonical
from anvil_django.testing.turns import Block, Turn

#: Rough bytes per token; only made-up usage rests on it.
BYTES_PER_TOKEN = 4

#: Blocks that a stream builds up from deltas; every other block comes whole in ``content_block_start``.
_STREAMED = {"text", "thinking", "tool_use"}
_ID_PREFIXES = {"tool_use": "toolu_", "server_tool_use": "srvtoolu_", "mcp_tool_use": "mcptoolu_"}
_DELTA_MESSAGE = ("stop_reason", "stop_sequence", "stop_details", "container")
#: Counts that ``message_delta`` repeats; cache split, tier, speed and geo come in ``message_start`` only.
_DELTA_USAGE = (
    "input_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
    "output_tokens",
    "output_tokens_details",
    "server_tool_use",
    "iterations",
)


@dataclass(frozen=True)
class Answer:
    """A turn with every blank filled in: the ``Message`` that is sent."""

    message: dict[str, Any]
    turn: Turn
    #: Position of the turn in its script.
    index: int

    @cached_property
    def events(self) -> list[bytes]:
        """The answer as server-sent events, each with its ``event:`` line, in the API's order."""
        message = self.message
        start = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
        start.pop("stop_details", None)
        start.pop("container", None)
        start["usage"] = {**message["usage"], "output_tokens": 1}
        sent = [_event("message_start", message=start)]
        last = len(message["content"]) - 1
        for index, block in enumerate(message["content"]):
            # A stream that max_tokens cuts ends in JSON without its last brace.
            cut = index == last and message["stop_reason"] == "max_tokens"
            sent.append(_event("content_block_start", index=index, content_block=_opening(block)))
            if index == 0:
                sent.append(_event("ping"))
            deltas = _deltas(block, cut)
            sent.extend(_event("content_block_delta", index=index, delta=delta) for delta in deltas)
            sent.append(_event("content_block_stop", index=index))
        delta = {key: message[key] for key in _DELTA_MESSAGE if key in message}
        usage = {key: message["usage"][key] for key in _DELTA_USAGE if key in message["usage"]}
        sent.append(_event("message_delta", delta=delta, usage=usage))
        sent.append(_event("message_stop"))
        return sent


def encode(value: object) -> bytes:
    """Compact UTF-8 JSON; a lone surrogate is written as its escape, which JSON allows and UTF-8 does not."""
    return canonical(value).encode("utf-8", "backslashreplace")


def made_up(prefix: str, *parts: object) -> str:
    """An id that looks like the API's and depends on ``parts`` alone."""
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode("utf-8", "backslashreplace")).hexdigest()
    return f"{prefix}01{digest[:22]}"


def render(turn: Turn, *, seed: str, index: int, model: str, prompt_bytes: int) -> Answer:
    """The answer for a turn.

    Args:
        turn: The turn.
        seed: What ids and signatures are derived from; the same seed gives the same bytes.
        index: Position of the turn in its script.
        model: The model of the request.
        prompt_bytes: Size of the request body, for the default usage.
    """
    content = [_complete(block, seed, position) for position, block in enumerate(turn.content)]
    usage: dict[str, Any] = {
        "input_tokens": max(1, prompt_bytes // BYTES_PER_TOKEN),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
        "output_tokens": max(1, len(encode(content)) // BYTES_PER_TOKEN),
        "service_tier": "standard",
        **(turn.usage or {}),
    }
    message: dict[str, Any] = {
        "id": made_up("msg_", seed),
        "type": "message",
        "role": "assistant",
        "model": turn.model or model,
        "content": content,
        "stop_reason": turn.stop_reason,
        "stop_sequence": turn.stop_sequence,
    }
    if turn.stop_details is not None:
        message["stop_details"] = dict(turn.stop_details)
    if turn.container is not None:
        message["container"] = dict(turn.container)
    message["usage"] = usage
    return Answer(message, turn, index)


def _complete(block: Block, seed: str, position: int) -> Block:
    """The block with its id, signature or data made up where the script left it out."""
    kind = block["type"]
    block = dict(block)
    if kind in _ID_PREFIXES and block.get("id") is None:
        block["id"] = made_up(_ID_PREFIXES[kind], seed, position)
    elif kind == "thinking" and block.get("signature") is None:
        block["signature"] = made_up("Eo", seed, position, "signature") + "=="
    elif kind == "redacted_thinking" and block.get("data") is None:
        block["data"] = made_up("Em", seed, position, "data") + "=="
    return block


def error_event(error_type: str, message: str) -> bytes:
    """An ``error`` event."""
    return _event("error", error={"type": error_type, "message": message})


def error_body(
    error_type: str, message: str, *, request_id: str, error_code: str | None = None
) -> dict[str, Any]:
    """The body of an HTTP error."""
    error: dict[str, Any] = {"type": error_type, "message": message}
    if error_code is not None:
        error["details"] = {"error_code": error_code}
    return {"type": "error", "error": error, "request_id": request_id}


def models(names: Sequence[str]) -> dict[str, Any]:
    """One page of ``GET /v1/models``."""
    data = [
        {
            "type": "model",
            "id": name,
            "display_name": name,
            "created_at": "2026-01-01T00:00:00Z",
            "lifecycle": "active",
            "max_input_tokens": 1_000_000,
            "max_tokens": 128_000,
        }
        for name in names
    ]
    return {"data": data, "has_more": False, "first_id": names[0], "last_id": names[-1]}


def _event(name: str, **payload: object) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + encode({"type": name, **payload}) + b"\n\n"


def _opening(block: Block) -> Block:
    """The block as ``content_block_start`` has it."""
    kind = block["type"]
    if kind not in _STREAMED:
        return block
    empty: Block = {"text": "", "thinking": "", "signature": "", "input": {}, "citations": []}
    return {key: empty.get(key, value) for key, value in block.items()}


def _deltas(block: Block, cut: bool) -> list[Block]:
    kind = block["type"]
    deltas: list[Block] = []
    if kind == "text":
        deltas = [{"type": "citations_delta", "citation": item} for item in block.get("citations") or ()]
        deltas += [{"type": "text_delta", "text": part} for part in _parts(block["text"])]
    elif kind == "thinking":
        deltas = [{"type": "thinking_delta", "thinking": part} for part in _parts(block["thinking"])]
        deltas.append({"type": "signature_delta", "signature": block["signature"]})
    elif kind == "tool_use":
        whole = json.dumps(block["input"], ensure_ascii=False)
        parts = ["", *_parts(whole[:-1] if cut else whole)]
        deltas = [{"type": "input_json_delta", "partial_json": part} for part in parts]
    return deltas


def _parts(whole: str) -> list[str]:
    """The string in at most four pieces, so that a client has to put it together."""
    size = max(1, -(-len(whole) // 4))
    return [whole[at : at + size] for at in range(0, len(whole), size)]
