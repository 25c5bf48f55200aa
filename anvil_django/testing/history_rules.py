"""The rules the Messages API enforces on a request, as far as one request alone can show.

The sentences follow the API's own where those are public. Rules that need the requests before are in
`anvil_django.testing.conversations`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_MESSAGES = 100_000
MAX_CACHE_MARKERS = 4
MAX_IMAGES = 100
SAMPLING_PARAMETERS = ("temperature", "top_p", "top_k")
#: Models that refuse a fixed thinking budget, disabled thinking and a forced tool.
CURRENT_MODELS = (
    "claude-fable-5-1",
    "claude-fable-5-2",
    "claude-mythos-5-1",
    "claude-mythos-5-2",
    "claude-opus-5-5",
    "claude-sonnet-5-5",
    "claude-haiku-5-5",
)
ROLES = ("user", "assistant", "system")
#: Blocks that only the model writes.
_ASSISTANT_ONLY = {"thinking", "redacted_thinking", "tool_use", "server_tool_use"}
#: Blocks that only the client writes.
_USER_ONLY = {"tool_result", "image", "document", "search_result"}
_PREFILL = (
    "This model does not support assistant message prefill. The conversation must end with a user message."
)
# Built once: ``json.dumps`` makes an encoder for every call with options.
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_CALLS = {"tool_use", "server_tool_use", "mcp_tool_use"}


@dataclass(frozen=True, slots=True)
class OpenCall:
    """A ``tool_use`` that the next user message has to answer."""

    toolset: str | None
    #: Called by code the API runs: only results may be in the message that answers it.
    programmatic: bool


@dataclass(frozen=True, slots=True)
class Standing:
    """What the messages so far leave for the next one to respect."""

    role: str | None = None
    calls: Mapping[str, OpenCall] = field(default_factory=dict)
    #: Call ids that the last message brought in.
    new_ids: tuple[str, ...] = ()
    images: int = 0


def canonical(value: object) -> str:
    """Compact JSON with keys in the order they came: two values are the same bytes when these are equal."""
    return _ENCODER.encode(value)


def violations(body: Mapping[str, Any], *, paused: bool = False) -> list[str]:
    """Every rule that a request body breaks by itself.

    Args:
        body: The parsed body of ``POST /v1/messages``.
        paused: Whether the last message may be an assistant turn, which the API allows only for a turn
            that it paused itself (``pause_turn``).

    Returns:
        One sentence per broken rule; empty when there is none.
    """
    problems = request_problems(body)
    problems += marker_problems(body)
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        return problems
    seen: set[str] = set()
    standing = Standing()
    for index, message in enumerate(messages):
        found, standing = check_message(index, message, standing, seen.__contains__)
        problems += found
        seen.update(standing.new_ids)
    return problems + ending_problems(standing, paused=paused)


def request_problems(body: Mapping[str, Any]) -> list[str]:
    """Rules on everything but the messages themselves."""
    problems = []
    model = body.get("model")
    if not isinstance(model, str) or not model:
        problems.append("model: Field required")
    limit = body.get("max_tokens")
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        problems.append("max_tokens: Field required, a positive integer")
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        problems.append("messages: at least one message is required")
    elif len(messages) > MAX_MESSAGES:
        problems.append(f"messages: at most {MAX_MESSAGES} messages are allowed")
    for name in SAMPLING_PARAMETERS:
        if name in body:
            problems.append(f"{name}: sampling parameters are not supported")
    if isinstance(model, str) and model.startswith(CURRENT_MODELS):
        thinking = body.get("thinking")
        if isinstance(thinking, dict) and "budget_tokens" in thinking:
            problems.append(f"thinking.budget_tokens: not supported by {model}")
        if isinstance(thinking, dict) and thinking.get("type") == "disabled":
            problems.append(f"thinking.type: disabled is not supported by {model}")
        choice = body.get("tool_choice")
        if isinstance(choice, dict) and choice.get("type") in ("any", "tool"):
            problems.append(f"tool_choice: a forced tool is not supported by {model}")
    tools = body.get("tools") or ()
    names = [str(tool["name"]) for tool in tools if isinstance(tool, dict) and "name" in tool]
    problems += [f"tools: Tool names must be unique: {name}" for name in _twice(names)]
    system = body.get("system")
    if isinstance(system, list):
        for index, block in enumerate(system):
            problems += _text_problems(f"system.{index}", block)
    return problems


def marker_problems(body: Mapping[str, Any]) -> list[str]:
    """The limit on ``cache_control``; the automatic one at the top of the body takes a slot."""
    count = sum(_markers(body.get(part)) for part in ("tools", "system", "messages"))
    count += body.get("cache_control") is not None
    if count > MAX_CACHE_MARKERS:
        return [f"A maximum of {MAX_CACHE_MARKERS} blocks with cache_control may be provided. Found {count}."]
    return []


def check_message(
    index: int, message: object, before: Standing, seen: Callable[[str], bool]
) -> tuple[list[str], Standing]:
    """Rules on one message, given what came before it.

    Args:
        index: Position in ``messages``, for the sentences.
        message: The message.
        before: What the message before it left.
        seen: Whether a call id is in an earlier message.

    Returns:
        The sentences, and what this message leaves for the next.
    """
    at = f"messages.{index}"
    if not isinstance(message, dict) or message.get("role") not in ROLES:
        return [f"{at}.role: must be one of user, assistant, system"], before
    extra = [key for key in message if key not in ("role", "content")]
    problems = [f"{at}.{key}: Extra inputs are not permitted" for key in extra]
    role: str = message["role"]
    content = message.get("content")
    if isinstance(content, str):
        blocks: list[Any] = [{"type": "text", "text": content}]
    elif isinstance(content, list):
        blocks = content
    else:
        return [*problems, f"{at}.content: Input should be a string or a list of blocks"], before
    if not blocks:
        problems.append(f"{at}: {role} messages must have non-empty content")
    try:
        canonical(message).encode()
    except UnicodeEncodeError:
        problems.append(f"{at}: The request body is not valid JSON: no low surrogate in string")
    for position, block in enumerate(blocks):
        problems += _block_problems(f"{at}.content.{position}", role, block)
    blocks = [block for block in blocks if isinstance(block, dict)]
    problems += _order_problems(at, role, before)
    if role == "assistant":
        found, standing = _after_assistant(at, blocks, before, seen)
    else:
        found, standing = _after_user(at, role, blocks, before)
    images = before.images + sum(block.get("type") == "image" for block in _nested(blocks))
    if images > MAX_IMAGES >= before.images:
        problems.append(f"{at}: at most {MAX_IMAGES} images are allowed in a request")
    return problems + found, Standing(standing.role, standing.calls, standing.new_ids, images)


def ending_problems(standing: Standing, *, paused: bool) -> list[str]:
    """Rules on how the messages end."""
    if standing.role == "assistant" and not paused:
        return [_PREFILL]
    return []


def _order_problems(at: str, role: str, before: Standing) -> list[str]:
    if role == "system" and before.role not in ("user", "system"):
        return [f"{at}: a system message must come after a user message"]
    if role == "user" and before.role == "system":
        return [f"{at}: a system message must not come directly before a user message"]
    if role == "assistant" and before.role is None:
        return [f'{at}: first message must use the "user" role']
    return []


def _after_assistant(
    at: str, blocks: list[dict[str, Any]], before: Standing, seen: Callable[[str], bool]
) -> tuple[list[str], Standing]:
    problems = []
    # The API merges assistant messages in a row, so the calls of a paused turn stay open.
    calls = dict(before.calls) if before.role == "assistant" else {}
    if before.role != "assistant" and before.calls:
        problems.append(_unanswered(at, before.calls))
    ids: list[str] = []
    for block in blocks:
        if block.get("type") not in _CALLS:
            continue
        call_id = str(block.get("id"))
        if call_id in ids or seen(call_id):
            problems.append(f"{at}: `tool_use` ids must be unique: {call_id}")
        ids.append(call_id)
        if block["type"] == "tool_use":
            caller = block.get("caller")
            programmatic = isinstance(caller, dict) and caller.get("type") != "direct"
            calls[call_id] = OpenCall(block.get("toolset_name"), programmatic)
    return problems, Standing("assistant", calls, tuple(ids))


def _after_user(
    at: str, role: str, blocks: list[dict[str, Any]], before: Standing
) -> tuple[list[str], Standing]:
    problems = []
    results = [block for block in blocks if block.get("type") == "tool_result"]
    answered = [str(block.get("tool_use_id")) for block in results]
    for call_id in _twice(answered):
        problems.append(
            f"{at}: each tool_use must have a single result. "
            f"Found multiple `tool_result` blocks with id: {call_id}"
        )
    for block in results:
        call = before.calls.get(str(block.get("tool_use_id")))
        if call is None:
            problems.append(
                f"{at}: unexpected `tool_use_id` found in `tool_result` blocks: {block.get('tool_use_id')}. "
                "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
            )
        elif call.toolset != block.get("toolset_name"):
            problems.append(
                f"{at}: the result of {block['tool_use_id']} must carry toolset_name {call.toolset!r}"
            )
    missing = {call_id: call for call_id, call in before.calls.items() if call_id not in answered}
    if missing:
        problems.append(_unanswered(at, missing))
    if any(block.get("type") != "tool_result" for block in blocks[: len(results)]):
        problems.append(f"{at}: `tool_result` blocks must come first in the message")
    if len(results) < len(blocks) and any(call.programmatic for call in before.calls.values()):
        problems.append(f"{at}: with programmatic tool calls pending, only `tool_result` blocks are allowed")
    return problems, Standing(role)


def _unanswered(at: str, calls: Mapping[str, OpenCall]) -> str:
    return (
        f"{at}: `tool_use` ids were found without `tool_result` blocks immediately after: "
        f"{', '.join(calls)}. "
        "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
    )


def _block_problems(at: str, role: str, block: object) -> list[str]:
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        return [f"{at}: a block must be an object with a type"]
    kind: str = block["type"]
    problems = []
    if role == "system" and kind != "text":
        problems.append(f"{at}: system messages hold text only, not {kind}")
    elif kind in _ASSISTANT_ONLY and role != "assistant":
        problems.append(f"{at}: `{kind}` blocks can only be in `assistant` messages")
    elif kind in _USER_ONLY and role != "user":
        problems.append(f"{at}: `{kind}` blocks can only be in `user` messages")
    if "parsed_output" in block:
        problems.append(f"{at}.parsed_output: Extra inputs are not permitted")
    if kind == "text":
        problems += _text_problems(at, block)
        if role == "user" and block.get("citations") is not None:
            problems.append(f"{at}.citations: not permitted on text in user messages")
    elif kind == "thinking":
        if not isinstance(block.get("thinking"), str):
            problems.append(f"{at}.thinking: Field required")
        if not isinstance(block.get("signature"), str) or not block["signature"]:
            problems.append(f"{at}.signature: Field required")
    elif kind == "redacted_thinking":
        if not isinstance(block.get("data"), str) or not block["data"]:
            problems.append(f"{at}.data: Field required")
    elif kind in _CALLS:
        absent = [key for key in ("id", "name") if not isinstance(block.get(key), str)]
        problems += [f"{at}.{key}: Field required" for key in absent]
        if not isinstance(block.get("input"), dict):
            problems.append(f"{at}.input: Input should be an object")
    elif kind == "tool_result":
        problems += _result_problems(at, block)
    return problems


def _result_problems(at: str, block: dict[str, Any]) -> list[str]:
    problems = []
    if not isinstance(block.get("tool_use_id"), str):
        problems.append(f"{at}.tool_use_id: Field required")
    content = block.get("content")
    if isinstance(content, list):
        for position, part in enumerate(content):
            if isinstance(part, dict) and part.get("type") == "text":
                problems += _text_problems(f"{at}.content.{position}", part)
    elif content is not None and not isinstance(content, str):
        problems.append(f"{at}.content: Input should be a string or a list of blocks")
    return problems


def _text_problems(at: str, block: object) -> list[str]:
    value = block.get("text") if isinstance(block, dict) else None
    if not isinstance(value, str):
        return [f"{at}.text: Input should be a string"]
    if not value:
        return [f"{at}: text content blocks must be non-empty"]
    if not value.strip():
        return [f"{at}: text content blocks must contain non-whitespace text"]
    return []


def _nested(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The blocks, and those inside tool results."""
    found = list(blocks)
    for block in blocks:
        if isinstance(block.get("content"), list):
            found += [part for part in block["content"] if isinstance(part, dict)]
    return found


def _markers(value: object) -> int:
    """How many blocks carry ``cache_control``; arguments and schemas are not blocks."""
    if isinstance(value, list):
        return sum(_markers(item) for item in value)
    if isinstance(value, dict):
        return (value.get("cache_control") is not None) + _markers(value.get("content"))
    return 0


def _twice(values: list[str]) -> list[str]:
    """The values that are there more than once, once each."""
    counts: dict[str, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return [value for value, count in counts.items() if count > 1]
