"""The request of one model call: the frozen prefix, the history, and where the API may cache it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .errors import AgentDefinitionError

# Fields of the request that have a home of their own in the prefix or in the run.
_RESERVED = frozenset({"model", "max_tokens", "messages", "system", "tools", "stream"})
# What the SDK's own signature knows. Any other parameter (those of a beta, mostly) travels in `extra_body`.
_SDK_PARAMS = frozenset(
    {
        "cache_control",
        "container",
        "diagnostics",
        "extra_body",
        "extra_headers",
        "extra_query",
        "inference_geo",
        "metadata",
        "output_config",
        "service_tier",
        "speed",
        "stop_sequences",
        "thinking",
        "timeout",
        "tool_choice",
        "user_profile_id",
        "workspace_id",
    }
)
_BETA_HEADER = "anthropic-beta"
# The API takes four markers in a request, and automatic caching needs one of them.
_MARKERS = 3


def build_request(
    prefix: Mapping[str, Any], messages: list[dict[str, Any]], *, container: str | None = None
) -> dict[str, Any]:
    """The arguments of ``client.messages.stream(...)``.

    Args:
        prefix: The frozen request prefix of an agent version: ``model``, ``max_tokens``, ``system`` (a list
            of blocks or None), ``tools``, ``params`` (all other parameters of the request) and ``cache``
            ("5m", "1h" or None for no caching). It is not changed.
        messages: The history; the same list is sent, not a copy.
        container: Id of the container that the last answer named.

    Returns:
        A new dict. The prompt in it depends on the arguments alone, so that the same history gives the same
        bytes before and after a restart.

    Raises:
        AgentDefinitionError: ``params`` sets what has a field of its own, such as ``model`` or ``tools``.
    """
    params = dict(prefix.get("params") or {})
    if taken := sorted(_RESERVED & params.keys()):
        raise AgentDefinitionError(
            f"The parameters of an agent cannot set {', '.join(taken)}. Use the agent's own fields for these."
        )
    request: dict[str, Any] = {
        "model": prefix["model"],
        "max_tokens": prefix["max_tokens"],
        "messages": messages,
    }
    system, tools = list(prefix.get("system") or []), list(prefix.get("tools") or [])
    if prefix.get("cache"):
        marker = _cache_marker(prefix["cache"])
        # Automatic caching: marks the end of the history, and moves forward with it.
        request["cache_control"] = marker
        _mark_prefix(system, tools, marker)
    if system:
        request["system"] = system
    if tools:
        request["tools"] = tools

    betas = params.pop("betas", None)
    extra_body = dict(params.pop("extra_body", None) or {})
    for name, value in params.items():
        (request if name in _SDK_PARAMS else extra_body)[name] = value
    if extra_body:
        request["extra_body"] = extra_body
    if betas:
        request["extra_headers"] = _with_betas(params.get("extra_headers") or {}, betas)
    if container is not None:
        # A container with skills is an object that carries the id beside them.
        asked = params.get("container")
        request["container"] = {**asked, "id": container} if isinstance(asked, Mapping) else container
    return request


def _cache_marker(ttl: str) -> dict[str, str]:
    return {"type": "ephemeral", "ttl": "1h"} if ttl == "1h" else {"type": "ephemeral"}


def _mark_prefix(system: list[Any], tools: list[Any], marker: dict[str, str]) -> None:
    """Let the cache end after the frozen prefix too: it is shared by all runs of the agent version.

    The prompt begins with the tools, so a marker on the last system block covers both.
    """
    if sum("cache_control" in block for block in (*system, *tools)) >= _MARKERS:
        return
    for blocks in (system, tools):
        for index in reversed(range(len(blocks))):
            block = blocks[index]
            # The API refuses a marker on an empty text and on a tool that is loaded later.
            if block.get("defer_loading") or (block.get("type") == "text" and not block["text"].strip()):
                continue
            if "cache_control" not in block:
                blocks[index] = {**block, "cache_control": marker}
            return


def _with_betas(headers: Mapping[str, str], betas: str | list[str]) -> dict[str, str]:
    merged = {name: value for name, value in headers.items() if name.lower() != _BETA_HEADER}
    given = [value for name, value in headers.items() if name.lower() == _BETA_HEADER]
    named = [*given, *([betas] if isinstance(betas, str) else betas)]
    parts = [part.strip() for value in named for part in value.split(",")]
    merged[_BETA_HEADER] = ",".join(dict.fromkeys(part for part in parts if part))
    return merged
