"""An agent with ``on_limit="ask"``: at each limit a person decides whether the run may use more."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from anvil_django import ToolContext, approvals, exactjson, models, runs, tasks, tool
from anvil_django.errors import AlreadyDecidedError, NotAllowedError, UnfitDecisionError
from anvil_django.stores import DjangoStateStore
from anvil_django.testing import Kill, ScriptedMessagesAPI, Turn, kill_at, say, tool_call

from .waiting import desk, go, on, person, question, run
from .world import reviewer

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clock")]

# Each turn costs 1 cent, takes 1,000 tokens and 10 seconds.
USAGE = {"input_tokens": 900, "output_tokens": 100}
LIMITS: dict[str, dict[str, Any]] = {
    "max_iterations": {"max_iterations": 2},
    "max_tokens_total": {"max_tokens_total": 2_000},
    "max_seconds": {"max_seconds": 20.0},
    "max_cost": {"max_cost_usd": Decimal("0.02")},
}
ONE_MORE = {"max_iterations": 1, "max_tokens_total": "1000", "max_seconds": 10, "max_cost": "0.01"}


@pytest.fixture
def slow(clock: Any, settings: Any) -> Any:
    """A tool that takes ten seconds, for a model whose answers cost a cent each."""
    # 900 in and 100 out: (900 * 10 + 100 * 10) / 1e6 = 0.01
    settings.ANVIL = {"PRICES": {"claude-sonnet-5-5": (10, 10, 10, 10, 10)}}

    @tool
    def slow() -> str:
        """Take a while."""
        clock.advance(10)
        return "fine"

    return slow


def endless(request: Any) -> Turn:
    """A model that never ends."""
    return say(tool_call("slow"), usage=USAGE)


def decide_no(**more: Any) -> None:
    approvals.reject(question(), user=reviewer(), reason="Enough.", **more)


@pytest.mark.parametrize("limit", LIMITS)
def test_a_yes_raises_the_limit_by_as_much_as_the_agent_begins_with(
    messages_api: ScriptedMessagesAPI, slow: Any, limit: str
) -> None:
    messages_api.add(endless)
    with desk(slow, on_limit="ask", **LIMITS[limit]):
        assert (go().status, run().iterations) == ("suspended", 2)
        assert (question().kind, question().tool) == ("limit", limit)
        approvals.approve(question(), user=reviewer())
        assert (on().status, run().iterations) == ("suspended", 4)
        approvals.approve(question(), user=reviewer())
        assert (on().status, run().iterations) == ("suspended", 6)
        decide_no()
        assert (on().status, run().stop_reason) == ("done", limit)

    assert len(messages_api.requests) == 6
    assert [row.status for row in models.Approval.objects.order_by("id")] == [
        "approved",
        "approved",
        "rejected",
    ]
    assert not models.Approval.objects.filter(status="pending").exists()


@pytest.mark.parametrize("limit", LIMITS)
def test_a_yes_may_name_the_amount(messages_api: ScriptedMessagesAPI, slow: Any, limit: str) -> None:
    messages_api.add(endless)
    with desk(slow, on_limit="ask", **LIMITS[limit]):
        go()
        approvals.approve(question(), user=reviewer(), edited_input={"raise_by": ONE_MORE[limit]})
        assert (on().status, run().iterations) == ("suspended", 3)

    decision = models.Decision.objects.get()
    assert (decision.verdict, exactjson.loads(decision.edited_input)) == (
        "edited",
        {"raise_by": ONE_MORE[limit]},
    )


@pytest.mark.parametrize("limit", LIMITS)
def test_a_no_ends_the_run_with_that_stop_reason_and_spends_nothing(
    messages_api: ScriptedMessagesAPI, slow: Any, limit: str
) -> None:
    messages_api.add(endless)
    with desk(slow, on_limit="ask", **LIMITS[limit]):
        go()
        decide_no()
        assert (on().status, run().stop_reason) == ("done", limit)
        assert runs.resume("r").status == "done"
        tasks.advance("r")

    assert len(messages_api.requests) == 2
    assert models.ToolCall.objects.filter(effect="limit").get().outcome == "rejected"


def test_the_question_says_what_was_used_and_what_is_allowed(
    messages_api: ScriptedMessagesAPI, slow: Any
) -> None:
    messages_api.add(endless)
    with desk(slow, on_limit="ask", max_cost_usd=Decimal("0.02")):
        go()

    asked = exactjson.loads(question().call.input)
    assert (asked["limit"], asked["allowed"], asked["raise_by"]) == ("max_cost", "0.02", "0.02")
    assert Decimal(asked["used"]) == Decimal("0.02")


@pytest.mark.parametrize(
    "amount", [0, -1, True, None, "", "many", "NaN", "Infinity", "1e400", "1e5000", [], {}]
)
@pytest.mark.parametrize("limit", LIMITS)
def test_a_bad_amount_decides_nothing(
    messages_api: ScriptedMessagesAPI, slow: Any, limit: str, amount: Any
) -> None:
    messages_api.add(endless)
    with desk(slow, on_limit="ask", **LIMITS[limit]):
        go()
        with pytest.raises(UnfitDecisionError, match="raise_by must be"):
            approvals.approve(question(), user=reviewer(), edited_input={"raise_by": amount})

    assert (question().status, run().status) == ("pending", "suspended")


@pytest.mark.parametrize("limit", ["max_iterations", "max_tokens_total"])
def test_what_is_counted_is_raised_by_whole_numbers(
    messages_api: ScriptedMessagesAPI, slow: Any, limit: str
) -> None:
    messages_api.add(endless)
    with desk(slow, on_limit="ask", **LIMITS[limit]):
        go()
        with pytest.raises(UnfitDecisionError, match="a whole number"):
            approvals.approve(question(), user=reviewer(), edited_input={"raise_by": "1.5"})


def test_a_limit_is_raised_or_not_and_nothing_else(messages_api: ScriptedMessagesAPI, slow: Any) -> None:
    messages_api.add(endless)
    with desk(slow, on_limit="ask", max_iterations=1):
        go()
        for edited in ({}, {"raise_by": 1, "used": "0"}, {"max_iterations": 5}):
            with pytest.raises(UnfitDecisionError, match="and nothing else"):
                approvals.approve(question(), user=reviewer(), edited_input=edited)
        with pytest.raises(UnfitDecisionError, match="cannot be answered"):
            approvals.answer(question(), user=reviewer(), answer="x")
        with pytest.raises(UnfitDecisionError, match="Only a call in doubt"):
            approvals.settle(question(), user=reviewer(), verdict="not_happened")


def test_raises_add_up_and_survive_restarts(messages_api: ScriptedMessagesAPI, slow: Any, clock: Any) -> None:
    messages_api.add(endless)
    with desk(slow, on_limit="ask", max_iterations=1):
        go()
        for amount in (1, 2):
            approvals.approve(question(), user=reviewer(), edited_input={"raise_by": amount})
            for boundary in (1, 2, 3):
                try:
                    with kill_at(boundary):
                        tasks.advance("r")
                except Kill:
                    clock.advance(61)
            assert on().status == "suspended"
        stored = DjangoStateStore().load("r")

    assert stored is not None
    assert (stored.iterations, stored.limits.max_iterations) == (4, 4)


def test_the_history_of_a_run_whose_limit_was_raised_holds_nothing_of_it(
    messages_api: ScriptedMessagesAPI, slow: Any
) -> None:
    messages_api.script(say(tool_call("slow")), say("Done."))
    with desk(slow, on_limit="ask", max_iterations=1):
        go()
        approvals.approve(question(), user=reviewer())
        assert on().status == "done"
    stored = DjangoStateStore().load("r")

    assert stored is not None
    assert [m["role"] for m in stored.messages] == ["user", "assistant", "user", "assistant"]


def test_cancelling_at_a_limit_voids_the_question(messages_api: ScriptedMessagesAPI, slow: Any) -> None:
    messages_api.add(endless)
    with desk(slow, on_limit="ask", max_iterations=1):
        go()
        asked = question()
        runs.cancel("r")
        with pytest.raises(AlreadyDecidedError, match="already void"):
            approvals.approve(asked, user=reviewer())

    assert (run().status, run().stop_reason) == ("cancelled", "cancelled")


def test_whoever_started_the_run_cannot_raise_its_limits(
    messages_api: ScriptedMessagesAPI, slow: Any
) -> None:
    messages_api.add(endless)
    stella = person("stella")
    with desk(slow, on_limit="ask", max_iterations=1):
        go(user=stella)
        with pytest.raises(NotAllowedError, match="You started this run"):
            approvals.approve(question(), user=stella)


def test_a_question_nobody_answers_in_time_ends_the_run_at_its_limit(
    messages_api: ScriptedMessagesAPI, slow: Any, clock: Any, settings: Any
) -> None:
    settings.ANVIL = {**settings.ANVIL, "APPROVAL_TTL": 60}
    messages_api.add(endless)
    with desk(slow, on_limit="ask", max_iterations=1):
        go()
        clock.advance(60)
        tasks.recover()
        assert (on().status, run().stop_reason) == ("done", "max_iterations")


def test_a_no_gives_the_stop_reason_of_the_limit_that_was_asked_about(
    messages_api: ScriptedMessagesAPI, slow: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages_api.add(endless)
    with desk(slow, on_limit="ask", max_cost_usd=Decimal("0.01"), max_seconds=15.0):
        go()
        assert question().tool == "max_cost"
        models.Run.objects.update(active_seconds=15.0)  # Spent since, on taking the run up again.
        decide_no()
        on()

    assert (run().status, run().stop_reason) == ("done", "max_cost")


def test_a_raise_changed_in_the_database_raises_nothing(messages_api: ScriptedMessagesAPI, slow: Any) -> None:
    messages_api.add(endless)
    with desk(slow, on_limit="ask", max_iterations=1):
        go()
        approvals.approve(question(), user=reviewer())
        changed = '{"limit":"max_iterations","used":"1","allowed":"1","raise_by":"1000"}'
        models.ToolCall.objects.filter(effect="limit").update(input=changed)
        on()

    assert (run().status, run().stop_reason, len(messages_api.requests)) == ("done", "max_iterations", 1)


def test_each_limit_that_is_reached_is_asked_about(messages_api: ScriptedMessagesAPI, slow: Any) -> None:
    messages_api.add(endless)
    with desk(slow, on_limit="ask", max_iterations=1, max_tokens_total=1_000):
        go()
        assert question().tool == "max_iterations"
        approvals.approve(question(), user=reviewer())
        assert (on().status, question().tool) == ("suspended", "max_tokens_total")
        approvals.approve(question(), user=reviewer())
        assert (on().status, run().iterations) == ("suspended", 2)


def test_calls_that_wait_and_a_limit_are_asked_one_after_the_other(
    messages_api: ScriptedMessagesAPI,
) -> None:
    ran: list[int] = []

    @tool(side_effect=True, requires_approval=True)
    def act(number: int, ctx: ToolContext) -> str:
        """Do something."""
        ran.append(number)
        return "done"

    messages_api.script(say(tool_call("act", {"number": 1})), say("Done."))
    with desk(act, on_limit="ask", max_iterations=1):
        go()
        assert question().kind == "tool"
        approvals.approve(question(), user=reviewer())
        assert (on().status, question().kind, ran) == ("suspended", "limit", [1])
        approvals.approve(question(), user=reviewer())
        assert on().status == "done"
