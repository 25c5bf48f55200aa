"""The model in the process: a client that answers from the workload, at once or after the job's wait."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any, Self

from .. import workload
from ..workload import Job

MODEL = "claude-sonnet-5-5"


class ScriptedClient:
    """Anything with ``.messages.stream(**request)`` is a client; it keeps the last request's history."""

    def __init__(self) -> None:
        self.messages = self
        self.last: list[dict[str, Any]] = []

    def stream(self, **request: Any) -> ScriptedStream:
        """One model call."""
        history = request["messages"]
        i, job = (len(history) - 1) // 2, Job.of(opening_of(history))
        if job.stamp and i == 0:
            note_stamp()
        workload.model_called(job, i, len(history))
        self.last = history
        if job.wait:
            time.sleep(job.wait)
        return ScriptedStream(job, i)


class ScriptedStream:
    """An answer that is whole from the start."""

    request_id = "req_bench"

    def __init__(self, job: Job, i: int) -> None:
        self._job, self._i = job, i

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None: ...

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def get_final_message(self) -> Self:
        """What the SDK's stream gives when it is over."""
        return self

    def to_dict(self, **kwargs: Any) -> dict[str, Any]:
        """The message as the API would send it."""
        ended = self._i == self._job.n - 1
        return {
            "id": f"msg_{self._i}",
            "type": "message",
            "role": "assistant",
            "model": MODEL,
            "content": workload.blocks(self._job, self._i),
            "stop_reason": "end_turn" if ended else "tool_use",
            "usage": {"input_tokens": 10, "output_tokens": 5},
        }


def opening_of(history: list[dict[str, Any]]) -> str:
    """The text of the first message."""
    content = history[0]["content"]
    return content if isinstance(content, str) else str(content[0]["text"])


def note_stamp() -> None:
    """Append the time to the file of the environment, whole or not at all."""
    with open(os.environ["ANVIL_BENCH_STAMPS"], "ab", buffering=0) as stamps:
        stamps.write(f"{time.time()!r}\n".encode())
