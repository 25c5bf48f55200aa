"""When two messages, or two parts of a request, count as the same to the Messages API."""

from __future__ import annotations

from typing import Any

from anvil_django.testing.history_rules import canonical

THINKING = ("thinking", "redacted_thinking")


def role_of(message: Any) -> str | None:
    return message.get("role") if isinstance(message, dict) else None


def content_of(message: Any) -> Any:
    return message.get("content") if isinstance(message, dict) else None


def blocks_of(message: Any) -> list[dict[str, Any]]:
    content = content_of(message)
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []


def has_thinking(message: Any) -> bool:
    return any(block.get("type") in THINKING for block in blocks_of(message))


def marks_of(content: object) -> list[str]:
    """What ties a turn to its conversation: the ids of calls and the signatures of thinking."""
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    marks = [block.get("id") or block.get("signature") or block.get("data") for block in blocks]
    return [mark for mark in marks if isinstance(mark, str)]


def is_without_leading_thinking(message: Any, answer: Any) -> bool:
    """Whether the message is the answer with its first thinking blocks left out."""
    blocks = list(blocks_of(answer))
    wanted = normal(message)
    while (at := next((i for i, b in enumerate(blocks) if b.get("type") in THINKING), None)) is not None:
        del blocks[at]
        if normal({"role": "assistant", "content": blocks}) == wanted:
            return True
    return False


def long_form(content: object) -> object:
    """A string as the list of one text block that it is short for, without ``cache_control``."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return _strip(content)


def same_in_long_form(one: Any, other: Any) -> bool:
    # A marker needs a block to sit on, so marking a plain string turns it into one.
    return canonical(long_form(content_of(one))) == canonical(long_form(content_of(other)))


def _strip(value: Any) -> Any:
    if isinstance(value, list):
        return [_strip(item) for item in value]
    if isinstance(value, dict):
        # Arguments are the model's own words: a key of that name in them is no marker.
        return {k: v if k == "input" else _strip(v) for k, v in value.items() if k != "cache_control"}
    return value


def without_key(value: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: item for key, item in value.items() if key != name}


def without_markers(value: Any) -> str:
    return canonical(_strip(value))


def normal(message: Any) -> str:
    """An assistant turn as text that is free of the key order of its blocks, except inside ``input``."""
    content = message.get("content")
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if isinstance(content, list):
        content = [block for block in content if not _is_blank(block)]
    return canonical(_sorted(_strip(content)))


def _is_blank(block: Any) -> bool:
    if not isinstance(block, dict) or block.get("type") != "text":
        return False
    return isinstance(block.get("text"), str) and not block["text"].strip()


def _sorted(value: Any) -> Any:
    if isinstance(value, list):
        return [_sorted(item) for item in value]
    if isinstance(value, dict):
        return {key: value[key] if key == "input" else _sorted(value[key]) for key in sorted(value)}
    return value


def changed(index: int, before: str, now: str) -> str:
    return f"messages.{index}: not what it was before in this conversation. {difference(before, now)}"


def difference(before: str, now: str) -> str:
    """Both texts from shortly before the first place where they differ."""
    pairs = enumerate(zip(before, now, strict=False))
    at = next((i for i, (one, other) in pairs if one != other), min(len(before), len(now)))
    start = max(0, at - 30)
    return f"It was ...{shortened(before[start:])} and is now ...{shortened(now[start:])}"


def shortened(text: str) -> str:
    return text if len(text) <= 120 else text[:117] + "..."
