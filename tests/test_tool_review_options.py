"""How many people, who, and for how long: the review options of a tool are checked where it is defined."""

from datetime import timedelta
from typing import Any

import pytest

from anvil_django import tool
from anvil_django.errors import AgentDefinitionError


def make(**options: Any) -> Any:
    @tool(side_effect=True, requires_approval=True, **options)
    def pay(amount: int) -> str:
        """Pay."""
        return str(amount)

    return pay


def test_a_quorum_and_an_escalation_are_kept_with_the_tool() -> None:
    pay = make(reviewers="Tellers", approvals=2, escalate_to="Managers", escalate_after=3600)

    assert (pay.reviewers, pay.approvals, pay.escalate_to) == ("Tellers", 2, "Managers")
    assert pay.escalate_after == timedelta(hours=1)


def test_one_person_is_enough_by_default() -> None:
    assert make().approvals == 1


@pytest.mark.parametrize("approvals", [0, -1, True, 2.0, "2", 21])
def test_a_quorum_must_be_a_sensible_number(approvals: Any) -> None:
    with pytest.raises(AgentDefinitionError, match="how many different people must agree"):
        make(approvals=approvals)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"reviewers": "A", "escalate_to": "B"}, "go together"),
        ({"reviewers": "A", "escalate_after": 60}, "go together"),
        ({"escalate_to": "B", "escalate_after": 60}, "everybody may decide already"),
        ({"reviewers": "A", "escalate_to": " ", "escalate_after": 60}, "name of a group"),
        ({"reviewers": "A", "escalate_to": "B", "escalate_after": 0}, "escalate_after must be"),
    ],
)
def test_an_escalation_must_make_sense(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(AgentDefinitionError, match=problem):
        make(**options)
