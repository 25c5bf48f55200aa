"""The ten promises, each by its name. Processes that are really killed are in ``tests/processes``."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from anvil_django import (
    Agent,
    Checkpointer,
    Decision,
    approvals,
    exactjson,
    models,
    resume_agent,
    run_agent,
    runs,
    start_run,
    tasks,
)
from anvil_django.errors import AlreadyDecidedError, DecisionError, LeaseLostError, NotAllowedError
from anvil_django.stores import DjangoStateStore
from anvil_django.testing import (
    Kill,
    ScriptedMessagesAPI,
    fixed_clock,
    kill_at,
    say,
    thinking,
    tool_call,
)
from example_project.shop.models import Refund

from .world import order, registered_agent, reviewer, world

pytestmark = pytest.mark.django_db


def die_at(boundary: str, run_id: str = "r", occurrence: int = 1) -> None:
    """Advance the run and die at the given occurrence of a boundary."""
    with pytest.raises(Kill), kill_at(f"{boundary}#{occurrence}"):
        tasks.advance(run_id)


def run(run_id: str = "r") -> models.Run:
    return models.Run.objects.get(run_id=run_id)


def pending(run_id: str = "r") -> models.Approval:
    return models.Approval.objects.get(run__run_id=run_id, status="pending")


# 1


def test_promise_1_nothing_completed_is_lost(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(
        say(tool_call("look", {"thing": "a"}), tool_call("mail", {"to": "ann"})),
        say(tool_call("mail", {"to": "bob"})),
        say("Done."),
    )
    with registered_agent(), fixed_clock() as clock:
        start_run("worldly", "Go.", run_id="r")
        die_at("model.answered", occurrence=2)
        clock.advance(61)
        tasks.advance("r")

    assert run().status == "done"
    assert world.looked == ["a"]
    assert [name for name, _ in world.effects] == ["mail ann", "mail bob"]
    # Only the model call in flight was repeated.
    assert [r.assistant_turns for r in messages_api.requests] == [0, 1, 1, 2]


def test_promise_1_a_read_only_result_that_took_long_is_stored_before_the_next_tool(
    messages_api: ScriptedMessagesAPI,
) -> None:
    messages_api.script(
        say(tool_call("look", {"thing": "a"}), tool_call("look", {"thing": "b"})), say("Done.")
    )
    with registered_agent(), fixed_clock() as clock, pytest.MonkeyPatch.context() as patch:
        slow = world.looked.append
        patch.setattr(world, "looked", Slow(clock, slow))
        start_run("worldly", "Go.", run_id="r")
        die_at("tool.before", occurrence=2)
        assert list(models.ToolCall.objects.order_by("index").values_list("status", flat=True)) == [
            "done",
            "ready",
        ]
        clock.advance(61)
        tasks.advance("r")

        assert world.looked == ["a", "b"]


class Slow(list[str]):
    """A list to which adding takes two seconds."""

    def __init__(self, clock: Any, also: Any) -> None:
        super().__init__()
        self.clock, self.also = clock, also

    def append(self, value: str) -> None:
        self.clock.advance(2)
        super().append(value)


# 2


@pytest.mark.parametrize("times", [1, 3])
def test_promise_2_a_completed_side_effect_is_never_executed_again(
    messages_api: ScriptedMessagesAPI, times: int
) -> None:
    messages_api.script(say(tool_call("mail", {"to": "ann"})), say("Done."))
    with registered_agent(), fixed_clock() as clock:
        start_run("worldly", "Go.", run_id="r")
        for occurrence in range(times):
            die_at("model.before", occurrence=2 if occurrence == 0 else 1)
            clock.advance(61)
        tasks.advance("r")
        tasks.advance("r")
        runs.resume("r")
        list(runs.recover())
        tasks.advance("r")

    assert run().status == "done"
    assert [name for name, _ in world.effects] == ["mail ann"]


# 3


def test_promise_3_an_unknown_outcome_is_never_guessed(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say(tool_call("mail", {"to": "ann"})), say("Done."))
    with registered_agent(), fixed_clock() as clock:
        start_run("worldly", "Go.", run_id="r")
        die_at("tool.returned")
        clock.advance(61)
        tasks.advance("r")

        assert run().status == "suspended"
        assert pending().kind == "in_doubt"
        assert len(world.effects) == 1

        approvals.approve(pending(), user=reviewer(), answer="It was sent.")
        tasks.advance("r")

    assert run().status == "done"
    assert len(world.effects) == 1
    assert models.ToolCall.objects.get().result == exactjson.dumps("It was sent.")


def test_promise_3_a_person_may_say_that_it_did_not_happen(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say(tool_call("mail", {"to": "ann"})), say("Done."))
    with registered_agent(), fixed_clock() as clock:
        start_run("worldly", "Go.", run_id="r")
        die_at("tool.before")
        clock.advance(61)
        tasks.advance("r")
        assert world.effects == []
        approvals.approve(pending(), user=reviewer())
        tasks.advance("r")

    assert run().status == "done"
    assert [name for name, _ in world.effects] == ["mail ann"]
    assert models.ToolCall.objects.get().attempts == 2


def test_promise_3_a_person_may_leave_it_unknown(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say(tool_call("mail", {"to": "ann"})), say("Done."))
    with registered_agent(), fixed_clock() as clock:
        start_run("worldly", "Go.", run_id="r")
        die_at("tool.returned")
        clock.advance(61)
        tasks.advance("r")
        approvals.reject(pending(), user=reviewer(), reason="Nobody knows.")
        tasks.advance("r")

    result = messages_api.requests[-1].body["messages"][-1]["content"][0]
    assert result["is_error"] is True
    assert "Whether it took effect is unknown" in result["content"]
    assert "Nobody knows." in result["content"]


def test_promise_3_an_idempotent_tool_is_run_again_with_the_same_key(
    messages_api: ScriptedMessagesAPI,
) -> None:
    messages_api.script(say(tool_call("charge", {"amount": 3})), say("Done."))
    with registered_agent(), fixed_clock() as clock:
        start_run("worldly", "Go.", run_id="r")
        die_at("tool.returned")
        clock.advance(61)
        tasks.advance("r")

    assert run().status == "done"
    assert [name for name, _ in world.effects] == ["charge 3"]
    assert models.ToolCall.objects.get().attempts == 2


def test_promise_3_a_tool_may_fail_when_it_was_interrupted(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say(tool_call("fax", {"to": "ann"})), say("Done."))
    with registered_agent(), fixed_clock() as clock:
        start_run("worldly", "Go.", run_id="r")
        die_at("tool.returned")
        clock.advance(61)
        tasks.advance("r")

    assert run().status == "done"
    assert models.ToolCall.objects.get().outcome == "unknown"
    assert len(world.effects) == 1


# 4


@pytest.mark.parametrize("boundary", ["tool.before", "atomic.before_commit", "tool.returned"])
def test_promise_4_a_database_side_effect_is_exactly_once(
    messages_api: ScriptedMessagesAPI, boundary: str
) -> None:
    messages_api.script(say(tool_call("refund", {"number": "A-1", "amount": "20"})), say("Done."))
    order()
    with registered_agent(), fixed_clock() as clock:
        start_run("worldly", "Go.", run_id="r")
        die_at(boundary)
        clock.advance(61)
        tasks.advance("r")

    assert run().status == "done"
    assert Refund.objects.count() == 1


def test_promise_4_a_failing_atomic_tool_leaves_nothing(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say(tool_call("refund", {"number": "A-9", "amount": "20"})), say("Sorry."))
    with registered_agent():
        start_run("worldly", "Go.", run_id="r")
        tasks.advance("r")

    assert run().status == "done"
    assert Refund.objects.count() == 0
    assert models.ToolCall.objects.get().outcome == "failed"


# 5


def test_promise_5_a_worker_that_lost_the_lease_cannot_write_or_start(
    messages_api: ScriptedMessagesAPI,
) -> None:
    messages_api.script(say(tool_call("mail", {"to": "ann"})), say("Done."))
    with registered_agent() as agent, fixed_clock() as clock:
        store = DjangoStateStore()
        start_run("worldly", "Go.", run_id="r")
        held = store.claim("r", "zombie", 60)
        assert held is not None
        clock.advance(61)
        tasks.advance("r")
        messages = run().message_count

        from anvil_django.loop import Loop

        with pytest.raises(LeaseLostError):
            list(Loop(agent, held[0], store, held[1]).events())

    assert run().status == "done"
    assert run().message_count == messages
    assert len(world.effects) == 1
    assert len(messages_api.requests) == 2


# 6


def test_promise_6_a_wake_up_is_never_lost(messages_api: ScriptedMessagesAPI) -> None:
    from django_q.models import OrmQ

    messages_api.script(say(tool_call("deploy", {"version": "v2"})), say("Done."))
    with registered_agent(), fixed_clock() as clock:
        start_run("worldly", "Go.", run_id="r")
        OrmQ.objects.all().delete()  # The queue forgets.
        clock.advance(61)
        assert [r.why for r in runs.recover()] == ["the queue lost it"]
        tasks.advance("r")
        approvals.approve(pending(), user=reviewer())
        OrmQ.objects.all().delete()
        clock.advance(61)
        assert [r.why for r in runs.recover()] == ["the queue lost it"]
        assert OrmQ.objects.count() == 1
        tasks.advance("r")

    assert run().status == "done"


def test_promise_6_every_unfinished_run_says_why_it_waits(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say(tool_call("deploy", {"version": "v2"})))
    with registered_agent():
        start_run("worldly", "Go.", run_id="r")
        tasks.advance("r")
        with pytest.raises(runs.IllegalTransitionError, match="suspended until a person decides"):
            runs.resume("r")
        assert pending().tool == "deploy"
        assert list(runs.recover()) == []


def test_promise_6_a_cancellation_that_died_on_the_way_leaves_nothing_that_nobody_heeds(
    messages_api: ScriptedMessagesAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages_api.script(say(tool_call("deploy", {"version": "v2"})))
    with registered_agent():
        start_run("worldly", "Go.", run_id="r")
        tasks.advance("r")
        with monkeypatch.context() as patch:
            patch.setattr(DjangoStateStore, "claim", lambda *args, **kwargs: die())
            with pytest.raises(Kill):
                runs.cancel("r")

    assert (run().status, run().cancel_requested) == ("suspended", False)
    assert runs.cancel("r", by="Clara").status == "cancelled"
    assert run().requested_by == "Clara"


def test_promise_6_a_cancellation_finds_a_run_that_a_worker_took_meanwhile(
    messages_api: ScriptedMessagesAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages_api.script(say(tool_call("deploy", {"version": "v2"})))
    claim, taken = DjangoStateStore.claim, []

    def taken_by_another(store: DjangoStateStore, run_id: str, *args: Any, **kwargs: Any) -> Any:
        if not taken:
            approvals.approve(pending(), user=reviewer())
            taken.append(claim(store, run_id, "another worker", 60))
        return claim(store, run_id, *args, **kwargs)

    with registered_agent():
        start_run("worldly", "Go.", run_id="r")
        tasks.advance("r")
        monkeypatch.setattr(DjangoStateStore, "claim", taken_by_another)
        runs.cancel("r")

    assert (run().status, run().cancel_requested) == ("running", True)


def die() -> None:
    raise Kill


# 7


def test_promise_7_the_history_sent_is_valid_and_byte_identical(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(
        say(
            thinking("Hm."),
            "Ä \U0001f600",
            tool_call("look", {"thing": "z"}),
            tool_call("broken", {"why": "x"}),
        ),
        say(thinking("Hm."), tool_call("mail", {"to": "ann"})),
        say("Done."),
    )
    with registered_agent(), fixed_clock() as clock:
        start_run("worldly", "Go.", run_id="r")
        die_at("model.answered", occurrence=3)
    clock.advance(61)
    # A deploy changes the agent; the run goes on with what it began with.
    with registered_agent(system="Be bad.", tools=[], max_iterations=3), fixed_clock() as clock:
        clock.advance(3600)
        tasks.advance("r")

    before, after = messages_api.requests[-2:]
    assert exactjson.dumps(before.body) == exactjson.dumps(after.body)
    assert run().status == "done"


# 8


def test_promise_8_a_decision_names_a_person_and_is_used_once(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say(tool_call("deploy", {"version": "v2"})), say("Done."))
    with registered_agent():
        start_run("worldly", "Go.", run_id="r")
        tasks.advance("r")
        approval = pending()
        rita = reviewer()
        with pytest.raises(NotAllowedError):
            approvals.approve(approval, user=run_outsider())
        with pytest.raises(DecisionError):
            approvals.reject(approval, user=rita, reason=" ")
        approvals.approve(approval, user=rita)
        with pytest.raises(AlreadyDecidedError, match="rita"):
            approvals.reject(approval, user=rita, reason="Late.")
        tasks.advance("r")

    decision = models.Decision.objects.get()
    assert (decision.user, decision.reviewer_key) == (rita, str(rita.pk))
    assert models.Approval.objects.get().used_at is not None
    assert [name for name, _ in world.effects] == ["deploy v2"]


def test_promise_8_an_approval_of_other_arguments_means_no(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say(tool_call("deploy", {"version": "v2"})), say("Done."))
    with registered_agent():
        start_run("worldly", "Go.", run_id="r")
        tasks.advance("r")
        approvals.approve(pending(), user=reviewer())
        models.ToolCall.objects.update(input='{"version":"v666"}')
        tasks.advance("r")

    assert run().status == "done"
    assert world.effects == []
    assert models.ToolCall.objects.get().outcome == "rejected"


def run_outsider() -> Any:
    from django.contrib.auth import get_user_model

    return get_user_model().objects.create(username="outsider")


# 9


def test_promise_9_limits_are_cumulative(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(*[say(tool_call("look", {"thing": str(i)})) for i in range(3)])
    with registered_agent(max_iterations=3), fixed_clock() as clock:
        start_run("worldly", "Go.", run_id="r")
        for _ in range(3):
            die_at("save.before", occurrence=2)
            clock.advance(61)
        tasks.advance("r")

    assert (run().status, run().stop_reason) == ("done", "max_iterations")
    assert run().iterations == 3


def test_promise_9_usage_is_counted_once(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say(tool_call("look", {"thing": "a"})), say("Done."))
    with registered_agent(), fixed_clock() as clock:
        start_run("worldly", "Go.", run_id="r")
        die_at("save.done", occurrence=1)
        clock.advance(61)
        tasks.advance("r")

    billed = messages_api.billed
    assert run().input_tokens == sum(b.usage["input_tokens"] for b in billed)
    assert run().output_tokens == sum(b.usage["output_tokens"] for b in billed)
    assert len(billed) == 2
    assert run().cost_usd == sum(m.cost_usd or Decimal(0) for m in models.Message.objects.all())
    assert run().cost_usd > 0


# 10


def test_promise_10_resuming_a_finished_run_does_nothing(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say("Done."))
    agent = Agent(name="plain", model="claude-sonnet-5-5")
    saver = Checkpointer(DjangoStateStore(), "r")
    first = run_agent(agent, "Go.", checkpoint=saver)
    before = models.Run.objects.values().get()

    second = resume_agent(agent, checkpoint=saver)
    with pytest.raises(DecisionError):
        resume_agent(agent, checkpoint=saver, approval=Decision(approved=True, reviewer="Rita"))

    assert second == first
    assert second.final_text == "Done."
    assert models.Run.objects.values().get() == before
    assert len(messages_api.requests) == 1


# Steps and commits.


def statements(messages_api: ScriptedMessagesAPI, iterations: int, make: Any) -> list[str]:
    """The statements of a run of so many iterations."""
    messages_api.script(
        *[say("x" * 500, *make(i)) for i in range(iterations)], say("Done."), match=f"{iterations}"
    )
    with registered_agent(max_iterations=iterations + 1):
        start_run("worldly", f"Go {iterations}.", run_id=f"r{iterations}")
        with CaptureQueriesContext(connection) as captured:
            tasks.advance(f"r{iterations}")
    assert run(f"r{iterations}").status == "done"
    return [query["sql"] for query in captured.captured_queries]


@pytest.fixture(
    params=[
        False,
        pytest.param(
            True, marks=pytest.mark.skipif(connection.vendor != "postgresql", reason="PostgreSQL's own way")
        ),
    ],
    ids=["plain statements", "one statement"],
)
def at_once(request: pytest.FixtureRequest, settings: Any) -> bool:
    """Whether a save is one statement."""
    settings.ANVIL = {**settings.ANVIL, "SAVE_IN_ONE_STATEMENT": request.param}
    return bool(request.param)


def commits(texts: list[str]) -> int:
    # In a test case every transaction of ours is a savepoint; outside one, each statement is a transaction.
    return sum(1 for text in texts if text.startswith(("RELEASE SAVEPOINT", "WITH saved AS")))


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([("look", {"thing": "a"})], 2),
        ([("look", {"thing": "a"}), ("look", {"thing": "b"}), ("look", {"thing": "c"})], 2),
        ([("mail", {"to": "a"})], 2),
        ([("mail", {"to": "a"}), ("mail", {"to": "b"}), ("mail", {"to": "c"}), ("mail", {"to": "d"})], 5),
        # Calls run in block order, and nothing is called started that has not: a side effect between
        # others' results costs its own two commits.
        ([("look", {"thing": "a"}), ("mail", {"to": "b"}), ("look", {"thing": "c"})], 4),
    ],
    ids=["one read-only", "three read-only", "one side effect", "four side effects", "mixed"],
)
def test_the_commits_of_an_iteration_are_those_of_the_design(
    messages_api: ScriptedMessagesAPI, calls: list[tuple[str, dict[str, str]]], expected: int, at_once: bool
) -> None:
    with fixed_clock():
        few = statements(messages_api, 3, lambda i: [tool_call(*call) for call in calls])
        many = statements(messages_api, 5, lambda i: [tool_call(*call) for call in calls])

    assert (commits(many) - commits(few)) / 2 == expected


@pytest.mark.parametrize("begun", [10, 500])
def test_an_iteration_costs_the_same_however_long_the_run_is(
    messages_api: ScriptedMessagesAPI, begun: int, at_once: bool
) -> None:
    history: list[dict[str, Any]] = [{"role": "user", "content": "Go."}]
    for i in range(begun):
        asked = {"type": "tool_use", "id": f"toolu_{i:04}", "name": "look", "input": {"thing": "t"}}
        answer = {"type": "tool_result", "tool_use_id": f"toolu_{i:04}", "content": "y" * 500}
        history.append({"role": "assistant", "content": [{"type": "text", "text": "x" * 500}, asked]})
        history.append({"role": "user", "content": [answer]})
    turns = [say("x" * 500, tool_call("look", {"thing": "t"})) for _ in range(3)]
    messages_api.add([*turns, say("Done.")], seeded=begun)
    with registered_agent(), fixed_clock():
        start_run("worldly", history, run_id="r")
        with CaptureQueriesContext(connection) as captured:
            tasks.advance("r")

    assert run().status == "done"
    texts = [query["sql"] for query in captured.captured_queries]
    starts = [
        i for i, text in enumerate(texts) if text.startswith("WITH saved AS" if at_once else "SAVEPOINT")
    ]
    iteration = texts[starts[2] : starts[4]]  # The second one: two transactions.
    # BEGIN and COMMIT are a savepoint and its release here.
    plain = [
        *("SAVEPOINT", "UPDATE", "INSERT", "INSERT", "RELEASE"),
        *("SAVEPOINT", "UPDATE", "UPDATE", "RELEASE"),
    ]
    assert [text.split()[0] for text in iteration] == (["WITH", "WITH"] if at_once else plain)
    # The content of an iteration is about 600 bytes; the columns around it are a constant.
    assert sum(map(len, iteration)) < 4500


def test_an_iteration_writes_no_indexed_column_of_the_run(
    messages_api: ScriptedMessagesAPI, at_once: bool
) -> None:
    with fixed_clock():
        texts = statements(messages_api, 3, lambda i: [tool_call("look", {"thing": "a"})])

    update = f"UPDATE {connection.ops.quote_name(models.Run._meta.db_table)} SET "
    written = [text.split(update)[1].split(" WHERE ")[0] for text in texts if update in text]
    saves = [columns for columns in written if "message_count" in columns]
    indexed = {name for index in models.Run._meta.indexes for name in index.fields} - {"id"}
    named = [
        {name for name in indexed if f"{connection.ops.quote_name(name)} = " in columns} for columns in saves
    ]
    assert len(saves) == 7
    assert named[:-1] == [set()] * 6
    assert named[-1] == {"status", "stop_reason"}  # The end.
