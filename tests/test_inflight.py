"""``manage.py check --database default``: the runs in flight that this code cannot finish, and what to do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core import checks
from django.core.checks import Warning as CheckWarning
from django.core.management import call_command
from django.db import connection
from django.test.utils import CaptureQueriesContext

from anvil_django import Agent, approvals, inflight, register, start_run, tasks, tool
from anvil_django.agents import get_agent, unregister
from anvil_django.checks import IN_FLIGHT
from anvil_django.models import Approval, Run
from anvil_django.testing import ScriptedMessagesAPI, say, tool_call

from .world import reviewer

pytestmark = pytest.mark.django_db


def deploy(*tools: Any, **options: Any) -> None:
    """The agent ``clerk``, from now on with these tools."""
    unregister("clerk")
    register(Agent(name="clerk", model="claude-sonnet-5-5", tools=tools, **options))


@pytest.fixture(autouse=True)
def clerk() -> Iterator[None]:
    deploy(pay)
    yield
    unregister("clerk")


@tool(side_effect=True, requires_approval=True)
def pay(to: str) -> str:
    """Pay somebody."""
    return "paid"


@tool(name="pay", side_effect=True, requires_approval=True)
def pay_in(to: str, currency: str) -> str:
    """Pay somebody in a currency."""
    return "paid"


def waiting(api: ScriptedMessagesAPI, *run_ids: str) -> None:
    """Runs that wait for somebody to approve a payment."""
    for run_id in run_ids:
        api.script(say(tool_call("pay", {"to": "ann"})), match=f"[{run_id}]")
        start_run("clerk", f"Pay. [{run_id}]", run_id=run_id)
        assert tasks.advance(run_id) == "suspended"


def found() -> list[Any]:
    """What the check has to say."""
    ours = {f"anvil_django.W01{n}" for n in range(5)}
    return [m for m in checks.run_checks(databases=["default"]) if m.id in ours]


def warning(number: str, msg: str, hint: str) -> CheckWarning:
    return CheckWarning(msg, hint=hint, id=f"anvil_django.{number}")


def test_runs_that_can_be_finished_are_no_trouble(messages_api: ScriptedMessagesAPI) -> None:
    waiting(messages_api, "r1")
    start_run("clerk", "Hello.")

    assert found() == []


def test_runs_of_an_agent_that_is_gone() -> None:
    for run_id in ("r1", "r2", "r3", "r4"):
        start_run("clerk", "Pay.", run_id=run_id)
    Run.objects.filter(run_id="r4").update(status="cancelled")
    unregister("clerk")

    assert found() == [
        warning(
            "W011",
            "3 unfinished runs of the agent 'clerk', which is not registered. Runs: r1, r2, r3.",
            "Register the agent again, under the same name, until they have ended; or cancel them. "
            "Otherwise workers offer each to others for some minutes and then pause it.",
        )
    ]


def test_open_calls_of_a_tool_that_is_gone(messages_api: ScriptedMessagesAPI) -> None:
    waiting(messages_api, "r1", "r2", "r3", "r4")
    deploy()

    assert found() == [
        warning(
            "W012",
            "4 unfinished runs with an open call of the tool 'pay', which the agent 'clerk' no longer has. "
            "Runs: r1, r2, r3, ...",
            "Give the tool back to the agent, in retired=[...] and under its old name, until they have "
            "ended. Otherwise the agent is told that the tool was not found, or, where the call had begun, "
            "that its outcome is unknown.",
        )
    ]
    deploy(retired=[pay])
    assert found() == []


def test_open_calls_whose_arguments_their_tool_no_longer_takes(messages_api: ScriptedMessagesAPI) -> None:
    waiting(messages_api, "r1")
    deploy(pay_in)

    (told,) = found()

    assert told == warning(
        "W013",
        "1 unfinished run with an open call whose arguments the tool 'pay' of the agent 'clerk' no longer "
        "takes. Run: r1. The first would be told: The input does not fit the schema of pay; nothing was run. "
        "Correct it: - currency: Field required",
        "Let the tool take the old arguments too, until they have ended. Otherwise the call is not run, and "
        "the agent is told why.",
    )


def test_it_is_what_a_reviewer_made_of_the_arguments_that_has_to_fit(
    messages_api: ScriptedMessagesAPI,
) -> None:
    waiting(messages_api, "r1")
    deploy(pay_in)
    edited = {"to": "ann", "currency": "EUR"}
    approvals.approve(Approval.objects.get(), user=reviewer(), edited_input=edited)

    assert found() == []
    deploy(pay)
    assert [m.id for m in found()] == ["anvil_django.W013"]


def test_runs_that_were_begun_with_a_tool_that_is_gone() -> None:
    start_run("clerk", "Pay.", run_id="r1")
    deploy({"type": "web_search_20250305", "name": "web_search"})
    start_run("clerk", "Search.", run_id="r2")
    deploy()

    assert found() == [
        warning(
            "W014",
            "1 unfinished run was begun with the tool 'pay', which the agent 'clerk' no longer has. Run: r1.",
            "Keep the tool in retired=[...] of the agent, under its old name, until they have ended. "
            "Otherwise the agent is told that the tool was not found when it calls it.",
        )
    ]


def test_runs_that_a_newer_version_has_saved(messages_api: ScriptedMessagesAPI) -> None:
    waiting(messages_api, "r1", "r2")
    Run.objects.filter(run_id="r1").update(checkpoint_version=2)
    Run.objects.filter(run_id="r2").update(checkpoint_version=3)
    # Whether it could be finished is for the newer version to say.
    unregister("clerk")

    assert found() == [
        warning(
            "W010",
            "2 unfinished runs were saved by a newer anvil_django, up to checkpoint version 3. This one "
            "reads up to version 1 and leaves them alone. Runs: r1, r2.",
            "Upgrade anvil_django here, or let workers of the newer version finish them.",
        )
    ]


def test_the_number_of_statements_does_not_depend_on_the_number_of_runs(
    messages_api: ScriptedMessagesAPI,
) -> None:
    def statements() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert [finding.code for finding in inflight.find()] == ["arguments_unfit"]
        return len(captured)

    waiting(messages_api, "r1")
    deploy(pay_in)
    few = statements()
    deploy(pay)
    waiting(messages_api, "r2", "r3", "r4", "r5")
    deploy(pay_in)

    assert statements() == few <= 9


def test_no_more_calls_are_read_than_the_limit(
    messages_api: ScriptedMessagesAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inflight, "MOST_CALLS", 2)
    waiting(messages_api, "r1", "r2", "r3")
    deploy(pay_in)

    assert [finding.runs for finding in inflight.find()] == [2]


def test_the_database_is_not_asked_unless_the_check_is_told_to(
    django_assert_num_queries: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    start_run("clerk", "Pay.")
    unregister("clerk")

    with django_assert_num_queries(0):
        call_command("check")
    call_command("check", databases=["default"])

    assert "anvil_django.W011" in capsys.readouterr().err


def test_the_docs_name_every_warning_and_their_example_can_be_registered() -> None:
    text = (Path(__file__).resolve().parent.parent / "docs" / "upgrading.md").read_text()
    assert set(re.findall(r"\| `anvil_django\.(W\d+)` \|", text)) == set(IN_FLIGHT.values())
    assert set(IN_FLIGHT) == set(inflight.FIXES)

    (block,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    try:
        exec(compile(block, "upgrading.md", "exec", dont_inherit=True), {"__name__": "docs"})
        both = [get_agent(name) for name in ("helpdesk", "frontdesk")]
    finally:
        unregister("helpdesk")
        unregister("frontdesk")
    assert [sorted(agent.callable_tools) for agent in both] == [["mail", "send_letter"]] * 2
    assert [[t["name"] for t in agent.prefix["tools"]] for agent in both] == [["send_letter"]] * 2
