"""The values a script is made of: content blocks, and turns of the model.

A block is the plain dict the API sends. Ids and signatures that a script leaves out are filled in when the
turn is served, derived from the conversation and the position, so they are the same in every process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from anvil_django.testing.fault import Fault

Block = dict[str, Any]


def text(value: str, *, citations: Sequence[Mapping[str, Any]] | None = None) -> Block:
    """A text block.

    Args:
        value: The text.
        citations: Citation dicts; in a stream each comes as a ``citations_delta``.
    """
    block: Block = {"type": "text", "text": value}
    if citations is not None:
        block["citations"] = [dict(item) for item in citations]
    return block


def thinking(value: str = "", *, signature: str | None = None) -> Block:
    """A thinking block; empty text with a signature is what ``display: omitted`` gives.

    Args:
        value: The thinking shown.
        signature: Made up, deterministically, when ``None``.
    """
    return {"type": "thinking", "thinking": value, "signature": signature}


def redacted_thinking(data: str | None = None) -> Block:
    """A redacted thinking block; ``data`` is made up, deterministically, when ``None``."""
    return {"type": "redacted_thinking", "data": data}


def tool_call(
    name: str, input: Mapping[str, Any] | None = None, *, id: str | None = None, **extra: Any
) -> Block:
    """A ``tool_use`` block: the model asks for a tool of the client.

    Args:
        name: Name of the tool.
        input: Arguments; ``{}`` when ``None``.
        id: ``toolu_...``, made up, deterministically, when ``None``.
        extra: Further keys of the block, such as ``caller`` or ``toolset_name``.
    """
    return {"type": "tool_use", "id": id, "name": name, "input": dict(input or {}), **extra}


def server_tool_call(name: str, input: Mapping[str, Any] | None = None, *, id: str | None = None) -> Block:
    """A ``server_tool_use`` block: a tool that the API runs itself; give an ``id`` when a result follows."""
    return {"type": "server_tool_use", "id": id, "name": name, "input": dict(input or {})}


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer of the model, and what goes wrong before it is given."""

    content: Sequence[Block]
    stop_reason: str = "end_turn"
    #: Laid over the default usage, so a script names only the counts it cares about.
    usage: Mapping[str, Any] | None = None
    #: The model named in the answer; the one asked for when ``None``.
    model: str | None = None
    #: What takes the requests before this turn is served: faults, or whole other answers, once each.
    preceded_by: tuple[Fault | Turn, ...] = ()
    #: Seconds before the first byte.
    delay: float = 0.0
    #: Seconds between two events of a stream.
    pace: float = 0.0
    stop_sequence: str | None = None
    #: Such as ``{"type": "refusal", "category": "cyber", "explanation": "..."}``.
    stop_details: Mapping[str, Any] | None = None
    #: Such as ``{"id": "container_1", "expires_at": "2027-01-01T00:00:00Z"}``.
    container: Mapping[str, Any] | None = None

    def after(self, *what: Fault | Turn) -> Turn:
        """This turn, served only after each of ``what`` took one request, in that order."""
        return replace(self, preceded_by=(*self.preceded_by, *what))


def say(
    *blocks: Block | str,
    stop_reason: str | None = None,
    usage: Mapping[str, Any] | None = None,
    model: str | None = None,
    delay: float = 0.0,
    pace: float = 0.0,
) -> Turn:
    """A turn with these blocks; a ``str`` is a text block.

    Args:
        blocks: Text, or blocks made by the functions of this module, or any block dict.
        stop_reason: When ``None``: ``tool_use`` if there is a ``tool_use`` block, else ``end_turn``.
        usage: See `Turn.usage`.
        model: See `Turn.model`.
        delay: See `Turn.delay`.
        pace: See `Turn.pace`.
    """
    content = [text(block) if isinstance(block, str) else block for block in blocks]
    if stop_reason is None:
        stop_reason = "tool_use" if any(block["type"] == "tool_use" for block in content) else "end_turn"
    return Turn(content, stop_reason, usage=usage, model=model, delay=delay, pace=pace)


def pause(*blocks: Block | str, container: Mapping[str, Any] | None = None) -> Turn:
    """A turn the API pauses (``pause_turn``): it is sent back unchanged, with nothing added, to go on."""
    return replace(say(*blocks, stop_reason="pause_turn"), container=container)


def truncated(*blocks: Block | str) -> Turn:
    """A turn cut by ``max_tokens``; a ``tool_use`` block at its end is streamed with its JSON left open."""
    return say(*blocks, stop_reason="max_tokens")


def refusal(category: str | None = None, explanation: str | None = None, *blocks: Block | str) -> Turn:
    """A turn that ends in ``refusal``; a refused turn is not kept in the history.

    Since it is not kept, a request that tries again has the same number of assistant turns: write what that
    one gets as ``say(...).after(refusal())``.
    """
    details = {"type": "refusal", "category": category, "explanation": explanation}
    return replace(say(*blocks, stop_reason="refusal"), stop_details=details)
