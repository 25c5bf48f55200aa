"""A bare loop around the SDK over real HTTP: it stores nothing, and shows what the SDK itself costs."""

from __future__ import annotations

import os
from typing import Any

from anvil_django import exactjson
from anvil_django.model_request import build_request

from .. import workload
from ..agents import AGENT
from ..workload import Job, WrongRunError


def server_url() -> str:
    """Where the scripted server is; empty: nowhere."""
    return os.environ.get("ANVIL_BENCH_API", "")


def sdk_client() -> Any:
    """The SDK's client of the scripted server."""
    import anthropic

    from anvil_django.testing.loopback import loopback_http

    return anthropic.Anthropic(
        base_url=server_url(), api_key="test-key", max_retries=0, timeout=60.0, http_client=loopback_http()
    )


class BareSDK:
    """See the module."""

    def load(self) -> None: ...

    def open(self) -> None:
        self._client = sdk_client()
        self._prefix = exactjson.loads(AGENT.prefix) if isinstance(AGENT.prefix, str) else AGENT.prefix

    def close(self) -> None:
        self._client.close()

    def run(self, key: str, job: Job) -> None:
        opening = [{"type": "text", "text": job.opening(key)}]
        history: list[dict[str, Any]] = [{"role": "user", "content": opening}]
        for i in range(job.n):
            workload.model_called(job, i, len(history))
            with self._client.messages.stream(**build_request(self._prefix, history)) as stream:
                for _ in stream:
                    pass
                answer = stream.get_final_message().to_dict(exclude_none=False)
            history.append({"role": "assistant", "content": answer["content"]})
            calls = [block for block in answer["content"] if block["type"] == "tool_use"]
            results = [
                {
                    "type": "tool_result",
                    "tool_use_id": call["id"],
                    "content": workload.perform(call["input"]["seq"], job.size),
                }
                for call in calls
            ]
            if results:
                history.append({"role": "user", "content": results})
        if len(history) != job.messages:
            raise WrongRunError(f"The run ended with {len(history)} messages.")

    def resume(self, key: str, job: Job) -> None:
        raise NotImplementedError

    def run_together(self, keys: list[str], job: Job) -> None:
        raise NotImplementedError
