"""A crash at every boundary of a run that has everything: it ends the same, and nothing happens twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from anvil_django.boundaries import BOUNDARIES
from anvil_django.testing import (
    Scenario,
    ScriptedMessagesAPI,
    crash_everywhere,
    pause,
    say,
    thinking,
    tool_call,
)
from example_project.shop.models import Refund

from .world import order, registered_agent, world

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


def clean_world() -> None:
    world.effects.clear()
    order()


def effects() -> list[Any]:
    return [name for name, _ in world.effects] + [str(refund.amount) for refund in Refund.objects.all()]


REACHED = [name for name in BOUNDARIES if name != "run.giving_up"]
EVERYTHING = Scenario(agent="worldly", input="Do it all.", turns=TURNS, effects=effects, reset=clean_world)


@pytest.fixture(autouse=True)
def agent() -> Iterator[None]:
    with registered_agent():
        yield


def test_the_scenario_meets_every_boundary_but_that_of_an_error(messages_api: ScriptedMessagesAPI) -> None:
    report = crash_everywhere(EVERYTHING, messages_api, only=1)

    assert len(report.boundaries) == 67
    assert {where.partition("#")[0] for where in report.boundaries} == {*REACHED}
    assert report.undisturbed.status == "done"
    assert report.undisturbed.effects == sorted(
        repr(e) for e in ["mail ann", "mail bob", "charge 3", "deploy v2", "20.00", "149.90"]
    )
    assert "".join(message["role"][0] for message in report.undisturbed.messages) == "uauaauaua"


@pytest.mark.parametrize("boundary", REACHED)
def test_a_crash_there_changes_nothing(
    messages_api: ScriptedMessagesAPI, subtests: pytest.Subtests, boundary: str
) -> None:
    report = crash_everywhere(EVERYTHING, messages_api, only=boundary, subtests=subtests)

    # What is in doubt is what docs/testing.md says, and no more.
    doubted = {"tool.before": 3, "tool.returned": 3, "save.before": 3, "save.done": 3}
    assert len(report.in_doubt) == doubted.get(boundary, 0)
    assert all(tools in (["mail"], ["deploy"]) for tools in report.in_doubt.values())
