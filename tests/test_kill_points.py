"""A crash at every boundary of a run that has everything: it ends the same, and nothing happens twice."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from anvil_django import approvals as decide
from anvil_django import exactjson, models, runs, start_run, tasks
from anvil_django.stores import DjangoStateStore
from anvil_django.testing import (
    Kill,
    ScriptedMessagesAPI,
    fixed_clock,
    kill_at,
    pause,
    say,
    thinking,
    tool_call,
)
from example_project.shop.models import Refund

from .world import order, registered_agent, reviewer, world

pytestmark = pytest.mark.django_db

TURNS = [
    say(
        thinking("Look first."),
        "Looking.",
        tool_call("look", {"thing": "a"}),
        tool_call("mail", {"to": "ann"}),
        tool_call("look", {"thing": "b"}),
        tool_call("mail", {"to": "bob"}),
    ),
    pause("Still thinking."),
    say(
        thinking("Now the money."),
        tool_call("refund", {"number": "A-1", "amount": "20"}),
        tool_call("refund", {"number": "A-1", "amount": "149.90"}),
        tool_call("charge", {"amount": 3}),
    ),
    say(tool_call("deploy", {"version": "v2"})),
    say("All done."),
]
# Wherever the crash is, these happen once each.
EFFECTS = ["mail ann", "mail bob", "charge 3", "deploy v2"]


def run_with_a_crash_at(number: int | None) -> tuple[list[dict[str, Any]], Any, models.Run]:
    """Run the scenario to its end, dying once at the ``number``-th boundary."""
    with fixed_clock() as clock, kill_at(number) as reached:
        for life in range(2):
            try:
                start_run("worldly", "Do it all.", run_id="r")
                advance_to_the_end(clock)
                break
            except Kill:
                assert life == 0
                clock.advance(61)  # The dead worker's lease runs out.
                rise(reached)
    checkpoint = DjangoStateStore().load("r")
    assert checkpoint is not None
    return checkpoint.messages, reached, models.Run.objects.get(run_id="r")


def rise(reached: Any) -> None:
    """The next process: nothing kills it."""
    from anvil_django import boundaries

    boundaries.set_hook(None)


def advance_to_the_end(clock: Any) -> None:
    for _ in range(20):
        list(runs.recover())
        tasks.advance("r")
        run = models.Run.objects.get(run_id="r")
        if run.status == "suspended":
            for approval in models.Approval.objects.filter(run=run, status="pending"):
                settle(approval)
        elif run.status in {"done", "failed", "paused", "cancelled"}:
            return
        else:
            clock.advance(61)  # For the sweep: the doorbell was not answered.
    pytest.fail(f"the run did not end: {run.status} {run.error}")


def settle(approval: models.Approval) -> None:
    """What a careful person answers."""
    if approval.kind == "tool":
        decide.approve(approval, user=reviewer())
    elif world.times(f"r:{approval.call.call_id}"):
        to = exactjson.loads(approval.call.input)
        results = {"mail": f"sent to {to.get('to')}", "deploy": f"deployed {to.get('version')}"}
        decide.approve(approval, user=reviewer(), answer=results[approval.call.name])
    else:
        decide.approve(approval, user=reviewer())


def boundaries_of_the_scenario() -> int:
    """How many boundaries there are; ``test_the_scenario_is_counted`` keeps the number true."""
    return 67


def test_the_scenario_is_counted(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(*TURNS)
    order()
    with registered_agent():
        messages, reached, run = run_with_a_crash_at(None)

    assert run.status == "done"
    assert len(reached.names) == boundaries_of_the_scenario()
    assert [name for name, _ in world.effects] == EFFECTS
    assert [m["role"] for m in messages] == [
        "user",
        "assistant",
        "user",
        "assistant",
        "assistant",
        "user",
        "assistant",
        "user",
        "assistant",
    ]


@pytest.mark.parametrize("number", range(1, boundaries_of_the_scenario() + 1))
def test_a_crash_at_this_boundary_changes_nothing(messages_api: ScriptedMessagesAPI, number: int) -> None:
    messages_api.script(*TURNS)
    order()
    with registered_agent():
        messages, reached, run = run_with_a_crash_at(number)
        happened = sorted(name for name, _ in world.effects)

    assert reached.killed_at
    assert run.status == "done", (run.status, run.error)
    assert happened == sorted(EFFECTS)
    assert sorted(r.amount for r in Refund.objects.all()) == [Decimal("20.00"), Decimal("149.90")]
    assert exactjson.dumps(messages) == exactjson.dumps(undisturbed_history(messages_api))


_undisturbed: list[Any] = []


def undisturbed_history(messages_api: ScriptedMessagesAPI) -> list[Any]:
    """The history of the same run without a crash; made once, by whichever test comes first."""
    if not _undisturbed:
        models.Run.objects.all().delete()
        with registered_agent():
            _undisturbed.append(run_with_a_crash_at(None)[0])
    return _undisturbed[0]  # type: ignore[no-any-return]
