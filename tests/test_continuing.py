"""A further message: to a finished run, and to one that is under way."""

from __future__ import annotations

from typing import Any

import pytest

from anvil_django import approvals, feed, models, runs, start_run, tasks
from anvil_django.errors import (
    BadInputError,
    IdempotencyKeyReusedError,
    IllegalTransitionError,
    RunIdTakenError,
    UnknownRunError,
)
from anvil_django.stores import DjangoStateStore
from anvil_django.testing import ScriptedMessagesAPI, fault, pause, refusal, say, tool_call

from .world import registered_agent, reviewer, world

pytestmark = pytest.mark.django_db


def run(run_id: str = "r") -> models.Run:
    return models.Run.objects.get(run_id=run_id)


def roles(run_id: str = "r") -> list[str]:
    checkpoint = DjangoStateStore().load(run_id)
    assert checkpoint is not None
    return [message["role"] for message in checkpoint.messages]


# Continue.


def test_a_finished_run_goes_on_with_a_further_message(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say("Hello."), say("It is noon."))
    with registered_agent():
        start_run("worldly", "Hi.", run_id="r")
        tasks.advance("r")
        continued = runs.say("r", "What time is it?", by="Clara")
        assert continued.status == "queued"
        tasks.advance("r")

    assert (run().status, run().iterations) == ("done", 2)
    assert roles() == ["user", "assistant", "user", "assistant"]
    assert messages_api.requests[-1].body["messages"][2]["content"] == "What time is it?"


def test_a_run_that_hit_its_limit_stays_at_it(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say("Hello."))
    with registered_agent(max_iterations=1):
        start_run("worldly", "Hi.", run_id="r")
        tasks.advance("r")
        runs.say("r", "More?")
        tasks.advance("r")

    assert (run().status, run().stop_reason) == ("done", "max_iterations")


def test_a_cancelled_run_has_a_history_that_can_go_on(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say(tool_call("deploy", {"version": "v1"})), say("All right."))
    with registered_agent():
        start_run("worldly", "Go.", run_id="r")
        tasks.advance("r")
        runs.cancel("r")
        runs.say("r", "Never mind.")
        tasks.advance("r")

    assert run().status == "done"
    assert world.effects == []
    last = messages_api.requests[-1].body["messages"]
    assert [m["role"] for m in last] == ["user", "assistant", "user", "user"]
    assert last[2]["content"][0]["is_error"] is True


def test_resuming_a_finished_run_still_does_nothing(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say("Hello."))
    with registered_agent():
        start_run("worldly", "Hi.", run_id="r")
        tasks.advance("r")
        runs.resume("r")
        tasks.advance("r")

    assert run().status == "done"
    assert len(messages_api.requests) == 1


def test_a_run_that_failed_in_mid_turn_must_be_resumed_first(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say(tool_call("mail", {"to": "ann"})), say("Done."))
    with registered_agent():
        start_run("worldly", "Go.", run_id="r")
        tasks.advance("r")
        models.Run.objects.update(status="failed", error_code="x", stop_reason="", finished_at=None)
        models.ToolCall.objects.update(status="ready", result=None)

        with pytest.raises(IllegalTransitionError, match="its turn is answered"):
            runs.say("r", "Hello?")


@pytest.mark.parametrize("content", ["", "  ", [], [{"type": "text", "text": " "}], 5, None])
def test_a_message_that_cannot_be_sent_is_refused(messages_api: ScriptedMessagesAPI, content: Any) -> None:
    messages_api.script(say("Hello."))
    with registered_agent():
        start_run("worldly", "Hi.", run_id="r")
        tasks.advance("r")
        with pytest.raises(BadInputError):
            runs.say("r", content)

    assert run().status == "done"
    with pytest.raises(UnknownRunError):
        runs.say("nobody", "Hi.")


# A turn that the model had paused.


def paused_run(messages_api: ScriptedMessagesAPI, *later: Any, **limits: Any) -> models.Run:
    """A run that ends after the model had paused in a turn with a call."""
    messages_api.script(pause("Hm.", tool_call("look", {"thing": "a"})), *later)
    with registered_agent(**limits):
        start_run("worldly", "Go.", run_id="r")
        tasks.advance("r")
    return run()


