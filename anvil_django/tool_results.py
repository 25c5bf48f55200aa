"""What a tool call came to: whatever the function returned or raised, as content the API accepts."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from . import exactjson
from .errors import ApprovalRequiredError, NotJSONError
from .tool_schema import reasons

Content: TypeAlias = str | list[dict[str, Any]]
Kind: TypeAlias = Literal["returned", "failed", "needs_approval", "timed_out", "unstorable"]

NO_OUTPUT = "(no output)"
"""The API refuses empty content, so a tool that returns nothing says so."""

MAX_ERROR_CHARS = 2000

_MARKER = "cache_control"

# What a list of content blocks is told by: the field each type must have, the type of that field, and what
# else it may have.
_BLOCK_FIELDS: dict[str, tuple[str, type, frozenset[str]]] = {
    "text": ("text", str, frozenset()),
    "image": ("source", dict, frozenset()),
    "document": ("source", dict, frozenset({"title", "context", "citations"})),
    "search_result": ("content", list, frozenset({"source", "title", "citations"})),
    "tool_reference": ("tool_name", str, frozenset()),
}


@dataclass(frozen=True, kw_only=True)
class ToolOutcome:
    """What one call of a tool came to.

    Args:
        kind: ``returned``: the function returned. ``failed``: it raised. ``needs_approval``: it asked for a
            person. ``timed_out``: it was not finished in time and may still be at work. ``unstorable``: it
            finished, but its result cannot be stored.
        content: For ``tool_result.content``: encoded, cleaned and within the size limit; never empty.
        payload: What the person who decides should see; clean JSON, for ``needs_approval`` only.
        error: The class of the exception, for logs; empty where none was raised.
    """

    kind: Kind
    content: Content
    payload: Any = None
    error: str = ""

    @property
    def is_error(self) -> bool:
        """Whether the model should be told that the call went wrong."""
        return self.kind != "returned"


def returned(value: Any, limit: int, *, name: str, changes_the_world: bool) -> ToolOutcome:
    """The outcome of a call that returned ``value``.

    Args:
        value: What the function returned.
        limit: Most characters of the content.
        name: The tool, for the sentence that says its result cannot be stored.
        changes_the_world: Whether the tool is a side effect, which must not be repeated for its result.
    """
    try:
        return ToolOutcome(kind="returned", content=as_content(value, limit))
    except NotJSONError as exc:
        reason, error = str(exc), type(exc).__name__
    except Exception as exc:  # noqa: BLE001 - encoding runs the value's own code, which may raise anything
        reason, error = f"result could not be read ({type(exc).__name__})", type(exc).__name__
    if changes_the_world:
        told = (
            f"{name} ran to its end and its effect has happened, but its result cannot be stored: {reason} "
            "Do not call it again for that reason."
        )
    else:
        told = f"{name} returned something that cannot be stored: {reason}"
    return ToolOutcome(kind="unstorable", content=cut(exactjson.clean_text(told), limit), error=error)


def failed(exc: BaseException, limit: int) -> ToolOutcome:
    """The outcome of a call that raised ``exc``: its class and message, never a traceback."""
    error = type(exc).__name__
    content: Content | None = None
    if _is_sdk_tool_error(exc):
        content = _error_content(getattr(exc, "content", None), limit)
    if content is None:
        content = cut(_told(exc, error), min(limit, MAX_ERROR_CHARS))
    return ToolOutcome(kind="failed", content=content, error=error)


def failed_because(sentence: str, limit: int, *, error: str = "") -> ToolOutcome:
    """The outcome of a call that went wrong for a reason of this package."""
    return ToolOutcome(kind="failed", content=cut(sentence, limit), error=error)


def needs_approval(request: ApprovalRequiredError, limit: int) -> ToolOutcome:
    """The outcome of a call that asked for a person, whether or not its payload can be stored."""
    try:
        payload = exactjson.encode(request.payload, path="payload")
        text = exactjson.readable(payload)
        if len(text) > limit:
            payload = {"cut": f"[cut: {limit} of {len(text)} characters]", "text": text[:limit]}
    except Exception as exc:  # noqa: BLE001 - the payload's own code may raise anything
        why = str(exc) if isinstance(exc, NotJSONError) else type(exc).__name__
        payload = {"note": exactjson.clean_text(f"The payload cannot be stored: {why}")}
    return ToolOutcome(
        kind="needs_approval",
        content="This call waits for a person's approval.",
        payload=payload,
        error=type(request).__name__,
    )


def timed_out(name: str, seconds: float, limit: int, *, changes_the_world: bool) -> ToolOutcome:
    """The outcome of a call that was not finished after ``seconds``."""
    told = f"{name} was not finished after {seconds:g} seconds."
    if changes_the_world:
        told += " It is not known whether its effect has happened or will still happen."
    return ToolOutcome(kind="timed_out", content=cut(told, limit), error="TimeoutError")


def as_content(value: Any, limit: int) -> Content:
    """Turn what a tool returned into the content of a ``tool_result`` block, at most ``limit`` characters.

    Raises:
        NotJSONError: The value has no JSON form; the path begins with ``result``.
    """
    if value is None:
        return NO_OUTPUT
    clean = exactjson.encode(value, path="result")
    if isinstance(clean, str):
        return cut(clean, limit) if clean.strip() else NO_OUTPUT
    if are_blocks(clean):
        return cut_blocks(_unmarked(clean), limit)
    return cut(exactjson.readable(clean), limit)


def are_blocks(value: Any) -> bool:
    """Whether the value is a list of the content blocks a tool result may hold.

    The type alone is not enough: a site's own rows may have a ``type`` that is ``"document"``, and a
    malformed block in the history is refused by the API forever.
    """
    return isinstance(value, list) and bool(value) and all(map(_is_block, value))


def cut(text: str, limit: int) -> str:
    """At most ``limit`` characters of the text; where some are left out, a note inside says how many."""
    if len(text) <= limit:
        return text
    kept = limit
    while True:
        note = f"\n[cut: {kept} of {len(text)} characters]"
        fits = max(0, limit - len(note))
        if fits >= kept:
            return text[:kept] + note
        kept = fits


def cut_blocks(blocks: list[dict[str, Any]], limit: int) -> Content:
    """The blocks with about ``limit`` characters in all; blank text is dropped, which the API refuses.

    Text is cut, any other block that is too large gives way to a note, and once nothing fits any more a last
    note counts the rest.
    """
    kept: list[dict[str, Any]] = []
    left = limit
    omitted = 0
    for block in blocks:
        is_text = block["type"] == "text"
        if is_text and not block["text"].strip():
            continue
        if left <= 0:
            omitted += 1
            continue
        size = len(block["text"]) if is_text else len(exactjson.readable(block))
        if size > left and is_text:
            block, size = {**block, "text": cut(block["text"], left).strip()}, left
        elif size > left:
            block = _note(f"[left out: {block['type']} of {size} characters, limit {limit}]")
            size = len(block["text"])
        left -= size
        kept.append(block)
    if omitted:
        kept.append(_note(f"[left out: {omitted} more blocks, limit {limit} characters]"))
    return kept or NO_OUTPUT


def _is_block(value: Any) -> bool:
    if not isinstance(value, dict) or not isinstance(kind := value.get("type"), str):
        return False
    if kind not in _BLOCK_FIELDS:
        return False
    field, wanted, more = _BLOCK_FIELDS[kind]
    return isinstance(value.get(field), wanted) and value.keys() <= {"type", field, _MARKER, *more}


def _unmarked(value: Any) -> Any:
    """Without cache markers: the API takes four in a request, and a history with more is refused forever."""
    if isinstance(value, dict):
        return {key: _unmarked(part) for key, part in value.items() if key != _MARKER}
    return [_unmarked(part) for part in value] if isinstance(value, list) else value


def _note(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _told(exc: BaseException, error: str) -> str:
    # The SDK's own tools hide pydantic's reasons, which the model needs, behind a sentence without any.
    if (cause := exc.__cause__) is not None and type(cause).__name__ == "ValidationError":
        try:
            return exactjson.clean_text(f"{exc}\n" + "\n".join(f"- {line}" for line in reasons(cause)))  # type: ignore[arg-type]
        except Exception:  # noqa: BLE001, S110 - another library's ValidationError; fall through to its message
            pass
    try:
        message = str(exc).strip()
    except Exception:  # noqa: BLE001 - the exception's own code
        message = ""
    return exactjson.clean_text(f"{error}: {message}" if message else error)


def _is_sdk_tool_error(exc: BaseException) -> bool:
    # A tool that raised one has imported the module; everybody else is spared the import.
    tools = sys.modules.get("anthropic.lib.tools")
    kind = getattr(tools, "ToolError", None)
    return isinstance(kind, type) and isinstance(exc, kind)


def _error_content(value: Any, limit: int) -> Content | None:
    try:
        content = as_content(value, limit)
    except Exception:  # noqa: BLE001 - the caller falls back to the exception's message
        return None
    if isinstance(content, str):
        return content
    # The API refuses anything but text in a result with is_error.
    return [
        block
        if block["type"] == "text"
        else _note(f"[left out: {block['type']}; an error can hold only text]")
        for block in content
    ]
