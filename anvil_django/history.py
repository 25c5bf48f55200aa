"""The conversation as the Messages API takes it: what may be sent, and how turns are composed.

The rules are those the API enforces on a request; a run that broke one would be refused for ever after.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from . import exactjson
from .errors import BadInputError, NotJSONError, TooLargeError

Message = dict[str, Any]

INVALID_NAME = "invalid_tool_name"
"""Stands for a tool name that the API would refuse in every later request."""

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
"""What the API accepts as the id of a call and as the name of a tool."""


def from_input(messages: str | Sequence[Mapping[str, Any]], *, limit: int = 1_000_000) -> list[Message]:
    """The first messages of a run, checked and made storable.

    Args:
        messages: The user's text, or messages in the API's form that end with a user turn.
        limit: Most characters of JSON.

    Raises:
        BadInputError: What cannot be sent, with the place and what to do.
        TooLargeError: It is longer than ``limit``.
    """
    if isinstance(messages, str):
        messages = [{"role": "user", "content": messages}]
    if not isinstance(messages, Sequence) or not messages:
        raise BadInputError("The input is empty: give a text or at least one message.")
    found = [_checked(message, f"messages[{i}]") for i, message in enumerate(messages)]
    if found[0]["role"] != "user":
        raise BadInputError("messages[0] must have the role user.")
    if found[-1]["role"] == "assistant":
        raise BadInputError("The last message must not be an assistant turn: the model answers it.")
    _check_pairs(found)
    try:
        text = exactjson.dumps(exactjson.clean(found))
    except NotJSONError as exc:
        raise BadInputError(f"The input holds a value that is not JSON: {exc.message}") from exc
    if len(text) > limit:
        raise TooLargeError(f"The input has {len(text)} characters as JSON; at most {limit} are accepted.")
    stored: list[Message] = exactjson.loads(text)
    return stored


def _checked(message: Any, where: str) -> Message:
    if not isinstance(message, Mapping):
        raise BadInputError(f"{where} must be an object with role and content.")
    role = message.get("role")
    if not isinstance(role, str) or role not in {"user", "assistant", "system"}:
        said = repr(role[:60]) if isinstance(role, str) else f"a value of type {type(role).__name__}"
        raise BadInputError(f"{where}.role must be user, assistant or system, not {said}.")
    content = message.get("content")
    if isinstance(content, str):
        if not content.strip():
            raise BadInputError(f"{where}.content is blank.")
    elif isinstance(content, Sequence) and content:
        for i, block in enumerate(content):
            if not isinstance(block, Mapping) or not isinstance(block.get("type"), str):
                raise BadInputError(f"{where}.content[{i}] must be a content block with a type.")
            if block["type"] == "text" and not _has_text(block):
                raise BadInputError(f"{where}.content[{i}].text must be a text that is not blank.")
    else:
        raise BadInputError(f"{where}.content must be a text or a list of content blocks, and not empty.")
    return {"role": message["role"], "content": content}


def _has_text(block: Mapping[str, Any]) -> bool:
    return isinstance(block.get("text"), str) and bool(block["text"].strip())


def _check_pairs(messages: Sequence[Message]) -> None:
    seen: set[str] = set()
    asked: list[str] = []
    for i, message in enumerate(messages):
        blocks = blocks_of(message)
        results = [block["type"] == "tool_result" for block in blocks]
        if sorted(results, reverse=True) != results:
            raise BadInputError(f"messages[{i}] must begin with its tool_result blocks.")
        if message["role"] != "assistant" and any(block["type"] == "tool_use" for block in blocks):
            raise BadInputError(f"messages[{i}] has a tool_use block, which only an assistant turn may have.")
        given = [b.get("tool_use_id") for b in blocks if b["type"] == "tool_result"]
        answered = [call_id for call_id in given if isinstance(call_id, str)]
        if len(answered) < len(given):
            raise BadInputError(f"messages[{i}] has a tool_result block without tool_use_id.")
        if sorted(answered) != sorted(asked):
            raise BadInputError(
                f"messages[{i}] must answer each tool_use of the turn before exactly once "
                f"(asked: {_listed(asked)}, answered: {_listed(answered)})."
            )
        calls = [block for block in blocks if block["type"] == "tool_use"]
        if not all(isinstance(c.get("id"), str) and isinstance(c.get("name"), str) for c in calls):
            raise BadInputError(f"messages[{i}] has a tool_use block without id or name.")
        asked = [call["id"] for call in calls]
        if len(set(asked)) != len(asked) or seen & set(asked):
            raise BadInputError(f"messages[{i}] repeats a tool_use id.")
        seen.update(asked)


def _listed(ids: Sequence[str]) -> str:
    text = str(ids) if ids else "none"
    return text if len(text) <= 300 else f"{text[:300]}..."


def blocks_of(message: Message) -> list[dict[str, Any]]:
    """The content blocks of a message; a plain text counts as one text block."""
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def call_ids(messages: Iterable[Message]) -> set[str]:
    """Every ``tool_use`` id of the history."""
    return {
        block["id"]
        for message in messages
        if message["role"] == "assistant"
        for block in blocks_of(message)
        if block["type"] == "tool_use"
    }


def storable_answer(
    content: Sequence[dict[str, Any]], used_ids: set[str], seq: int
) -> tuple[list[dict[str, Any]], set[str]]:
    """The model's blocks as they are stored and sent back ever after.

    Thinking, signatures and unknown blocks stay as they came. Mended is only what the API would refuse in
    the next request: blank texts go, a tool input that is not an object becomes ``{}``, a call id that is
    missing, malformed or was used before gets one of ours, and so does a name that no tool could have.

    Args:
        used_ids: Ids already in the history; those of this answer are added.
        seq: Number of the message, for ids that have to be made up.

    Returns:
        The blocks, and the ids of calls whose input was not an object, or could not be kept as it was: they
        must not run.
    """
    kept: list[dict[str, Any]] = []
    unusable: set[str] = set()
    for index, block in enumerate(content):
        if block.get("type") == "text" and not str(block.get("text") or "").strip():
            continue
        if block.get("type") == "tool_use":
            call_id = block.get("id")
            if not _is_name(call_id) or call_id in used_ids:
                block = {**block, "id": _free_id(f"toolu_anvil_{seq}_{index}", used_ids)}
            if not _is_name(block.get("name")):
                block = {**block, "name": INVALID_NAME}
            if not isinstance(block.get("input"), dict):
                block = {**block, "input": {}}
                unusable.add(block["id"])
            elif exactjson.clean(block["input"], keep_nul=True) is not block["input"]:
                unusable.add(block["id"])
            used_ids.add(block["id"])
        kept.append(block)
    stored: list[dict[str, Any]] = exactjson.loads(exactjson.dumps(exactjson.clean(kept, keep_nul=True)))
    return stored, unusable


def _free_id(wanted: str, used_ids: set[str]) -> str:
    tries = (wanted, *(f"{wanted}_{number}" for number in range(len(used_ids))))
    return next(call_id for call_id in tries if call_id not in used_ids)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def open_calls(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """The ``tool_use`` blocks that no message answers yet: those of the assistant turn at the end.

    A turn that was paused goes on in the next assistant message, so all of these at the end count.
    """
    found: list[dict[str, Any]] = []
    for message in reversed(messages):
        if message["role"] != "assistant":
            break
        found[:0] = [block for block in blocks_of(message) if block["type"] == "tool_use"]
    return found


class Answered(Protocol):
    """A call that has its result."""

    @property
    def call_id(self) -> str:
        """Its id."""

    def result_block(self, toolset: str | None = None) -> dict[str, Any]:
        """The block that answers it; ``toolset`` is that of its ``tool_use``."""


def results_message(calls: Sequence[Answered], messages: Sequence[Message]) -> Message:
    """The one user message that answers all calls of the turn at the end of ``messages``, in block order."""
    toolsets = {block["id"]: block.get("toolset_name") for block in open_calls(messages)}
    return {"role": "user", "content": [call.result_block(toolsets.get(call.call_id)) for call in calls]}


def text_of(message: Message) -> str:
    """The text of a message's text blocks."""
    return "".join(b["text"] for b in blocks_of(message) if b["type"] == "text")


def final_text(messages: Sequence[Message]) -> str:
    """The text of the last assistant turn, or "" if the history does not end with one."""
    if not messages or messages[-1]["role"] != "assistant":
        return ""
    return text_of(messages[-1])
