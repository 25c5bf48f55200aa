"""Driving a run from one's own code: the same request, another one, a bad one, and a deploy in between."""

from __future__ import annotations

import math
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from anvil_django import (
    Checkpointer,
    exactjson,
    list_runs,
    register,
    resume_agent,
    run_agent,
    stream_agent,
    tool,
)
from anvil_django.agents import unregister
from anvil_django.clock import FixedClock
from anvil_django.errors import BadInputError, RunIdTakenError, UnknownAgentError, UnknownRunError
from anvil_django.stores import DjangoStateStore, MemoryStateStore, StateStore
from anvil_django.testing import Kill, ScriptedMessagesAPI, fault, kill_at, say, thinking, tool_call

from .driving import YES, agent, result, results, resume, run, stored

pytestmark = pytest.mark.usefixtures("clock")


@tool(side_effect=True)
def send(to: str) -> str:
    """Send something."""
    return f"sent to {to}"


@tool(side_effect=True, requires_approval=True)
def pay(to: str) -> str:
    """Pay somebody."""
    return f"paid {to}"


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def assistant(*content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content)}


TEXT = {"type": "text", "text": "Hi."}
USE = {"type": "tool_use", "id": "toolu_1", "name": "send", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "sent"}


# The same request and another


def test_nothing_is_stored_without_a_checkpointer(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say("Done."))

    done = run_agent(agent(), "Go.")

    assert (done.status, done.final_text, len(done.run_id)) == ("done", "Done.", 36)


def test_the_same_request_again_is_the_same_run(store: StateStore, messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say(tool_call("send", {"to": "ann"})), say("Done."))
    first = run(agent(send), store, metadata={"a": 1})

    again = run(agent(send), store, metadata={"a": 1})

    assert again == first
    assert len(messages_api.requests) == 2
    assert list_runs(store) == ["r"]


def test_a_request_that_was_interrupted_goes_on_when_it_is_made_again(
    store: StateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock
) -> None:
    messages_api.script(say(tool_call("send", {"to": "ann"})), say("Done."))
    with pytest.raises(Kill), kill_at(9) as reached:
        run(agent(send), store)
    assert reached.killed_at == "save.done"

    busy = run(agent(send), store)
    clock.advance(61)
    done = run(agent(send), store)

    assert (busy.status, done.status) == ("running", "done")
    assert len(results(done)) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"messages": "Go!"},
        {"messages": ["Go.", "Now."]},
        {"definition": {"name": "another"}},
        {"metadata": {"a": 2}},
        {"metadata": None},
        {"user": "somebody"},
    ],
    ids=str,
)
def test_another_request_does_not_get_the_run(
    store: StateStore, messages_api: ScriptedMessagesAPI, other: dict[str, Any]
) -> None:
    if "user" in other and isinstance(store, DjangoStateStore):
        from django.contrib.auth import get_user_model

        other = {"user": get_user_model().objects.create(username="somebody")}
    messages_api.script(say("Done."))
    run(agent(), store, metadata={"a": 1})
    before = stored(store).to_dict()
    messages: Any = other.get("messages", "Go.")
    if isinstance(messages, list):
        messages = [user({"type": "text", "text": text}) for text in messages]
    options = {"metadata": {"a": 1}, **{k: v for k, v in other.items() if k in {"metadata", "user"}}}

    with pytest.raises(RunIdTakenError, match="'r'"):
        run(agent(**other.get("definition", {})), store, messages, **options)

    assert stored(store).to_dict() == before


@pytest.mark.parametrize("shorter", [1, 3])
def test_the_beginning_of_a_request_is_another_request(
    store: StateStore, messages_api: ScriptedMessagesAPI, shorter: int
) -> None:
    messages_api.add([say("Done.")], seeded=2)
    given = [user(TEXT), assistant(TEXT), user(TEXT), assistant(TEXT), user(TEXT)]
    run(agent(), store, given)

    with pytest.raises(RunIdTakenError):
        run(agent(), store, given[:shorter])


def test_a_conversation_may_be_given_with_answered_calls(
    store: StateStore, messages_api: ScriptedMessagesAPI
) -> None:
    messages_api.add([say("Done.")], seeded=1)
    given = [user(TEXT), assistant(USE), user(RESULT, TEXT)]

    done = run(agent(send), store, given)

    assert (done.status, done.messages[:3]) == ("done", given)
    assert run(agent(send), store, given) == done


