"""Questions that a person answers too late, and questions about a limit, through the loop's own API."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from anvil_django import tool
from anvil_django.clock import FixedClock
from anvil_django.errors import ApprovalExpiredError, DecisionError
from anvil_django.stores import StateStore
from anvil_django.testing import Kill, ScriptedMessagesAPI, Turn, kill_at, say, tool_call

from .driving import NO, YES, agent, result, resume, run, stored


@tool(side_effect=True, requires_approval=True, approval_ttl=60)
def pay(to: str) -> str:
    """Pay somebody."""
    return f"paid {to}"


@tool
def look() -> str:
    """Look."""
    return "fine"


def looking(request: Any) -> Turn:
    """A model that never ends."""
    return say(tool_call("look"))


def test_a_question_nobody_answered_in_time_counts_as_a_no(
    store: StateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock
) -> None:
    messages_api.script(say(tool_call("pay", {"to": "ann"}, id="toolu_1")), say("Understood."))
    waiting = run(agent(pay), store)
    clock.advance(59)
    assert resume(agent(pay), store) == waiting
    clock.advance(1)

    with pytest.raises(ApprovalExpiredError):
        resume(agent(pay), store, YES)
    done = resume(agent(pay), store)

    assert (done.status, done.final_text) == ("done", "Understood.")
    assert result(done)["content"] == "Nobody approved this call in time, so it was not run."
    assert result(done)["is_error"] is True
    told = stored(store).approvals["toolu_1"]
    assert (told["approved"], told["outcome"]) == (False, "expired")


def test_a_doubt_never_expires(
    store: StateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock
) -> None:
    messages_api.script(say(tool_call("pay", {"to": "ann"})), say("Done."))
    run(agent(pay), store)
    with pytest.raises(Kill), kill_at(5) as reached:
        resume(agent(pay), store, YES)
    assert reached.killed_at == "tool.returned"
    clock.advance(61)
    assert resume(agent(pay), store).pending[0].kind == "in_doubt"
    clock.advance(10_000_000)

    assert resume(agent(pay), store).status == "suspended"
    assert resume(agent(pay), store, replace(YES, answer="paid ann")).status == "done"


@pytest.mark.parametrize(
    ("limit", "more", "calls"),
    [
        ({"max_iterations": 2}, None, 4),
        ({"max_iterations": 2}, 1, 3),
        ({"max_cost_usd": Decimal("0.0001")}, "0.001", None),
    ],
)
def test_a_limit_that_asks_is_raised_by_a_person_for_the_run_that_waits(
    store: StateStore,
    messages_api: ScriptedMessagesAPI,
    clock: FixedClock,
    limit: dict[str, Any],
    more: Any,
    calls: int | None,
) -> None:
    messages_api.add(looking)
    definition = agent(look, on_limit="ask", **limit)

    waiting = run(definition, store)
    (question,) = waiting.pending
    edited = None if more is None else {"raise_by": more}
    again = resume(definition, store, replace(YES, edited_input=edited))

    assert (waiting.status, question.kind) == ("suspended", "limit")
    assert again.status == "suspended"
    assert again.iterations > waiting.iterations
    if calls is not None:
        assert again.iterations == calls
    done = resume(definition, store, NO)
    assert (done.status, done.stop_reason, done.iterations) == ("done", question.tool, again.iterations)
    assert len(messages_api.requests) == done.iterations


@pytest.mark.parametrize(
    "decision",
    [
        replace(YES, answer="Never mind."),
        replace(YES, edited_input={"raise_by": -1}),
        replace(YES, edited_input={"raise_by": 1.5}),
        replace(YES, edited_input={"raise_by": 1, "used": "0"}),
        replace(YES, edited_input={}),
    ],
    ids=range(5),
)
def test_a_limit_is_raised_by_a_number_or_not_at_all(
    store: StateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock, decision: Any
) -> None:
    messages_api.add(looking)
    definition = agent(look, on_limit="ask", max_iterations=1)
    run(definition, store)
    before = stored(store).to_dict()

    with pytest.raises(DecisionError):
        resume(definition, store, decision)

    assert stored(store).to_dict() == before
