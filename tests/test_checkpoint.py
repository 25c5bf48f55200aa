"""The checkpoint as a value: it goes through JSON and into another store at any stage of a run."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from anvil_django import AgentCheckpoint, Checkpointer, exactjson, tool
from anvil_django.clock import FixedClock
from anvil_django.errors import HistoryRewrittenError, LeaseLostError, NewerCheckpointError
from anvil_django.stores import MemoryStateStore, StateStore
from anvil_django.testing import ScriptedMessagesAPI, fault, pause, say, thinking, tool_call

from .driving import YES, agent, results, resume, roles, run, stored


@tool
def look(thing: str) -> str:
    """Look at a thing."""
    return "fine"


@tool(side_effect=True, on_interrupt="retry")
def mail(to: str) -> str:
    """Send a mail."""
    return f"sent to {to}"


@tool(side_effect=True, requires_approval=True, approval_ttl=10_000, on_interrupt="retry")
def pay(to: str, amount: Decimal) -> str:
    """Pay somebody."""
    return f"paid {amount} to {to}"


AGENT = agent(look, mail, pay, max_cost_usd=Decimal("0.5"), max_seconds=1000.0)
TURNS = [
    say(
        thinking("Hm."),
        tool_call("look", {"thing": "a"}, id="toolu_1"),
        tool_call("mail", {"to": "ann"}, id="toolu_2"),
        tool_call("pay", {"to": "bob", "amount": "1.50"}, id="toolu_3"),
        tool_call("pay", {"to": "cid", "amount": "2"}, id="toolu_4"),
    ),
    pause("A moment."),
    say("Done.").after(fault.overloaded()),
]


class Recorder(MemoryStateStore):
    """Keeps what a process would find after each commit."""

    def __init__(self) -> None:
        super().__init__()
        self.stages: list[AgentCheckpoint] = []

    def save(self, checkpoint: AgentCheckpoint, *args: Any, **options: Any) -> None:
        super().save(checkpoint, *args, **options)
        self._note(checkpoint.run_id)

    def decide(self, run_id: str, *args: Any) -> None:
        super().decide(run_id, *args)
        self._note(run_id)

    def _note(self, run_id: str) -> None:
        stage = self.load(run_id)
        assert stage is not None
        self.stages.append(stage)


def scenario() -> tuple[Recorder, Any]:
    """A run with everything, and all its stages."""
    store = Recorder()
    run(AGENT, store, metadata={"ticket": 7})
    resume(AGENT, store, {"toolu_4": replace(YES, edited_input={"to": "dan", "amount": "3"})})
    done = resume(AGENT, store, {"toolu_3": replace(YES, answer={"paid": True})})
    return store, done


def test_a_checkpoint_goes_through_json_at_every_stage_of_a_run(
    messages_api: ScriptedMessagesAPI, clock: FixedClock
) -> None:
    messages_api.script(*TURNS)
    store, _ = scenario()

    assert {str(stage.status) for stage in store.stages} == {"running", "suspended", "queued", "done"}
    assert len(store.stages) > 8
    for stage in store.stages:
        text = json.dumps(stage.to_dict())
        again = AgentCheckpoint.from_dict(json.loads(text))
        assert again == stage
        assert json.dumps(again.to_dict()) == text
        assert stage.copy() == stage


def test_a_run_can_be_carried_to_another_store_at_every_stage(
    messages_api: ScriptedMessagesAPI, clock: FixedClock
) -> None:
    messages_api.script(*TURNS)
    source, done = scenario()

    for stage in source.stages:
        there = MemoryStateStore()
        Checkpointer(there, "r").save(
            AgentCheckpoint.from_dict(exactjson.loads(exactjson.dumps(stage.to_dict())))
        )
        clock.advance(100)
        result = resume(AGENT, there)
        for call in result.pending:
            edited = {"to": "dan", "amount": "3"} if call.call_id == "toolu_4" else None
            answer = {"paid": True} if call.call_id == "toolu_3" else None
            result = resume(AGENT, there, {call.call_id: replace(YES, edited_input=edited, answer=answer)})
        assert (result.status, result.iterations) == ("done", 3)
        assert exactjson.dumps(result.messages) == exactjson.dumps(done.messages)


def test_the_checkpoint_says_what_a_caller_wants_to_know(
    store: StateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock
) -> None:
    messages_api.script(*TURNS)
    run(AGENT, store, metadata={"ticket": 7})

    data = stored(store).to_dict()

    assert (data["version"], data["run_id"], data["status"]) == (1, "r", "suspended")
    assert [(item["call_id"], item["tool"]) for item in data["pending"]] == [
        ("toolu_3", "pay"),
        ("toolu_4", "pay"),
    ]
    assert (data["final_text"], data["approvals"], data["metadata"]) == ("", {}, {"ticket": 7})
    assert Decimal(data["total_cost_usd"]) > 0
    assert set(data["total_usage"]) == {
        "input_tokens",
        "output_tokens",
        "cache_read_tokens",
        "cache_write_tokens",
    }
    updated = stored(store).updated_at
    assert updated is not None
    assert updated == clock.now()
    assert updated.tzinfo is not None
    resume(AGENT, store, {"toolu_3": YES, "toolu_4": replace(YES, reviewer="max")})
    done = stored(store)
    assert (done.final_text, roles(done)) == (
        "Done.",
        ["user", "assistant", "user", "assistant", "assistant"],
    )
    assert {call: told["reviewer"] for call, told in done.approvals.items()} == {
        "toolu_3": "rita",
        "toolu_4": "max",
    }


@pytest.mark.parametrize("version", [2, 99, "1", None])
def test_a_checkpoint_of_a_newer_version_is_refused(version: Any) -> None:
    data = AgentCheckpoint(run_id="r", agent="a", prefix={}, messages=[]).to_dict()

    with pytest.raises(NewerCheckpointError, match="Upgrade anvil_django"):
        AgentCheckpoint.from_dict({**data, "version": version})


def test_an_unknown_cost_and_unknown_keys_survive_the_trip() -> None:
    data = AgentCheckpoint(run_id="r", agent="a", prefix={}, messages=[], total_cost_usd=None).to_dict()

    again = AgentCheckpoint.from_dict({**data, "added_by_a_later_minor_version": 1})

    assert again.total_cost_usd is None
    assert again.to_dict() == data


def test_a_checkpointer_saves_what_it_loaded_and_nothing_stale(
    store: StateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock
) -> None:
    messages_api.script(say(tool_call("look", {"thing": "a"})), say("Done."))
    run(AGENT, store)
    saver = Checkpointer(store, "r")
    mine, stale = saver.load(), saver.load()
    assert mine is not None
    assert stale is not None

    saver.save(mine)

    with pytest.raises(LeaseLostError):
        saver.save(stale)
    mine.messages[0]["content"] = "Something else."
    with pytest.raises(HistoryRewrittenError):
        saver.save(mine)
    with pytest.raises(ValueError, match="for run 'other'"):
        Checkpointer(store, "other").save(stale)
    assert stored(store).messages[0]["content"] == "Go."
    assert len(results(stored(store))) == 1


def test_what_a_caller_does_to_a_result_does_not_reach_the_store(
    store: StateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock
) -> None:
    messages_api.script(say("Done."))
    done = run(AGENT, store)
    done.messages.append({"role": "user", "content": "More."})
    done.messages[0]["content"] = "Other."

    assert stored(store).messages == [
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
    ]
