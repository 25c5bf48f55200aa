"""What a watcher sees, and what becomes of the run when the watcher goes away."""

from __future__ import annotations

from typing import Any

import pytest

from anvil_django import Checkpointer, ToolContext, stream_agent, tool
from anvil_django.clock import FixedClock
from anvil_django.events import (
    Done,
    Event,
    IterationFinished,
    Retrying,
    Suspended,
    TextDelta,
    ThinkingDelta,
    ToolFinished,
    ToolStarted,
)
from anvil_django.states import CallStatus
from anvil_django.stores import StateStore
from anvil_django.testing import ScriptedMessagesAPI, fault, pause, say, thinking, tool_call

from .driving import YES, agent, resume, stored

DELTAS = (TextDelta, ThinkingDelta)


class Office:
    """Tools of every kind, and what they did."""

    def __init__(self) -> None:
        self.effects: list[str] = []

        @tool
        def look(thing: str) -> str:
            """Look at a thing."""
            return "fine"

        @tool(side_effect=True)
        def mail(to: str, ctx: ToolContext) -> str:
            """Send a mail."""
            self.effects.append(f"{ctx.idempotency_key} mail")
            return f"sent to {to}"

        @tool(side_effect=True, requires_approval=True)
        def pay(to: str, ctx: ToolContext) -> str:
            """Pay somebody."""
            self.effects.append(f"{ctx.idempotency_key} pay")
            return f"paid {to}"

        self.agent = agent(look, mail, pay)


@pytest.fixture
def office() -> Office:
    return Office()


TURNS = [
    say(
        "I will look.",
        tool_call("look", {"thing": "a"}, id="toolu_1"),
        tool_call("mail", {"to": "ann"}, id="toolu_2"),
        tool_call("pay", {"to": "bob"}, id="toolu_3"),
        tool_call("mail", {"to": "cid"}, id="toolu_4"),
        tool_call("look", {"thing": "b"}, id="toolu_5"),
    ),
    pause("A moment."),
    say(tool_call("pay", {"to": "dan"}, id="toolu_6"), tool_call("nowhere", id="toolu_7")),
    say("Done.").after(fault.overloaded()),
]
EFFECTS = ["toolu_2 mail", "toolu_4 mail", "toolu_3 pay", "toolu_6 pay"]


def watch(office: Office, store: StateStore, run_id: str, text: str = "Go.") -> Any:
    return stream_agent(office.agent, text, checkpoint=Checkpointer(store, run_id))


def outline(events: list[Event]) -> list[str]:
    """The events by name, a row of deltas as one."""
    names: list[str] = []
    for event in events:
        name = type(event).__name__
        if isinstance(event, (ToolStarted, ToolFinished)):
            name = f"{name} {event.call_id}"
        if not (isinstance(event, DELTAS) and names and names[-1] == name):
            names.append(name)
    return names


def test_events_come_in_the_order_in_which_things_happen(
    store: StateStore, messages_api: ScriptedMessagesAPI, office: Office, clock: FixedClock
) -> None:
    messages_api.script(*TURNS)

    first = list(watch(office, store, "r"))

    assert outline(first) == [
        "TextDelta",
        "IterationFinished",
        "ToolStarted toolu_1",
        "ToolFinished toolu_1",
        "ToolStarted toolu_2",
        "ToolFinished toolu_2",
        "ToolStarted toolu_4",
        "ToolFinished toolu_4",
        "ToolStarted toolu_5",
        "ToolFinished toolu_5",
        "Suspended",
        "Done",
    ]
    waiting, done = first[-2:]
    assert isinstance(waiting, Suspended)
    assert isinstance(done, Done)
    assert [call.call_id for call in waiting.pending] == ["toolu_3"]
    assert done.result.status == "suspended"
    resume(office.agent, store, YES)
    store.decide("r", "toolu_6", YES)
    assert outline(list(watch(office, store, "r"))) == [
        "ToolStarted toolu_6",
        "ToolFinished toolu_6",
        "Retrying",
        "TextDelta",
        "IterationFinished",
        "Done",
    ]


def test_the_generator_returns_what_its_last_event_carries(
    store: StateStore, messages_api: ScriptedMessagesAPI, office: Office, clock: FixedClock
) -> None:
    messages_api.script(say("Done."))
    events = watch(office, store, "r")
    seen = []
    while True:
        try:
            seen.append(next(events))
        except StopIteration as end:
            result = end.value
            break

    assert isinstance(seen[-1], Done)
    assert seen[-1].result is result
    assert outline(list(watch(office, store, "r"))) == ["Done"]


