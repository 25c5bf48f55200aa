"""Short names for driving one run through the public API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anvil_django import Agent, AgentCheckpoint, AgentResult, Checkpointer, Decision, resume_agent, run_agent
from anvil_django.stores import StateStore
from anvil_django.testing import Turn, say

YES = Decision(approved=True, reviewer="rita")
NO = Decision(approved=False, reviewer="rita", reason="Too risky.")


def agent(*tools: Any, **changes: Any) -> Agent:
    """An agent named ``tester`` with these tools."""
    values: dict[str, Any] = {"name": "tester", "model": "claude-sonnet-5-5", "system": "Be good."}
    return Agent(tools=tools, **{**values, **changes})


def run(definition: Agent, store: StateStore, messages: Any = "Go.", **options: Any) -> AgentResult:
    """Run it as ``r``."""
    return run_agent(definition, messages, checkpoint=Checkpointer(store, "r"), **options)


def resume(
    definition: Agent, store: StateStore, approval: Decision | Mapping[str, Decision] | None = None
) -> AgentResult:
    """Resume ``r``."""
    return resume_agent(definition, checkpoint=Checkpointer(store, "r"), approval=approval)


def stored(store: StateStore) -> AgentCheckpoint:
    """What is stored of ``r``."""
    checkpoint = store.load("r")
    assert checkpoint is not None
    return checkpoint


def results(run: AgentResult | AgentCheckpoint) -> list[dict[str, Any]]:
    """Every ``tool_result`` block of the history, in order."""
    return [
        block
        for message in run.messages
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result"
    ]


def result(run: AgentResult | AgentCheckpoint) -> dict[str, Any]:
    """The one ``tool_result`` block."""
    (block,) = results(run)
    return block


def roles(run: AgentResult | AgentCheckpoint) -> list[str]:
    """Who said something, in order."""
    return [message["role"] for message in run.messages]


def with_reason(reason: str, *blocks: Any, **fields: Any) -> Turn:
    """A turn that stops for ``reason``."""
    return Turn(say(*blocks).content, reason, **fields)