def test_a_limit_that_ends_a_paused_turn_answers_its_calls(messages_api: ScriptedMessagesAPI) -> None:
    assert paused_run(messages_api, say("Yes?"), max_iterations=1).stop_reason == "max_iterations"

    assert roles() == ["user", "assistant", "user"]
    (call,) = models.ToolCall.objects.all()
    assert (call.status, call.outcome, call.is_error) == ("done", "cancelled", True)
    fork = runs.fork("r", message="And now?", new_id="f")
    with registered_agent():
        tasks.advance(fork.run_id)
    assert roles("f") == ["user", "assistant", "user", "user", "assistant"]


def test_a_refusal_of_a_paused_turn_answers_its_calls(messages_api: ScriptedMessagesAPI) -> None:
    assert paused_run(messages_api, say("Yes?").after(refusal())).stop_reason == "refusal"

    with registered_agent():
        runs.say("r", "Why?")
        tasks.advance("r")
    assert roles() == ["user", "assistant", "user", "user", "assistant"]


def test_a_cancelled_paused_turn_has_its_calls_answered(messages_api: ScriptedMessagesAPI) -> None:
    with pytest.MonkeyPatch.context() as patch:
        cancel = interrupting(DjangoStateStore.save, lambda: runs.cancel("r"))
        patch.setattr(DjangoStateStore, "save", cancel)
        assert paused_run(messages_api, say("Yes?")).status == "cancelled"

    with registered_agent():
        runs.say("r", "Go on.")
        tasks.advance("r")
    assert roles() == ["user", "assistant", "user", "user", "assistant"]


def test_a_run_that_failed_in_a_paused_turn_takes_no_message_until_it_is_resumed(
    messages_api: ScriptedMessagesAPI,
) -> None:
    broken = say("Done.").after(fault.http(400, "invalid_request_error"))
    assert paused_run(messages_api, broken).status == "failed"

    with pytest.raises(IllegalTransitionError, match="until its turn is answered"):
        runs.say("r", "Go on.")
    with pytest.raises(BadInputError, match="was never answered"):
        runs.fork("r", message="Go on.")
    with registered_agent():
        runs.retry("r")
        tasks.advance("r")
    assert roles() == ["user", "assistant", "assistant", "user"]


def test_it_is_seen_however_often_the_turn_was_paused(messages_api: ScriptedMessagesAPI) -> None:
    later = [pause(f"Part {i}.") for i in range(3)]
    last = say("Done.").after(fault.http(400, "invalid_request_error"))
    assert paused_run(messages_api, *later, last, max_pauses=3).error_code == "pause_limit"

    with registered_agent():
        runs.resume("r")
        tasks.advance("r")
        assert (run().status, run().error_code) == ("failed", "request_refused")
        with pytest.raises(IllegalTransitionError, match="until its turn is answered"):
            runs.say("r", "Hello?")
        with pytest.raises(BadInputError, match="was never answered"):
            runs.fork("r", iteration=1, message="Go on.")
        runs.retry("r")
        tasks.advance("r")
    assert run().status == "done"


# Steer.


def test_a_message_to_a_live_run_comes_after_the_results_of_its_turn(
    messages_api: ScriptedMessagesAPI,
) -> None:
    messages_api.script(say(tool_call("deploy", {"version": "v1"})), say("Understood."))
    with registered_agent():
        start_run("worldly", "Go.", run_id="r")
        tasks.advance("r")
        runs.say("r", "Then stop.", by="Clara")
        assert run().status == "suspended"
        approvals.approve(models.Approval.objects.get(), user=reviewer())
        tasks.advance("r")

    sent = messages_api.requests[-1].body["messages"]
    assert [m["role"] for m in sent] == ["user", "assistant", "user", "user"]
    assert sent[2]["content"][0]["type"] == "tool_result"
    assert sent[3]["content"] == "Then stop."
    assert (run().status, run().steering_waits) == ("done", False)
    assert models.Steering.objects.get().placed_seq == 3


def test_a_message_to_a_queued_run_is_there_at_its_first_call(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say("Both."))
    with registered_agent():
        start_run("worldly", "One.", run_id="r")
        runs.say("r", "Two.")
        tasks.advance("r")

    assert [m["content"] for m in messages_api.requests[0].body["messages"]] == ["One.", "Two."]


