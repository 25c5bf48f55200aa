"""What the parts of ``StoreConformance`` share: a run to store, and the store under test."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from anvil_django import exactjson
from anvil_django.calls import ToolCall
from anvil_django.checkpoint import AgentCheckpoint
from anvil_django.cost import Usage
from anvil_django.limits import Limits
from anvil_django.stores.base import StateStore

ASSISTANT: dict[str, Any] = {
    "role": "assistant",
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "text", "text": "I will."},
        {"type": "tool_use", "id": "toolu_1", "name": "pay", "input": {"z": 1, "a": [1.5, None, True]}},
        {"type": "tool_use", "id": "toolu_2", "name": "look", "input": {}},
    ],
}


def new_checkpoint(run_id: str = "run-1", **changes: Any) -> AgentCheckpoint:
    """A checkpoint of a run that has just begun."""
    values: dict[str, Any] = {
        "run_id": run_id,
        "agent": "tester",
        "prefix": {"model": "m", "max_tokens": 100, "system": [], "tools": [], "params": {}, "cache": None},
        "messages": [{"role": "user", "content": "Hello"}],
        "limits": Limits(max_cost_usd=Decimal("0.5")),
        "metadata": {"b": 1, "a": "ä"},
    }
    return AgentCheckpoint(**{**values, **changes})


def call(call_id: str, index: int, **changes: Any) -> ToolCall:
    """A tool call of message 1."""
    names = {"toolu_1": "pay", "toolu_2": "look"}
    inputs = {"toolu_1": {"z": 1, "a": [1.5, None, True]}, "toolu_2": {}}
    values: dict[str, Any] = {"effect": "external", "on_interrupt": "ask"}
    return ToolCall(
        call_id=call_id,
        name=names[call_id],
        input=inputs[call_id],
        seq=1,
        index=index,
        **{**values, **changes},
    )


class StoreUnderTest:
    """A store, and a run in it."""

    def make_store(self) -> StateStore:
        """A new, empty store."""
        raise NotImplementedError

    @pytest.fixture
    def store(self) -> StateStore:
        return self.make_store()

    def opened(self, store: StateStore, **decided: Any) -> tuple[AgentCheckpoint, Any]:
        """A claimed run whose model has just asked for two tools."""
        store.create(new_checkpoint())
        claimed = store.claim("run-1", "me", 60)
        assert claimed is not None
        checkpoint, lease = claimed
        checkpoint.append(exactjson.loads(exactjson.dumps(ASSISTANT)))
        checkpoint.open_turn([call("toolu_1", 0, **decided), call("toolu_2", 1, effect="none")])
        checkpoint.iterations = 1
        checkpoint.total_usage = Usage(10, 20, 30, 40)
        checkpoint.total_cost_usd = Decimal("0.0012345678")
        return checkpoint, lease

    def loaded(self, store: StateStore) -> AgentCheckpoint:
        """The run as it is stored."""
        checkpoint = store.load("run-1")
        assert checkpoint is not None
        return checkpoint

    def taken(self, store: StateStore) -> tuple[AgentCheckpoint, Any]:
        """The run under a lease."""
        claimed = store.claim("run-1", "me", 60)
        assert claimed is not None
        return claimed


def without_times(checkpoint: AgentCheckpoint) -> dict[str, Any]:
    """A checkpoint to compare: all but the time of its last save."""
    data = checkpoint.to_dict()
    del data["updated_at"]
    return data
