"""``next_step``: whatever is stored, what happens next follows from it alone."""

from __future__ import annotations

from typing import Any

import pytest

from anvil_django.calls import Decision, ToolCall
from anvil_django.checkpoint import AgentCheckpoint
from anvil_django.cost import Usage
from anvil_django.limits import Limits
from anvil_django.states import ApprovalKind, CallStatus, Outcome, RunStatus
from anvil_django.steps import (
    AnswerCall,
    AskLimit,
    AskPerson,
    CallModel,
    CloseTurn,
    Finish,
    RunTool,
    Wait,
    needs_intent,
    next_step,
)

ME, SOMEBODY_ELSE = 7, 6
"""Fencing tokens."""


def call(status: CallStatus = CallStatus.READY, **values: Any) -> ToolCall:
    named = {
        "call_id": "c1",
        "name": "mail",
        "input": {"to": "ann"},
        "seq": 1,
        "index": 0,
        "effect": "external",
    }
    return ToolCall(**{**named, "status": status, "on_interrupt": "ask", **values})


def running(*calls: ToolCall, **values: Any) -> AgentCheckpoint:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Go."}]
    if calls:
        blocks = [{"type": "tool_use", "id": c.call_id, "name": c.name, "input": c.input} for c in calls]
        messages.append({"role": "assistant", "content": blocks})
    made = {
        "run_id": "r",
        "agent": "a",
        "prefix": {"model": "m", "max_tokens": 9},
        "messages": messages,
        "status": RunStatus.RUNNING,
        "token": ME,
        "calls": list(calls),
    }
    return AgentCheckpoint(**{**made, **values})


def decided(status: CallStatus, kind: ApprovalKind, **verdict: Any) -> ToolCall:
    asked = call(status, kind=kind)
    decision = Decision(reviewer="Rita", **verdict)
    asked.decision = Decision(
        reviewer="Rita",
        **verdict,
        digest=asked.digest("r", decision.edited_input, decision.answer),
    )
    return asked


def test_a_side_effect_that_somebody_else_began_is_in_doubt() -> None:
    step = next_step(running(call(CallStatus.STARTED, started_token=SOMEBODY_ELSE)))
    assert isinstance(step, AskPerson)
    assert step.kind is ApprovalKind.IN_DOUBT


@pytest.mark.parametrize("effect", ["none", "atomic"])
def test_what_left_nothing_behind_is_run_again(effect: str) -> None:
    step = next_step(running(call(CallStatus.STARTED, started_token=SOMEBODY_ELSE, effect=effect)))
    assert isinstance(step, RunTool)


def test_an_idempotent_side_effect_is_run_again() -> None:
    step = next_step(running(call(CallStatus.STARTED, started_token=SOMEBODY_ELSE, on_interrupt="retry")))
    assert isinstance(step, RunTool)


def test_a_side_effect_that_is_to_fail_is_told_as_unknown() -> None:
    step = next_step(running(call(CallStatus.STARTED, started_token=SOMEBODY_ELSE, on_interrupt="fail")))
    assert isinstance(step, AnswerCall)
    assert step.outcome is Outcome.UNKNOWN


def test_a_side_effect_whose_intent_this_process_has_stored_is_run() -> None:
    assert isinstance(next_step(running(call(CallStatus.STARTED, started_token=ME))), RunTool)


@pytest.mark.parametrize(
    ("asked", "needed"),
    [
        (call(), True),
        (call(effect="none"), False),
        (call(effect="atomic"), False),
        (decided(CallStatus.WAITING, ApprovalKind.TOOL, approved=True), True),
        (call(CallStatus.STARTED, started_token=ME), False),
        (call(CallStatus.STARTED, started_token=SOMEBODY_ELSE), True),
    ],
    ids=["side effect", "read-only", "atomic", "approved", "stored", "stored by somebody else"],
)
def test_the_intent_is_stored_before_what_cannot_be_taken_back(asked: ToolCall, needed: bool) -> None:
    assert needs_intent(asked, ME) is needed


def test_calls_that_wait_do_not_hold_up_the_others() -> None:
    waiting = call(CallStatus.WAITING, kind=ApprovalKind.TOOL)
    ready = call(call_id="c2", index=1)
    assert next_step(running(waiting, ready)) == RunTool(ready)
    assert isinstance(next_step(running(waiting)), Wait)


@pytest.mark.parametrize(
    ("kind", "verdict", "outcome"),
    [
        (ApprovalKind.TOOL, {"approved": False, "reason": "No."}, Outcome.REJECTED),
        (ApprovalKind.TOOL, {"approved": True, "answer": "Done by me."}, Outcome.ANSWERED),
        (ApprovalKind.IN_DOUBT, {"approved": False, "reason": "Who knows."}, Outcome.UNKNOWN),
        (ApprovalKind.IN_DOUBT, {"approved": True, "answer": "sent"}, Outcome.ANSWERED),
    ],
    ids=["rejected", "answered", "left unknown", "it happened"],
)
def test_a_decision_that_does_not_run_the_call_answers_it(
    kind: ApprovalKind, verdict: dict[str, Any], outcome: Outcome
) -> None:
    status = CallStatus.IN_DOUBT if kind is ApprovalKind.IN_DOUBT else CallStatus.WAITING
    step = next_step(running(decided(status, kind, **verdict)))
    assert isinstance(step, AnswerCall)
    assert step.outcome is outcome


def test_a_decision_about_other_arguments_runs_nothing() -> None:
    approved = decided(CallStatus.WAITING, ApprovalKind.TOOL, approved=True)
    approved.input = {"to": "bob"}
    step = next_step(running(approved))
    assert isinstance(step, AnswerCall)
    assert step.outcome is Outcome.REJECTED


def test_a_turn_is_closed_when_every_call_has_its_result() -> None:
    done = call()
    done.finish(Outcome.RETURNED, "sent")
    assert isinstance(next_step(running(done)), CloseTurn)


def test_the_model_is_asked_when_it_is_its_turn() -> None:
    assert isinstance(next_step(running()), CallModel)


@pytest.mark.parametrize(
    ("limits", "used"),
    [
        ({"max_iterations": 3}, {"iterations": 3}),
        ({"max_tokens_total": 10}, {"total_usage": Usage(6, 4)}),
        ({"max_seconds": 5.0}, {"active_seconds": 5.0}),
    ],
    ids=["iterations", "tokens", "seconds"],
)
def test_a_limit_ends_the_run_before_money_is_spent(limits: dict[str, Any], used: dict[str, Any]) -> None:
    step = next_step(running(limits=Limits(**limits), **used))
    assert isinstance(step, Finish)
    assert (step.status, step.stop_reason) == (RunStatus.DONE, next(iter(limits)))


def test_a_limit_may_ask_instead() -> None:
    step = next_step(running(limits=Limits(max_iterations=3, on_limit="ask"), iterations=3))
    assert isinstance(step, AskLimit)


def test_it_changes_nothing() -> None:
    checkpoint = running(call(), call(call_id="c2", index=1))
    before = checkpoint.to_dict()
    assert next_step(checkpoint) == next_step(checkpoint)
    assert checkpoint.to_dict() == before