# Resume


def test_resuming_what_is_not_stored_says_so(store: StateStore) -> None:
    with pytest.raises(UnknownRunError, match="'r'"):
        resume(agent(), store)


def test_resuming_a_finished_run_returns_its_result_and_does_nothing(
    store: StateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock
) -> None:
    messages_api.script(say("Done."))
    done = run(agent(), store)
    before = stored(store).to_dict()
    clock.advance(100_000)

    assert resume(agent(), store) == done
    assert stored(store).to_dict() == before
    assert len(messages_api.requests) == 1


def test_an_agent_is_named_or_given(store: StateStore, messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say(tool_call("pay", {"to": "ann"})), say("Done."))
    definition = register(agent(pay))
    try:
        run_agent("tester", "Go.", checkpoint=Checkpointer(store, "r"))
        done = resume_agent("tester", checkpoint=Checkpointer(store, "r"), approval=YES)
    finally:
        unregister(definition.name)

    assert done.status == "done"
    with pytest.raises(UnknownAgentError, match="'tester'"):
        resume_agent("tester", checkpoint=Checkpointer(store, "r"))


def test_a_deleted_run_is_gone_and_its_id_free(store: StateStore, messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say("Done."))
    run(agent(), store)

    assert Checkpointer(store, "r").delete() is True

    assert Checkpointer(store, "r").load() is None
    assert run(agent(), store).status == "done"


def test_a_worker_that_died_too_often_over_one_step_does_not_go_round_for_ever(
    store: StateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock
) -> None:
    messages_api.script(say("Done."))
    for _ in range(4):
        with pytest.raises(Kill), kill_at(2) as reached:
            run(agent(), store)
        assert reached.killed_at == "model.before"
        clock.advance(61)

    failed = run(agent(), store)

    assert (failed.status, failed.error_code, messages_api.requests) == ("failed", "poison", [])
    assert resume(agent(), store).status == "done"


# Bad input


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ("", "blank"),
        (" \n", "blank"),
        ([], "empty"),
        ([{"role": "user", "content": []}], "not empty"),
        ([{"role": "user", "content": ""}], "blank"),
        ([{"role": "user", "content": None}], "must be a text"),
        ([{"role": "user", "content": [{"text": "Hi."}]}], "with a type"),
        ([user({"type": "text", "text": "  "})], "blank"),
        ([user({"type": "text", "text": 7})], "must be a text"),
        ([{"role": "nobody", "content": "Hi."}], "'nobody'"),
        ([{"content": "Hi."}], "None"),
        (["Hi."], r"messages\[0\] must be an object"),
        ([assistant(TEXT), user(TEXT)], "role user"),
        ([{"role": "system", "content": "Hi."}, user(TEXT)], "role user"),
        ([user(TEXT), assistant(TEXT)], "must not be an assistant turn"),
        ([user(TEXT), assistant(USE), user(TEXT)], "toolu_1"),
        ([user(TEXT), assistant(USE), user(RESULT, RESULT)], "exactly once"),
        ([user(TEXT), assistant(USE), user(TEXT, RESULT)], "must begin with"),
        ([user(RESULT)], "exactly once"),
        ([user(USE)], "only an assistant turn"),
        ([user(TEXT), assistant(USE, USE), user(RESULT, RESULT)], "repeats"),
        ([user(TEXT), assistant({**USE, "id": None}), user({**RESULT, "tool_use_id": None})], "without id"),
        ([user({"type": "text", "text": "Hi.", "at": timedelta(1)})], "not JSON"),
        ([user({"type": "text", "text": "Hi.", "amount": Decimal(1)})], "not JSON"),
        ("x" * 1_000_001, "at most 1000000"),
    ],
    ids=range(25),
)
def test_input_that_cannot_be_sent_is_refused_and_nothing_is_stored(
    store: StateStore, messages_api: ScriptedMessagesAPI, messages: Any, told: str
) -> None:
    with pytest.raises(BadInputError, match=told):
        run(agent(send), store, messages)

    assert list_runs(store) == []
    assert messages_api.requests == []


@pytest.mark.parametrize("run_id", ["", "x" * 201, "a b", "ä", "../x", "a\x00", "-r"])
def test_a_run_id_that_cannot_be_used_is_refused(store: StateStore, run_id: str) -> None:
    with pytest.raises(BadInputError, match="run_id"):
        run_agent(agent(), "Go.", checkpoint=Checkpointer(store, run_id))

    assert list_runs(store) == []


