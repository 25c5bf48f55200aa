"""How a run ended, and what is different from how it ended another time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Self

from anvil_django import exactjson
from anvil_django.checkpoint import AgentCheckpoint
from anvil_django.testing.comparison import blocks_of, difference


@dataclass(frozen=True, kw_only=True)
class Ending:
    """One run of a scenario, and what it left in the world."""

    status: str
    stop_reason: str
    error_code: str
    iterations: int
    usage: str
    cost_usd: str
    messages: list[dict[str, Any]]
    #: The effects before and after the run, as text, sorted.
    start: list[str]
    effects: list[str]
    #: The boundaries, in order, up to the crash.
    reached: list[str]
    #: The tools whose calls were in doubt.
    doubts: list[str]
    #: The calls of which the model was told that their outcome is unknown.
    unknown: list[str]
    #: What the Messages API found wrong.
    problems: list[str]

    @classmethod
    def of(cls, checkpoint: AgentCheckpoint, **more: Any) -> Self:
        """The ending of a run as it is stored."""
        return cls(
            status=str(checkpoint.status),
            stop_reason=checkpoint.stop_reason,
            error_code=checkpoint.error_code,
            iterations=checkpoint.iterations,
            usage=str(checkpoint.total_usage),
            cost_usd=str(checkpoint.total_cost_usd),
            messages=checkpoint.messages,
            **more,
        )


def result_of(ending: Ending, call_id: str) -> str | list[dict[str, Any]] | None:
    """What the model was told about a call; None when it was told nothing."""
    for message in ending.messages:
        for block in blocks_of(message):
            if block.get("type") == "tool_result" and block.get("tool_use_id") == call_id:
                content: str | list[dict[str, Any]] = block["content"]
                return content
    return None


def differences(before: Ending, now: Ending) -> list[str]:
    """What is different now, a sentence each.

    A tool with ``on_interrupt="fail"`` may leave a call whose outcome nobody knows. Its result, what that
    costs, and whether its effect took place may then differ; that it took place twice may not.
    """
    unknown = set(now.unknown) - set(before.unknown)
    names = ["status", "stop_reason", "error_code", "iterations"]
    if not unknown:  # A result of another length is another number of tokens.
        names += ["usage", "cost_usd"]
    found = [
        f"{name} was {getattr(before, name)!r} and is now {getattr(now, name)!r}"
        for name in names
        if getattr(before, name) != getattr(now, name)
    ]
    found += effect_differences(before.effects, now.effects, may_lack=bool(unknown))
    found += history_differences(before.messages, now.messages, unknown)
    return found + now.problems


def effect_differences(before: Sequence[str], now: Sequence[str], *, may_lack: bool = False) -> list[str]:
    """Which effects took place more or less often than they should have."""
    wanted, got = Counter(before), Counter(now)
    return [
        f"an effect took place {_times(got[effect])} and not {_times(wanted[effect])}: {effect}"
        for effect in sorted({*wanted, *got})
        if got[effect] > wanted[effect] or (got[effect] < wanted[effect] and not may_lack)
    ]


def history_differences(
    before: Sequence[dict[str, Any]], now: Sequence[dict[str, Any]], unknown: set[str]
) -> list[str]:
    """The first message that is not, byte for byte, what it was; results of ``unknown`` calls aside."""
    for index, (old, new) in enumerate(zip_longest(before, now)):
        if old is None or new is None:
            return [f"the history had {len(before)} messages and has now {len(now)}"]
        old, new = (exactjson.dumps(_without_results(message, unknown)) for message in (old, new))
        if old != new:
            return [f"messages.{index} is not what it was. {difference(old, new)}"]
    return []


def _without_results(message: dict[str, Any], unknown: set[str]) -> dict[str, Any]:
    if not any(block.get("tool_use_id") in unknown for block in blocks_of(message)):
        return message
    blocks = [
        {"tool_use_id": block["tool_use_id"]} if block.get("tool_use_id") in unknown else block
        for block in message["content"]
    ]
    return {**message, "content": blocks}


def _times(number: int) -> str:
    return {0: "never", 1: "once", 2: "twice"}.get(number, f"{number} times")
