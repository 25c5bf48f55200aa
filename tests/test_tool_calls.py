"""Tool calls: each runs with its own input, and is answered once, in its place, whatever became of it."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import IntegrityError

from anvil_django import Checkpointer, ToolContext, exactjson, resume_agent, run_agent, stream_agent, tool
from anvil_django.clock import FixedClock
from anvil_django.events import ToolFinished
from anvil_django.stores import DjangoStateStore, MemoryStateStore, StateStore
from anvil_django.testing import Kill, ScriptedMessagesAPI, kill_at, say, tool_call, violations
from example_project.shop.models import Order

from .driving import YES, agent, result, results, resume, roles, run, stored

pytestmark = pytest.mark.usefixtures("clock")


@pytest.fixture
def memory() -> MemoryStateStore:
    return MemoryStateStore()


@tool
def echo(text: str) -> str:
    """Say it again."""
    return f"<{text}>"


@tool(requires_approval=True)
def ask_first(text: str) -> str:
    """Only with permission."""
    return f"[{text}]"


@tool
def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool
def crash(why: str) -> str:
    """Always fails."""
    raise LookupError(why)


def raw_call(name: Any, input: Any, id: Any = None) -> dict[str, Any]:
    """A ``tool_use`` block as no well-behaved model writes it."""
    return {"type": "tool_use", "id": id, "name": name, "input": input}


# One user message


def test_all_calls_of_a_turn_are_answered_in_one_message_in_block_order(
    store: StateStore, messages_api: ScriptedMessagesAPI
) -> None:
    messages_api.script(
        say(
            "First.",
            tool_call("ask_first", {"text": "a"}),
            tool_call("echo", {"text": "b"}),
            "Then.",
            tool_call("nowhere", {}),
            tool_call("ask_first", {"text": "d"}),
            tool_call("add", {"a": 1, "b": 2}),
            tool_call("crash", {"why": "no lamp"}),
        ),
        say("Done."),
    )
    definition = agent(echo, ask_first, add, crash)

    waiting = run(definition, store)
    ids = [block["id"] for block in waiting.messages[1]["content"] if block["type"] == "tool_use"]
    assert (waiting.status, roles(waiting)) == ("suspended", ["user", "assistant"])
    assert [call.call_id for call in waiting.pending] == [ids[0], ids[3]]
    done = resume(definition, store, {ids[3]: YES, ids[0]: YES})

    assert roles(done) == ["user", "assistant", "user", "assistant"]
    assert [block["tool_use_id"] for block in done.messages[2]["content"]] == ids
    contents = [block["content"] for block in results(done)]
    assert contents == [
        "[a]",
        "<b>",
        "Tool 'nowhere' not found.",
        "[d]",
        "3",
        "LookupError: no lamp",
    ]
    assert [block.get("is_error", False) for block in results(done)] == [
        False,
        False,
        True,
        False,
        False,
        True,
    ]
    assert exactjson.dumps(messages_api.requests[1].body["messages"]) == exactjson.dumps(done.messages[:3])


@pytest.mark.parametrize(
    ("input", "told"),
    [
        ({"a": "many"}, "a: Input should be a valid integer"),
        ({}, "a: Field required"),
        ({"a": 1, "c": 2}, "c: "),
        ({"a": 1.5}, "a: "),
    ],
)
def test_the_model_reads_why_its_input_was_refused_and_the_run_goes_on(
    memory: MemoryStateStore, messages_api: ScriptedMessagesAPI, input: dict[str, Any], told: str
) -> None:
    messages_api.script(say(tool_call("add", input)), say("Done."))

    done = run(agent(add), memory)

    assert result(done)["is_error"] is True
    assert told in result(done)["content"]
    assert done.final_text == "Done."


@pytest.mark.messages_api(check_history=False)
@pytest.mark.parametrize("input", [[1], [{"a": 1}], 7])
def test_an_input_that_is_no_object_is_never_run(
    store: StateStore, messages_api: ScriptedMessagesAPI, input: Any
) -> None:
    ran: list[str] = []

    @tool
    def bare() -> str:
        """Take nothing, so that an empty object would do."""
        ran.append("bare")
        return "ran"

    messages_api.script(say(raw_call("bare", input)), say("Done."))

    done = run(agent(bare), store)

    assert (ran, done.status, done.error) == ([], "done", "")
    assert "not an object" in result(done)["content"]
    assert done.messages[1]["content"][0]["input"] == {}
    assert violations(messages_api.requests[1].body) == []


# Ids and names


@pytest.mark.messages_api(check_history=False)
@pytest.mark.parametrize("id", ["toolu_same", "", "with space", "x" * 300, "nul\x00"], ids=range(5))
def test_call_ids_that_repeat_or_cannot_be_used_confuse_no_two_calls(
    store: StateStore, messages_api: ScriptedMessagesAPI, id: str
) -> None:
    messages_api.script(
        say(raw_call("echo", {"text": "a"}, id), raw_call("ask_first", {"text": "b"}, id)),
        say(raw_call("echo", {"text": "c"}, id), raw_call("echo", {"text": "d"}, id)),
        say("Done."),
    )
    definition = agent(echo, ask_first)

    run(definition, store)
    done = resume(definition, store, YES)

    assert [block["content"] for block in results(done)] == ["<a>", "[b]", "<c>", "<d>"]
    assert len({block["tool_use_id"] for block in results(done)}) == 4
    assert done.status == "done"
    assert [violations(request.body) for request in messages_api.requests] == [[], [], []]
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", block["tool_use_id"]) for block in results(done))
    assert exactjson.dumps(stored(store).messages) == exactjson.dumps(done.messages)


@pytest.mark.messages_api(check_history=False)
@pytest.mark.parametrize("name", ["no such tool!", "", "x" * 500, "a\x00b"], ids=range(4))
def test_a_name_that_no_tool_can_have_does_not_block_the_run(
    store: StateStore, messages_api: ScriptedMessagesAPI, name: str
) -> None:
    messages_api.script(say(raw_call(name, {}), raw_call("echo", {"text": "b"})), say("Done."))

    done = run(agent(echo), store)

    assert [block.get("is_error", False) for block in results(done)] == [True, False]
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", done.messages[1]["content"][0]["name"])
    assert (done.status, stored(store).messages) == ("done", done.messages)


def test_the_result_of_a_toolset_member_names_its_toolset(
    store: StateStore, messages_api: ScriptedMessagesAPI
) -> None:
    messages_api.script(say(tool_call("click", {"x": 1}, toolset_name="computer")), say("Done."))

    done = run(agent(echo), store)

    assert (done.status, result(done)["toolset_name"]) == ("done", "computer")
    assert stored(store).messages == done.messages


# Time limits


@pytest.fixture
def stuck() -> Iterator[threading.Event]:
    """What a slow tool waits for; set at the end, so that its thread ends."""
    event = threading.Event()
    yield event
    event.set()


def test_a_read_only_tool_over_its_time_has_failed(
    memory: MemoryStateStore, messages_api: ScriptedMessagesAPI, stuck: threading.Event
) -> None:
    @tool(timeout=0.05)
    def slow() -> str:
        """Take long."""
        stuck.wait(20)
        return "late"

    messages_api.script(say(tool_call("slow")), say("Done."))

    done = run(agent(slow), memory)

    assert (done.status, result(done)["is_error"]) == ("done", True)
    assert "not finished after 0.05 seconds" in result(done)["content"]


@pytest.mark.parametrize("policy", ["retry", "fail"])
def test_a_side_effect_over_its_time_is_told_as_unknown(
    memory: MemoryStateStore, messages_api: ScriptedMessagesAPI, stuck: threading.Event, policy: Any
) -> None:
    @tool(side_effect=True, timeout=0.05, on_interrupt=policy)
    def slow() -> str:
        """Take long."""
        stuck.wait(20)
        return "late"

    messages_api.script(say(tool_call("slow")), say("Done."))

    done = run(agent(slow), memory)

    assert (done.status, result(done)["is_error"]) == ("done", True)
    assert "unknown" in result(done)["content"]


def test_a_side_effect_over_its_time_is_in_doubt_and_a_person_is_asked(
    store: StateStore, messages_api: ScriptedMessagesAPI, stuck: threading.Event
) -> None:
    ran: list[int] = []

    @tool(side_effect=True, timeout=0.05)
    def slow(ctx: ToolContext) -> str:
        """Take long the first time."""
        ran.append(ctx.attempt)
        if len(ran) == 1:
            stuck.wait(20)
        return "sent"

    messages_api.script(say(tool_call("slow")), say("Done."))

    doubtful = run(agent(slow), store)
    done = resume(agent(slow), store, YES)

    assert (doubtful.status, doubtful.pending[0].kind) == ("suspended", "in_doubt")
    assert (done.status, result(done)["content"], ran) == ("done", "sent", [1, 2])


# Found started by the next process


@pytest.mark.parametrize(("policy", "ran"), [("ask", 1), ("retry", 2), ("fail", 1)])
def test_a_call_found_started_is_treated_as_its_tool_declares(
    store: StateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock, policy: Any, ran: int
) -> None:
    attempts: list[tuple[int, str]] = []

    @tool(side_effect=True, on_interrupt=policy)
    def send(ctx: ToolContext) -> str:
        """Send something."""
        attempts.append((ctx.attempt, ctx.idempotency_key))
        return "sent"

    definition = agent(send)
    messages_api.script(say(tool_call("send")), say("Done."))
    with pytest.raises(Kill), kill_at(7) as reached:
        run(definition, store)
    assert (reached.killed_at, len(attempts)) == ("tool.returned", 1)
    clock.advance(61)

    after = resume(definition, store)

    if policy == "ask":
        assert (after.status, after.pending[0].kind) == ("suspended", "in_doubt")
        after = resume(definition, store, replace(YES, answer="It was sent."))
        assert result(after)["content"] == "It was sent."
    elif policy == "retry":
        assert result(after)["content"] == "sent"
    else:
        assert (result(after)["is_error"], "unknown" in result(after)["content"]) == (True, True)
    assert after.status == "done"
    assert len(attempts) == ran
    assert len({key for _, key in attempts}) == 1
    assert [attempt for attempt, _ in attempts] == list(range(1, ran + 1))


@pytest.mark.parametrize("policy", ["ask", "retry", "fail"])
def test_a_read_only_call_found_unfinished_is_simply_run_again(
    store: StateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock, policy: str
) -> None:
    ran: list[str] = []

    @tool
    def look(thing: str) -> str:
        """Look at a thing."""
        ran.append(thing)
        return "fine"

    messages_api.script(say(tool_call("look", {"thing": policy})), say("Done."))
    with pytest.raises(Kill), kill_at(7) as reached:
        run(agent(look), store)
    assert reached.killed_at == "tool.returned"
    clock.advance(61)

    assert resume(agent(look), store).status == "done"
    assert ran == [policy, policy]


# A deploy in between


def test_a_started_call_whose_tool_is_gone_is_told_as_unknown(
    store: StateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock
) -> None:
    @tool(side_effect=True, on_interrupt="retry")
    def send() -> str:
        """Send something."""
        return "sent"

    messages_api.script(say(tool_call("send")), say("Done."))
    with pytest.raises(Kill), kill_at(7):
        run(agent(send), store)
    clock.advance(61)

    done = resume(agent(), store)

    assert (done.status, "unknown" in result(done)["content"]) == ("done", True)


def test_a_call_that_waited_runs_under_the_promise_its_tool_gives_now(
    store: StateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock
) -> None:
    ran: list[str] = []

    def send(ctx: ToolContext) -> str:
        """Send something."""
        ran.append(ctx.call_id)
        return "sent"

    before = agent(tool(requires_approval=True)(send))
    after = agent(tool(requires_approval=True, side_effect=True)(send))
    messages_api.script(say(tool_call("send")), say("Done."))
    run(before, store)
    # claimed, save (with the intent), tool.before, tool.returned
    with pytest.raises(Kill), kill_at(5) as reached:
        resume(after, store, YES)
    assert reached.killed_at == "tool.returned"
    clock.advance(61)

    doubtful = resume(after, store)

    assert (doubtful.status, doubtful.pending[0].kind, len(ran)) == ("suspended", "in_doubt", 1)
    assert resume(after, store, replace(YES, answer="sent")).status == "done"
    assert len(ran) == 1


# What a tool may know


def test_a_tool_knows_its_call_its_user_and_the_metadata(
    store: StateStore, messages_api: ScriptedMessagesAPI
) -> None:
    known: list[ToolContext] = []

    @tool(requires_approval=True, side_effect=True)
    def know(ctx: ToolContext) -> str:
        """Know."""
        known.append(ctx)
        assert ctx.user is not None
        return f"{ctx.user}"

    user: Any = "ann"
    if isinstance(store, DjangoStateStore):
        user = get_user_model().objects.create(username="ann")
    messages_api.script(say(tool_call("know", id="toolu_1")), say("Done."))
    run(agent(know), store, user=user, metadata={"ticket": 7})

    done = resume(agent(know), store, replace(YES, reason="Go on."))

    (ctx,) = known
    assert result(done)["content"] == "ann"
    assert (ctx.run_id, ctx.call_id, ctx.idempotency_key) == ("r", "toolu_1", "r:toolu_1")
    assert (ctx.attempt, ctx.metadata, ctx.approved) == (1, {"ticket": 7}, True)
    assert (ctx.decision.reviewer, ctx.decision.reason) == ("rita", "Go on.")


def test_nothing_is_known_of_a_run_that_nobody_started(messages_api: ScriptedMessagesAPI) -> None:
    known: list[ToolContext] = []

    @tool
    def know(ctx: ToolContext) -> str:
        """Know."""
        known.append(ctx)
        return "yes"

    messages_api.script(say(tool_call("know")), say("Done."))

    run_agent(agent(know), "Go.")

    assert (known[0].user, known[0].metadata, known[0].approved, known[0].decision) == (None, {}, False, None)


# Atomic tools


@pytest.mark.django_db
def test_writes_that_cannot_be_committed_are_told_as_failed(messages_api: ScriptedMessagesAPI) -> None:
    class Refusing(DjangoStateStore):
        @contextmanager
        def transaction(self) -> Iterator[None]:
            with super().transaction():
                yield
                raise IntegrityError("a deferred constraint")

    @tool(side_effect=True, atomic=True)
    def book(number: str) -> str:
        """Book an order."""
        Order.objects.create(number=number, customer_email="c@example.com", item="lamp", amount=1)
        return "booked"

    @tool(side_effect=True)
    def mail(to: str) -> str:
        """Send a mail."""
        return f"sent to {to}"

    messages_api.script(
        say(tool_call("book", {"number": "A-1"}), tool_call("mail", {"to": "ann"})), say("Done.")
    )
    store = Refusing()
    events = list(stream_agent(agent(book, mail), "Go.", checkpoint=Checkpointer(store, "r")))

    told = [(event.name, event.is_error) for event in events if isinstance(event, ToolFinished)]
    assert told == [("book", True), ("mail", False)]
    assert not Order.objects.exists()
    first, second = results(stored(store))
    assert (first["is_error"], "a deferred constraint" in first["content"]) == (True, True)
    assert second["content"] == "sent to ann"
    assert resume_agent(agent(book, mail), checkpoint=Checkpointer(store, "r")).status == "done"
