"""``anvil_check``: everything that keeps runs from getting on, what to do about it, and how it exits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from typing import Any
from unittest import mock

import pytest
from django.core.management import call_command
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext
from django_q.models import Schedule

from anvil_django import Agent, register, runs, tasks
from anvil_django.agents import unregister
from anvil_django.clock import FixedClock
from anvil_django.examination import Finding, Level, examine
from anvil_django.models import Approval, Cluster, Run
from anvil_django.testing import ScriptedMessagesAPI, say, tool_call

from . import cases
from .world import registered_agent

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def agent() -> Iterator[Agent]:
    with registered_agent() as known:
        yield known


@pytest.fixture(autouse=True)
def at_work(clock: FixedClock) -> None:
    """A cluster that lives, and a schedule that is kept."""
    now = clock.now()
    Cluster.objects.create(name="host/1/2/3", queue="anvil-tests", workers=2, started_at=now, seen_at=now)
    Schedule.objects.update(next_run=now)


def ask(*options: str) -> tuple[int, str]:
    """The exit code and the answer."""
    out = StringIO()
    try:
        call_command("anvil_check", *options, stdout=out)
    except SystemExit as ended:
        return int(str(ended.code)), out.getvalue()
    return 0, out.getvalue()


def amiss() -> list[Finding]:
    """What is not as it should be."""
    return [finding for finding in examine() if finding.level is not Level.OK]


def test_where_all_is_well_it_says_what_it_looked_at() -> None:
    code, text = ask()

    assert code == 0
    assert text == (
        "LEVEL  ABOUT           FINDING\n"
        "ok     migrations      All are applied.\n"
        "ok     workers         Clusters: 1, with 2 workers; seen 0 s ago.\n"
        "ok     schedules       The recovery sweep is scheduled.\n"
        "ok     queue           Runs waiting for a worker: 0.\n"
        "ok     approvals       Cases waiting for a decision: 0.\n"
        "ok     runs in flight  This code can finish all that have not ended.\n"
        "ok     agent versions  All unfinished runs have those of this code.\n"
        "No problem.\n"
    )


def test_a_problem_says_what_to_do_and_is_the_exit_code(clock: FixedClock) -> None:
    clock.advance(200)

    code, text = ask()

    assert code == 1
    assert (
        "problem  workers         No cluster has given a sign of life for 180 s. "
        "Start one: manage.py anvil_worker\n"
    ) in text
    assert text.endswith("\n1 problem.\n")
    assert ask("--max-age", "300")[0] == 0


def test_in_json(clock: FixedClock) -> None:
    code, text = ask("--cluster-name", "night", "--json")

    answer = json.loads(text)
    assert (code, answer["well"]) == (1, False)
    assert answer["findings"][1] == {
        "about": "workers",
        "level": "problem",
        "says": "No cluster has given a sign of life for 180 s.",
        "fix": "Start one: manage.py anvil_worker",
    }


def test_a_sweep_that_is_not_scheduled_or_not_kept(clock: FixedClock) -> None:
    Schedule.objects.update(next_run=clock.now() - timedelta(seconds=301))
    assert amiss() == [
        Finding(
            "schedules",
            Level.PROBLEM,
            "The recovery sweep should have run 301 s ago (anvil_django.recover).",
            "Start a cluster whose name is that of the schedule, without Q_CLUSTER['scheduler'] = False.",
        )
    ]
    Schedule.objects.all().delete()
    assert amiss() == [
        Finding(
            "schedules",
            Level.PROBLEM,
            "The recovery sweep is not scheduled (anvil_django.recover).",
            "Run migrate, or create it where ANVIL['INSTALL_SCHEDULE'] is False.",
        )
    ]


def test_pruning_that_is_asked_for_and_not_scheduled(settings: Any) -> None:
    settings.ANVIL = {**settings.ANVIL, "PRUNE_AFTER_DAYS": 30}

    (finding,) = amiss()

    assert finding.says == "The pruning of old runs is not scheduled (anvil_django.prune)."


def test_runs_that_nobody_takes_and_runs_that_lost_their_worker(clock: FixedClock) -> None:
    for run_id in ("due", "lost"):
        runs.start("worldly", "Hello", run_id=run_id)
    Run.objects.update(created_at=clock.now(), updated_at=clock.now())
    held = {"status": "running", "lease_owner": "host/1/2/3/a"}
    Run.objects.filter(run_id="lost").update(**held, lease_until=clock.now() - timedelta(seconds=1))
    assert amiss() == [
        Finding("queue", Level.NOTE, "Runs that lost their worker and that the next sweep will find: 1.")
    ]
    clock.advance(301)
    Cluster.objects.update(seen_at=clock.now())
    Schedule.objects.update(next_run=clock.now())

    assert amiss() == [
        Finding(
            "queue",
            Level.PROBLEM,
            "Runs waiting for a worker: 1, the first for 301 s.",
            "Look at the workers' log; if they are only busy, start more of them.",
        ),
        Finding(
            "queue",
            Level.PROBLEM,
            "Without a worker for more than 300 s: 1.",
            "Put them back on their way: manage.py anvil_resume",
        ),
    ]


def test_cases_past_their_time_and_side_effects_in_doubt(
    clock: FixedClock, messages_api: ScriptedMessagesAPI
) -> None:
    with cases.bank():
        cases.ask(messages_api, "close", run_id="r1")
        cases.ask(messages_api, "mail", run_id="r2")
        Approval.objects.filter(tool="close").update(expires_at=clock.now() - timedelta(seconds=301))
        found = amiss()

    assert found == [
        Finding(
            "approvals",
            Level.PROBLEM,
            "Cases whose time is over and that are still open: 1.",
            "The sweep closes them: see whether it is scheduled and a worker lives.",
        ),
        Finding(
            "in doubt",
            Level.NOTE,
            "Side effects whose outcome is in doubt: 1, the oldest for 0 s.",
            "A person has to find out whether they happened: manage.py anvil_approvals",
        ),
    ]


def test_runs_of_agents_that_are_gone_or_have_changed(messages_api: ScriptedMessagesAPI) -> None:
    with registered_agent("gone"):
        runs.start("gone", "Hello", run_id="r1")
    runs.start("worldly", "Hello", run_id="r2")
    unregister("worldly")
    register(Agent(name="worldly", model="claude-sonnet-5-5", system="Be better."))
    Run.objects.update(status="paused")

    found = {finding.about: finding for finding in amiss()}

    assert set(found) == {"runs in flight", "agent versions"}
    assert found["agent versions"] == Finding(
        "agent versions",
        Level.NOTE,
        "Unfinished runs of 'worldly' that go on with an earlier version: 1 (of 1).",
    )
    assert found["runs in flight"].level is Level.PROBLEM
    assert "1 unfinished run of the agent 'gone', which is not registered. Run: r1." in [
        finding.says for finding in amiss()
    ]


def test_runs_that_were_parked_until_somebody_mends_something() -> None:
    runs.start("worldly", "Hello", run_id="r1")
    runs.start("worldly", "Hello", run_id="r2")
    runs.pause("r2")
    Run.objects.filter(run_id="r1").update(status="paused", error_code="unknown_agent", error="Gone.")

    assert amiss() == [
        Finding(
            "parked runs",
            Level.NOTE,
            "Runs that were parked until somebody mends something (unknown_agent): 1.",
            "See why: manage.py anvil_runs --status paused. Then: manage.py anvil_resume --run ID",
        )
    ]


def test_migrations_that_are_not_applied() -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'anvil_django'")

    (finding,) = amiss()

    assert finding == Finding(
        "migrations",
        Level.PROBLEM,
        "Not applied: anvil_django.0001_initial.",
        "Run migrate, then start the workers anew.",
    )


def test_a_look_that_the_database_does_not_answer_hides_no_other() -> None:
    with mock.patch.object(Cluster.objects, "filter", side_effect=OperationalError("gone")):
        found = amiss()

    assert [(finding.about, finding.says) for finding in found] == [
        ("workers", "The database does not say: OperationalError.")
    ]


def test_a_database_that_cannot_be_reached_is_said_once() -> None:
    with mock.patch.object(connection, "ensure_connection", side_effect=OperationalError("gone")):
        found = examine()

    assert found == [
        Finding(
            "database",
            Level.PROBLEM,
            "It cannot be reached: OperationalError.",
            "Look at the server of 'default'.",
        )
    ]


def test_it_writes_nothing_and_asks_no_more_for_more_runs(messages_api: ScriptedMessagesAPI) -> None:
    def statements() -> list[str]:
        with CaptureQueriesContext(connection) as captured:
            examine()
        return [query["sql"] for query in captured if "SAVEPOINT" not in query["sql"]]

    def go(*numbers: int) -> None:
        for number in numbers:
            messages_api.script(say(tool_call("deploy", {"version": "1"})), match=f"[{number}]")
            runs.start("worldly", f"Go. [{number}]", run_id=str(number))
            tasks.advance(str(number))

    go(0)
    runs.start("worldly", "Go.")
    few = statements()
    go(*range(1, 12))

    assert len(statements()) == len(few)
    assert not [sql for sql in few if sql.startswith(("INSERT", "UPDATE", "DELETE"))]