@pytest.mark.parametrize(
    "metadata", [{"a": object()}, ["a"], {"a": "x" * 20_000}], ids=["object", "list", "large"]
)
def test_metadata_that_cannot_be_kept_is_refused(store: StateStore, metadata: Any) -> None:
    with pytest.raises(BadInputError, match="metadata"):
        run(agent(), store, metadata=metadata)

    assert list_runs(store) == []


def test_odd_but_usable_input_is_made_safe(store: StateStore, messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say("Done."))
    odd = [user({"type": "text", "text": "a\x00b\ud800", "n": math.nan, "t": (1, 2)})]

    done = run(agent(), store, odd)

    assert done.messages[0]["content"] == [
        {"type": "text", "text": "a\ufffdb\ufffd", "n": "NaN", "t": [1, 2]}
    ]
    assert run(agent(), store, odd) == done


# A deploy in between


def test_a_run_keeps_the_prefix_it_began_with(store: StateStore, messages_api: ScriptedMessagesAPI) -> None:
    @tool
    def extra(x: int) -> str:
        """Be new."""
        return "new"

    @tool(name="pay", side_effect=True, requires_approval=True)
    def pay_again(to: str, cents: int = 0) -> str:
        """Pay somebody, with another description and another signature."""
        return f"paid {to} anew"

    messages_api.script(
        say(thinking("Hm."), tool_call("pay", {"to": "ann"})), say(tool_call("extra", {"x": 1})), say("Done.")
    )
    run(agent(pay, system="Be good.", max_tokens=100), store)

    after = agent(extra, pay_again, system="Be bad.", model="claude-opus-5-5", max_tokens=50, cache=None)
    done = resume(after, store, YES)

    first, *later = [
        {key: value for key, value in request.body.items() if key != "messages"}
        for request in messages_api.requests
    ]
    assert [exactjson.dumps(body) for body in later] == [exactjson.dumps(first)] * 2
    sent = [exactjson.dumps(request.body["messages"]) for request in messages_api.requests]
    assert sent[1].startswith(sent[0][:-1])
    assert sent[2].startswith(sent[1][:-1])
    assert [block["content"] for block in results(done)] == ["paid ann anew", "new"]


def test_arguments_that_no_longer_fit_the_tool_are_told(
    store: StateStore, messages_api: ScriptedMessagesAPI
) -> None:
    @tool(name="pay", side_effect=True, requires_approval=True)
    def pay_in(to: str, currency: str) -> str:
        """Pay somebody in a currency."""
        return "paid"

    messages_api.script(say(tool_call("pay", {"to": "ann"})), say("Done."))
    run(agent(pay), store)

    done = resume(agent(pay_in), store, YES)

    assert (done.status, result(done)["is_error"]) == ("done", True)
    assert "currency" in result(done)["content"]


# A client of one's own


def test_the_given_client_is_used(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say("Done."))
    client = messages_api.client(default_headers={"x-mine": "yes"})

    run_agent(agent(), "Go.", client=client)

    assert messages_api.requests[0].headers["x-mine"] == "yes"
    client.close()


def test_what_a_watcher_raises_leaves_a_run_that_goes_on(messages_api: ScriptedMessagesAPI) -> None:
    store = MemoryStateStore()
    messages_api.script(say("Hello."))
    events = stream_agent(agent(), "Go.", checkpoint=Checkpointer(store, "r"))
    next(events)

    with pytest.raises(ZeroDivisionError):
        events.throw(ZeroDivisionError)

    done = run(agent(), store)
    assert (done.status, done.final_text, done.iterations) == ("done", "Hello.", 1)


def test_a_failure_of_the_store_is_raised_and_the_run_can_be_taken_again(
    messages_api: ScriptedMessagesAPI, clock: FixedClock
) -> None:
    class Flaky(MemoryStateStore):
        broken = True

        def save(self, *args: Any, **options: Any) -> None:
            if self.broken:
                raise OSError("disk full")
            super().save(*args, **options)

    store = Flaky()
    messages_api.script(say("Done.").after(fault.overloaded()))
    with pytest.raises(OSError, match="disk full"):
        run(agent(), store)
    store.broken = False

    assert run(agent(), store).status == "done"