def test_deltas_are_the_answer_in_pieces(
    store: StateStore, messages_api: ScriptedMessagesAPI, office: Office, clock: FixedClock
) -> None:
    messages_api.script(say(thinking("Let me see."), "All is ", "wäll \U0001f600."))

    events = list(watch(office, store, "r"))

    texts = [event.text for event in events if isinstance(event, TextDelta)]
    thoughts = [event.text for event in events if isinstance(event, ThinkingDelta)]
    assert (len(texts) > 2, "".join(texts)) == (True, "All is wäll \U0001f600.")
    assert "".join(thoughts) == "Let me see."
    finished = next(event for event in events if isinstance(event, IterationFinished))
    assert finished.iteration == 1
    assert finished.total_usage == stored(store).total_usage


def test_deltas_of_a_call_that_failed_come_again_and_are_not_part_of_the_run(
    store: StateStore, messages_api: ScriptedMessagesAPI, office: Office, clock: FixedClock
) -> None:
    messages_api.script(say("One two three four.").after(fault.dropped(events=5)))

    events = list(watch(office, store, "r"))

    (at,) = (i for i, event in enumerate(events) if isinstance(event, Retrying))
    before = "".join(event.text for event in events[:at] if isinstance(event, TextDelta))
    after = "".join(event.text for event in events[at:] if isinstance(event, TextDelta))
    assert before
    assert after == "One two three four."
    assert stored(store).final_text == after


def test_what_is_told_of_a_side_effect_is_stored_by_then(
    store: StateStore, messages_api: ScriptedMessagesAPI, office: Office, clock: FixedClock
) -> None:
    messages_api.script(*TURNS[:1])
    checked = 0
    for event in watch(office, store, "r"):
        calls = {call.call_id: call for call in stored(store).calls}
        if isinstance(event, IterationFinished):
            assert stored(store).iterations == event.iteration
        if isinstance(event, ToolStarted) and event.name == "mail":
            assert calls[event.call_id].status is CallStatus.STARTED
            checked += 1
        if isinstance(event, ToolFinished) and event.name == "mail":
            assert calls[event.call_id].content == event.content
            checked += 1
        if isinstance(event, Suspended):
            assert stored(store).status == "suspended"

    assert checked == 4


def test_a_watcher_may_go_away_at_any_event(
    store: StateStore, messages_api: ScriptedMessagesAPI, office: Office, clock: FixedClock
) -> None:
    messages_api.script(*TURNS)
    undisturbed = ""
    gone_at = 0
    while True:
        run_id, office.effects[:] = f"r{gone_at}", []
        total = run_to_the_end(office, store, run_id, gone_at, clock)
        done = store.load(run_id)
        assert done is not None
        assert sorted(office.effects) == sorted(f"{run_id}:{effect}" for effect in EFFECTS), gone_at
        history = str(done.messages[1:])
        undisturbed = undisturbed or history
        assert history == undisturbed, gone_at
        assert done.iterations == 4
        gone_at += 1
        if gone_at > total:
            break

    assert total > 25


def run_to_the_end(office: Office, store: StateStore, run_id: str, gone_at: int, clock: FixedClock) -> int:
    """Watch it, leaving once after the ``gone_at``-th event; how many events there were."""
    total = 0
    for _ in range(10):
        events = watch(office, store, run_id, f"Go {run_id}.")
        for _event in events:
            total += 1
            if total == gone_at:
                events.close()
                break
        checkpoint = store.load(run_id)
        assert checkpoint is not None
        if checkpoint.status == "done":
            return total
        clock.advance(5)
        for call in checkpoint.pending:
            assert call.kind == "tool", (gone_at, call)
            store.decide(run_id, call.call_id, YES)
    raise AssertionError((gone_at, checkpoint.status, checkpoint.error))


def test_a_stream_that_nobody_begins_leaves_a_run_that_can_be_taken(
    store: StateStore, messages_api: ScriptedMessagesAPI, office: Office, clock: FixedClock
) -> None:
    messages_api.script(say("Done."))
    watch(office, store, "r").close()

    assert stored(store).status == "queued"
    assert resume(office.agent, store).status == "done"
