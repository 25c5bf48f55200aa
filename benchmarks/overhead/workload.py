"""The work of every contestant: a run of N model calls whose texts and results depend on their number alone.

Calls 0 to N-2 answer with a text of the job's size and ask for tools; each tool returns JSON text of that
size. Call N-1 answers with a text, and the run is over. The model looks at every request: a history that is
not what it must be at that call ends the measurement.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

SHAPES = {
    "read": ("lookup",),
    "effect": ("post",),
    "effects4": ("post",) * 4,
    "atomic": ("book",),
    "approval": ("ask",),
}
"""The tools that every turn but the last asks for."""

_VOCABULARY = """
    anchor barrel canvas dagger ember falcon garden harbor island jacket kettle ladder marble needle
    orchard pillow quarry ribbon saddle timber umbrella velvet walnut yarrow zephyr bridge copper dapper
    engine forest glacier hollow ivory jungle kernel lantern meadow nickel oyster pepper quiver rocket
""".split()  # noqa: SIM905 (a list of so many strings is no easier to read)


class WrongRunError(Exception):
    """A contestant has lost, doubled or changed something: its figures mean nothing."""


@dataclass(frozen=True)
class Job:
    """One run.

    Args:
        n: How many model calls.
        shape: One of ``SHAPES``.
        size: Characters of each text and each tool result.
        wait: Seconds that the model takes for an answer.
        stamp: Whether the first model call is noted in ``ANVIL_BENCH_STAMPS``.
    """

    n: int
    shape: str = "read"
    size: int = 1024
    wait: float = 0.0
    stamp: bool = False

    def opening(self, key: str) -> str:
        """The first message of the run ``key``, from which the model knows the job."""
        what = f"n={self.n} shape={self.shape} size={self.size}"
        return f"{key}: {what} wait={self.wait:g} stamp={int(self.stamp)}"

    @classmethod
    @cache
    def of(cls, opening: str) -> Job:
        """The job that an opening speaks of."""
        said = dict(re.findall(r"(\w+)=(\S+)", opening))
        return cls(
            int(said["n"]), said["shape"], int(said["size"]), float(said["wait"]), said["stamp"] == "1"
        )

    @property
    def tools(self) -> tuple[str, ...]:
        return SHAPES[self.shape]

    @property
    def messages(self) -> int:
        """Messages of the history when the run is over."""
        return 2 * self.n

    def short(self) -> Job:
        """The same work, a third as long."""
        return replace(self, n=max(2, self.n // 3))

    def prepare(self) -> None:
        """Make every text and result, so that no contestant is timed while that is done."""
        for i in range(self.n):
            text(i, self.size)
            for seq in self.seqs(i):
                result(seq, self.size)

    def seqs(self, i: int) -> range:
        """The numbers of the tool calls that model call ``i`` asks for."""
        k = len(self.tools)
        return range(i * k, (i + 1) * k) if i < self.n - 1 else range(0)

    def expected_calls(self, runs: int = 1) -> list[int]:
        """What ``CALLS`` holds, sorted, after so many runs."""
        return sorted([*range((self.n - 1) * len(self.tools))] * runs)


@cache
def text(i: int, size: int) -> str:
    """What the model says at call ``i``."""
    dice, words = random.Random(f"text {i} {size}"), [f"Turn {i}:"]
    length = len(words[0])
    while length < size:
        words.append(dice.choice(_VOCABULARY))
        length += len(words[-1]) + 1
    return " ".join(words)[:size]


@cache
def result(seq: int, size: int) -> str:
    """What tool call ``seq`` returns: JSON text."""
    dice, rows, length = random.Random(f"result {seq} {size}"), [], 40
    while length < size:
        rows.append({"key": dice.randrange(10**8), "label": " ".join(dice.choices(_VOCABULARY, k=5))})
        length += len(json.dumps(rows[-1])) + 2
    return json.dumps({"seq": seq, "rows": rows})


CALLS: list[int] = []
"""The side effect of every tool: its number."""


def perform(seq: int, size: int) -> str:
    """Run a tool."""
    CALLS.append(seq)
    return result(seq, size)


STAMPS: list[int] = []
"""When each model call arrived, in nanoseconds of ``perf_counter_ns``."""

at_call: Callable[[int, int], None] | None = None
"""Called at each model call with its number and the length of the history."""


def model_called(job: Job, i: int, history_length: int) -> None:
    """Note a model call.

    Raises:
        WrongRunError: The history has not the length that it must have at that call.
    """
    STAMPS.append(time.perf_counter_ns())
    if history_length != 1 + 2 * i or i >= job.n:
        raise WrongRunError(f"Model call {i} of {job.n} came with {history_length} messages.")
    if at_call is not None:
        at_call(i, history_length)


def check_calls(job: Job, runs: int = 1) -> None:
    """Look whether each tool ran exactly once.

    Raises:
        WrongRunError: It did not.
    """
    if sorted(CALLS) != job.expected_calls(runs):
        raise WrongRunError(f"{len(CALLS)} tool calls, expected {len(job.expected_calls(runs))}, each once.")


def blocks(job: Job, i: int) -> list[dict[str, Any]]:
    """The content of the model's answer to call ``i``, as the Messages API has it."""
    found: list[dict[str, Any]] = [{"type": "text", "text": text(i, job.size)}]
    for tool, seq in zip(job.tools, job.seqs(i), strict=False):
        given = {"seq": seq} if job.size == 1024 else {"seq": seq, "size": job.size}
        found.append({"type": "tool_use", "id": f"call_{seq}", "name": tool, "input": given})
    return found


def check_history(job: Job, messages: Sequence[dict[str, Any]]) -> None:
    """Look whether the history that was sent at the last call is the one of this job, word for word.

    Raises:
        WrongRunError: It is not.
    """
    for i in range(job.n - 1):
        asked, answered = messages[1 + 2 * i], messages[2 + 2 * i]
        if asked["content"] != blocks(job, i):
            raise WrongRunError(f"The answer of model call {i} has changed: {str(asked)[:300]}")
        results = [(block["tool_use_id"], _text_of(block)) for block in answered["content"]]
        if results != [(f"call_{seq}", result(seq, job.size)) for seq in job.seqs(i)]:
            raise WrongRunError(f"The results of turn {i} are not those of its tools: {str(answered)[:300]}")


def _text_of(block: dict[str, Any]) -> str:
    content = block["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)