def test_a_message_that_comes_while_the_model_ends_is_answered(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say("Done."), say("And that too."))
    with registered_agent(), pytest.MonkeyPatch.context() as patch:
        start_run("worldly", "Go.", run_id="r")
        patch.setattr(
            DjangoStateStore, "save", interrupting(DjangoStateStore.save, lambda: runs.say("r", "Also this."))
        )
        tasks.advance("r")

    assert (run().status, run().iterations) == ("done", 2)
    assert roles() == ["user", "assistant", "user", "assistant"]


def test_a_message_waits_for_a_paused_turn(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(pause("Hm."), say("Done."), say("And that."))
    with registered_agent(), pytest.MonkeyPatch.context() as patch:
        start_run("worldly", "Go.", run_id="r")
        patch.setattr(
            DjangoStateStore, "save", interrupting(DjangoStateStore.save, lambda: runs.say("r", "Also this."))
        )
        tasks.advance("r")

    assert run().status == "done"
    assert roles() == ["user", "assistant", "assistant", "user", "assistant"]


def interrupting(save: Any, event: Any) -> Any:
    """A save right before which something happens, the first time."""
    happened: list[bool] = []

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if not happened:
            happened.append(True)
            event()
        return save(*args, **kwargs)

    return wrapped


def test_a_cancel_is_heeded_although_a_message_waits(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say(tool_call("deploy", {"version": "v1"})))
    with registered_agent():
        start_run("worldly", "Go.", run_id="r")
        tasks.advance("r")
        runs.say("r", "Then stop.")
        runs.cancel("r")

    assert run().status == "cancelled"


@pytest.mark.parametrize("ended", [False, True], ids=["live run", "ended run"])
def test_a_message_that_is_sent_again_with_its_key_is_there_once(
    messages_api: ScriptedMessagesAPI, ended: bool
) -> None:
    messages_api.script(*[say("Hello.")] * (1 + ended))
    with registered_agent():
        start_run("worldly", "Hi.", run_id="r")
        if ended:
            tasks.advance("r")
        first = runs.deliver("r", "What time is it?", idempotency_key="k1")
        again = runs.deliver("r", "What time is it?", idempotency_key="k1")
        with pytest.raises(IdempotencyKeyReusedError, match="'k1' was already used"):
            runs.deliver("r", "Who is there?", idempotency_key="k1")
        tasks.advance("r")
        later = runs.deliver("r", "What time is it?", idempotency_key="k1")

    assert [placed for _, placed in (first, again, later)] == [ended, ended, True]
    assert (later[0].status, later[0].message_count) == ("done", len(roles()))
    history = messages_api.requests[-1].body["messages"]
    assert [m["content"] for m in history].count("What time is it?") == 1


def test_a_key_belongs_to_one_run(messages_api: ScriptedMessagesAPI) -> None:
    with registered_agent():
        for run_id in ("a", "b"):
            start_run("worldly", "Hi.", run_id=run_id)
            runs.say(run_id, f"I am {run_id}.", idempotency_key="k1")

    assert models.Steering.objects.count() == 2


# Fork.


def test_a_fork_begins_where_an_iteration_of_the_old_run_ended(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(
        say(tool_call("mail", {"to": "ann"})), say(tool_call("mail", {"to": "bob"})), say("Done.")
    )
    with registered_agent():
        start_run("worldly", "Go.", run_id="r")
        tasks.advance("r")
        child = runs.fork("r", iteration=1, new_id="f")
        tasks.advance("f")

    assert child.forked_from == run("r")
    assert (run("f").status, run("f").iterations, run("f").forked_at) == ("done", 2, 1)
    assert roles("f") == roles("r")
    keys = [key for _, key in world.effects]
    assert [name for name, _ in world.effects] == ["mail ann", "mail bob", "mail bob"]
    assert len(set(keys)) == 3, "a fork's calls have keys of their own"


def test_a_fork_from_the_input_runs_everything_anew(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say("Done."))
    with registered_agent():
        start_run("worldly", "Go.", run_id="r")
        tasks.advance("r")
        runs.fork("r", iteration=0, new_id="f")
        tasks.advance("f")

    assert roles("f") == ["user", "assistant"]


def test_a_fork_of_a_finished_turn_needs_a_message(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say("Done."), say("Again."))
    with registered_agent():
        start_run("worldly", "Go.", run_id="r")
        tasks.advance("r")
        with pytest.raises(BadInputError, match="give a message"):
            runs.fork("r")
        runs.fork("r", message="Once more?", new_id="f")
        tasks.advance("f")

    assert roles("f") == ["user", "assistant", "user", "assistant"]
    assert roles("r") == ["user", "assistant"]


@pytest.mark.parametrize("iteration", [-1, 2, True, "1"])
def test_a_fork_from_no_iteration_is_refused(messages_api: ScriptedMessagesAPI, iteration: Any) -> None:
    messages_api.script(say("Done."))
    with registered_agent():
        start_run("worldly", "Go.", run_id="r")
        with pytest.raises(IllegalTransitionError):
            runs.fork("r")
        tasks.advance("r")
        with pytest.raises(BadInputError, match="stored iterations"):
            runs.fork("r", iteration=iteration, message="Hm?")
        with pytest.raises(RunIdTakenError):
            runs.fork("r", iteration=0, new_id="r")


# The feed.


def test_the_feed_tells_everything_once_and_in_order(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(
        say("Looking.", tool_call("look", {"thing": "a"}), tool_call("mail", {"to": "ann"})),
        say(tool_call("deploy", {"version": "v1"})),
        say("Done."),
    )
    seen: list[feed.FeedEvent] = []

    def poll() -> None:
        after = seen[-1].cursor if seen else feed.Cursor()
        seen.extend(feed.read(run(), feed.Cursor.parse(str(after))))

    with registered_agent(), pytest.MonkeyPatch.context() as patch:
        start_run("worldly", "Go.", run_id="r")
        original = DjangoStateStore.save

        def save(*args: Any, **kwargs: Any) -> None:
            original(*args, **kwargs)
            poll()

        patch.setattr(DjangoStateStore, "save", save)
        tasks.advance("r")
        approvals.approve(models.Approval.objects.get(), user=reviewer())
        poll()
        tasks.advance("r")

    assert [event.type for event in seen] == [
        "message",
        "message",
        "tool.requested",
        "tool.requested",
        "tool.finished",
        "tool.started",
        "tool.finished",
        "message",
        "tool.requested",
        "approval.requested",
        "approval.decided",
        "tool.started",
        "tool.finished",
        "message",
        "run.ended",
    ]
    assert seen == feed.read(run(), feed.Cursor())
    assert feed.read(run(), seen[-1].cursor) == []


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_the_feed_can_be_read_in_pages_of_any_size(messages_api: ScriptedMessagesAPI, limit: int) -> None:
    messages_api.script(
        say(*[tool_call("look", {"thing": str(i)}) for i in range(9)]),
        say(tool_call("mail", {"to": "x"})),
        say("Done."),
    )
    with registered_agent():
        start_run("worldly", "Go.", run_id="r")
        tasks.advance("r")
    whole = feed.read(run(), feed.Cursor())
    paged: list[feed.FeedEvent] = []
    for _ in range(len(whole) + 1):
        page = feed.read(run(), paged[-1].cursor if paged else feed.Cursor(), limit=limit)
        paged.extend(page)

    assert paged == whole


@pytest.mark.parametrize("text", ["x", "1.2", "1.2.3.4", "-1", "1.a.2", "²"])
def test_a_cursor_of_somebody_else_is_refused(text: str) -> None:
    with pytest.raises(BadInputError, match="not a cursor"):
        feed.Cursor.parse(text)


# Pause and decide, in any order.


def test_a_paused_run_is_woken_by_the_decision_it_waited_for(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(
        say(tool_call("deploy", {"version": "v1"}), tool_call("mail", {"to": "ann"})), say("Done.")
    )
    with registered_agent(), pytest.MonkeyPatch.context() as patch:
        start_run("worldly", "Go.", run_id="r")
        pausing = interrupting(DjangoStateStore.save, lambda: runs.pause("r"))
        patch.setattr(DjangoStateStore, "save", pausing)
        tasks.advance("r")
        assert run().status == "paused"
        runs.resume("r")
        tasks.advance("r")
        assert run().status == "suspended"
        approvals.approve(models.Approval.objects.get(), user=reviewer())
        tasks.advance("r")

    assert run().status == "done"
    assert sorted(name for name, _ in world.effects) == ["deploy v1", "mail ann"]
