"""``anvil_prune`` and the schedule of pruning: what goes, what stays, and what happens at the same time."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connection, connections
from django.db.models import ProtectedError
from django.db.models.signals import pre_delete
from django.test.utils import CaptureQueriesContext
from django_q.models import OrmQ, Schedule

from anvil_django import Agent, approvals, queue, retention, runs, start_run, tasks
from anvil_django.clock import FixedClock
from anvil_django.errors import BadInputError, UnknownRunError
from anvil_django.models import AgentVersion, Approval, Decision, Message, Run, Steering, ToolCall
from anvil_django.retention import Rule
from anvil_django.states import RunStatus
from anvil_django.testing import ScriptedMessagesAPI, say, tool_call

from . import cases
from .rest import person
from .world import registered_agent

pytestmark = pytest.mark.django_db

DAY = 86_400.0
OLD = Rule(older_than=timedelta(days=90))


@pytest.fixture(autouse=True)
def agent() -> Iterator[Agent]:
    with registered_agent() as known:
        yield known


def ended(clock: FixedClock, run_id: str, *, status: str = "done", days: float = 100, **columns: Any) -> Run:
    """A run that ended so many days ago."""
    run = runs.start("worldly", "Hello", run_id=run_id)
    then = clock.now() - timedelta(days=days)
    why = {"done": {"stop_reason": "end_turn"}, "failed": {"error_code": "poison"}}.get(status, {})
    values = {"status": status, "created_at": then, "updated_at": then, "finished_at": then, **why, **columns}
    Run.objects.filter(pk=run.pk).update(**values)
    return run


def begun_with(clock: FixedClock) -> None:
    """Runs are created by Django's clock; here, by that of the test."""
    Run.objects.filter(created_at__gt=clock.now()).update(created_at=clock.now())


def prune(*options: str) -> str:
    out = StringIO()
    call_command("anvil_prune", *options, stdout=out, stderr=StringIO())
    return out.getvalue()


def refused(*options: str) -> str:
    with pytest.raises(CommandError) as caught:
        prune(*options)
    return str(caught.value)


def left() -> set[str]:
    return set(Run.objects.values_list("run_id", flat=True))


# What goes and what stays.


def test_runs_that_ended_long_ago_go_with_all_that_belongs_to_them(
    clock: FixedClock, messages_api: ScriptedMessagesAPI
) -> None:
    ended(clock, "hello")
    messages_api.script(say(tool_call("look", {"thing": "lamp"})), say("Fine."))
    runs.start("worldly", "Look", run_id="looked")
    tasks.advance("looked")
    runs.say("looked", "And now?", idempotency_key="k")
    messages_api.script(say("Still fine."))
    tasks.advance("looked")
    begun_with(clock)
    clock.advance(91 * DAY)

    lines = prune("--older-than", "90d").splitlines()

    assert lines[0] == "Deleted: 2 runs."
    assert {"  6 messages", "  1 steering message", "  1 tool call"} <= set(lines)
    assert [m.objects.count() for m in (Run, Message, ToolCall, Steering)] == [0, 0, 0, 0]


def test_what_has_not_ended_or_not_long_ago_stays(clock: FixedClock) -> None:
    for status in ("queued", "running", "suspended", "paused"):
        ended(clock, status, status=status, finished_at=None)
    ended(clock, "young", days=89)
    # Begun long ago, ended lately.
    ended(clock, "long", finished_at=clock.now() - timedelta(days=1))
    for status in ("done", "failed", "cancelled"):
        ended(clock, status, status=status)

    assert prune("--older-than", "90d").splitlines()[0] == "Deleted: 3 runs."

    assert left() == {"queued", "running", "suspended", "paused", "young", "long"}


def test_only_the_statuses_and_the_agent_that_are_asked_for_go(clock: FixedClock) -> None:
    for status in ("done", "failed", "cancelled"):
        ended(clock, status, status=status)
    ended(clock, "other", agent="gone")

    prune("--older-than", "12h", "--status", "done,cancelled", "--agent", "gone")
    assert left() == {"done", "failed", "cancelled"}
    prune("--older-than", "12h", "--status", "done, cancelled")
    assert left() == {"failed"}


def test_a_run_that_was_stored_as_ended_is_as_old_as_its_last_save(clock: FixedClock) -> None:
    ended(clock, "copied", finished_at=None)

    assert prune("--older-than", "90d").startswith("Deleted: 1 run.\n")


def test_runs_that_people_were_asked_about_stay_until_that_is_given_up(
    clock: FixedClock, messages_api: ScriptedMessagesAPI
) -> None:
    rita = person("rita", "decide_approval")
    ended(clock, "hello")
    with cases.bank():
        approval = cases.ask(messages_api)
        approvals.approve(approval, user=rita, channel="code")
        cases.go_on(messages_api, approval)
    begun_with(clock)
    clock.advance(91 * DAY)

    assert prune("--older-than", "90d", "--dry-run").splitlines()[0] == "Would delete: 1 run."
    lines = prune("--older-than", "90d").splitlines()
    assert lines[0] == "Deleted: 1 run."
    assert lines[-1] == "Kept because people were asked about them: 1. See --with-decisions."
    assert (left(), Decision.objects.count()) == ({"r1"}, 1)

    counted = prune("--older-than", "90d", "--with-decisions", "--dry-run").splitlines()
    deleted = prune("--older-than", "90d", "--with-decisions").splitlines()
    assert counted[0] == "Would delete: 1 run."
    assert counted[1:] == deleted[1 : len(counted)]
    assert {"  1 approval", "  1 decision", "  3 messages", "  1 tool call"} <= set(counted)
    assert [m.objects.count() for m in (Run, Approval, Decision, ToolCall)] == [0, 0, 0, 0]


def test_the_origin_of_a_fork_stays_until_the_fork_has_ended(
    clock: FixedClock, messages_api: ScriptedMessagesAPI
) -> None:
    origin = ended(clock, "origin")
    fork = ended(clock, "fork", status="paused", finished_at=None, forked_from=origin)

    assert prune("--older-than", "90d").startswith("Deleted: 0 runs.")
    then = clock.now() - timedelta(days=1)
    Run.objects.filter(pk=fork.pk).update(status="cancelled", finished_at=then)
    assert prune("--older-than", "90d").startswith("Deleted: 1 run.")

    fork.refresh_from_db()
    assert (left(), fork.forked_from) == ({"fork"}, None)


def test_a_pruned_runs_keys_are_free_again(clock: FixedClock) -> None:
    first = start_run("worldly", "Hello", run_id="a", idempotency_key="k")
    ended_at = clock.now() - timedelta(days=100)
    Run.objects.update(
        status="done", stop_reason="end_turn", created_at=ended_at, finished_at=ended_at, updated_at=ended_at
    )
    assert start_run("worldly", "Hello", idempotency_key="k").pk == first.pk

    prune("--older-than", "90d")

    again = start_run("worldly", "Something else", run_id="a", idempotency_key="k")
    assert again.status == "queued"


def test_agent_versions_that_no_run_uses_go_unless_one_may_be_starting(
    agent: Agent, clock: FixedClock
) -> None:
    ended(clock, "now")
    for name, days in (("old", 100), ("young", 1), ("used", 100)):
        with registered_agent(name):
            runs.start(name, "Hello", run_id=name)
        AgentVersion.objects.filter(agent=name).update(created_at=clock.now() - timedelta(days=days))
    AgentVersion.objects.filter(agent="worldly").update(created_at=clock.now() - timedelta(days=100))
    Run.objects.filter(run_id__in=["old", "young"]).delete()

    out = prune("--older-than", "90d")

    assert out.splitlines()[-1] == "Deleted: 1 agent version without runs."
    assert set(AgentVersion.objects.values_list("agent", flat=True)) == {"worldly", "young", "used"}


def test_a_run_that_a_table_of_the_site_holds_stays_and_keeps_no_other(clock: FixedClock) -> None:
    held = ended(clock, "held")
    for run_id in ("a", "b"):
        ended(clock, run_id)

    def hold(instance: Run, **kwargs: Any) -> None:
        if instance.pk == held.pk:
            raise ProtectedError("An invoice is about it.", {instance})

    pre_delete.connect(hold, sender=Run)
    try:
        out = prune("--older-than", "90d")
    finally:
        pre_delete.disconnect(hold, sender=Run)

    assert (out.splitlines()[0], left()) == ("Deleted: 2 runs.", {"held"})
    assert out.splitlines()[-1] == "Kept because other tables of this site hold them: 1."
    assert Message.objects.filter(run=held).count() == 1


# At the same time.


def test_a_run_that_is_resumed_between_being_found_and_being_deleted_stays(
    clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended(clock, "failed", status="failed")
    ended(clock, "other", status="failed")
    batches = retention._batches

    def found(*args: Any) -> Iterator[list[int]]:
        for batch in batches(*args):
            runs.retry("failed")
            yield batch

    monkeypatch.setattr(retention, "_batches", found)

    (pruned,) = retention.prune(OLD)

    assert (pruned.runs, left()) == (1, {"failed"})
    assert Message.objects.filter(run__run_id="failed").count() == 1


@pytest.mark.django_db(transaction=True)
def test_runs_that_are_resumed_while_they_are_pruned_stay_whole_or_are_gone() -> None:
    then = datetime.now(UTC) - timedelta(days=100)
    names = [f"r{number}" for number in range(24)]
    for name in names:
        runs.start("worldly", "Hello", run_id=name)
    Run.objects.update(status="failed", error_code="poison", created_at=then, finished_at=then)
    start, resumed = threading.Barrier(2), []

    def resume() -> None:
        start.wait(20)
        for name in reversed(names):
            with suppress(UnknownRunError):
                runs.retry(name)
                resumed.append(name)

    def prune_all() -> int:
        start.wait(20)
        return sum(pruned.runs for pruned in retention.prune(OLD, batch_size=1))

    def alone(work: Callable[[], Any]) -> Any:
        try:
            return work()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(2) as pool:
        pruning, resuming = pool.submit(alone, prune_all), pool.submit(alone, resume)
        resuming.result(60)

    assert pruning.result(60) + len(resumed) == len(names)
    assert left() == set(resumed) == {run.run_id for run in Run.objects.filter(status="queued")}
    assert Message.objects.count() == len(resumed)


def test_batches_are_small_and_each_reads_on_where_the_last_one_ended(clock: FixedClock) -> None:
    for number in range(5):
        ended(clock, f"r{number}")

    assert [pruned.runs for pruned in retention.prune(OLD, batch_size=2)] == [2, 2, 1]


def test_the_number_of_statements_does_not_depend_on_the_number_of_runs(clock: FixedClock) -> None:
    def statements(number: int) -> int:
        for n in range(number):
            ended(clock, f"r{n}")
        with CaptureQueriesContext(
            connection,
        ) as captured:
            list(retention.prune(OLD, batch_size=50))
        assert left() == set()
        return len(captured)

    assert statements(20) == statements(2)


# What the command says, and refuses.


def test_a_dry_run_deletes_nothing_and_says_the_same(clock: FixedClock) -> None:
    ended(clock, "a")
    ended(clock, "b", status="failed")

    answer = json.loads(prune("--older-than", "90d", "--dry-run", "--json"))

    rows = {"anvil_django.Message": 2, "anvil_django.Run": 2}
    rest = {"agent_versions": 0, "kept_for_decisions": 0, "protected": 0}
    assert answer == {"dry_run": True, "runs": 2, "rows": rows, **rest}
    assert left() == {"a", "b"}
    assert json.loads(prune("--older-than", "90d", "--json")) == {**answer, "dry_run": False}


class Terminal(StringIO):
    """A terminal, as far as a command can tell."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_how_far_it_has_come(clock: FixedClock) -> None:
    for run_id in "abc":
        ended(clock, run_id)
    err = Terminal()

    call_command("anvil_prune", "--older-than", "90d", "--batch-size", "2", stdout=StringIO(), stderr=err)

    shown = [line for line in err.getvalue().split("\r\x1b[K") if line]
    assert shown == ["2 runs deleted", "3 runs deleted"]


def test_ctrl_c_leaves_what_was_done_and_what_was_not(
    clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run_id in "abc":
        ended(clock, run_id)
    batches = retention._batches

    def interrupted(*args: Any) -> Iterator[list[int]]:
        yield next(batches(*args))
        raise KeyboardInterrupt

    monkeypatch.setattr(retention, "_batches", interrupted)
    err = StringIO()
    with pytest.raises(SystemExit) as left_by:
        call_command("anvil_prune", "--older-than", "90d", "--batch-size", "2", stderr=err)

    assert (left_by.value.code, left()) == (130, {"c"})
    assert err.getvalue() == ("Stopped. The batches that were done are committed; repeat it for the rest.\n")


def test_bad_input_is_refused() -> None:
    assert "'90' is not an age such as 90d or 12h" in refused("--older-than", "90")
    assert "'0d' is not an age" in refused("--older-than", "0d")
    assert "'999999999999d' is not an age" in refused("--older-than", "999999999999d")
    assert "'running' is none of the statuses of runs that have ended: cancelled, done, failed" in refused(
        "--older-than", "90d", "--status", "done,running"
    )
    assert refused("--older-than", "90d", "--agent", "wordly").startswith("No agent named 'wordly'")
    assert refused() == "Say how long ago they ended, such as --older-than 90d."


def test_the_age_may_stand_in_the_settings(clock: FixedClock, settings: Any) -> None:
    settings.ANVIL = {**settings.ANVIL, "PRUNE_AFTER_DAYS": 30}
    ended(clock, "a", days=31)

    assert prune().startswith("Deleted: 1 run.")


# On a schedule.


def test_the_schedule_is_made_by_migrate_where_the_settings_ask_for_it(
    clock: FixedClock, settings: Any
) -> None:
    queue.install_schedules("default")
    assert not Schedule.objects.filter(name="anvil_django.prune").exists()

    settings.ANVIL = {**settings.ANVIL, "PRUNE_AFTER_DAYS": 90, "QUEUE": "night"}
    for _ in range(2):
        queue.install_schedules("default")

    schedule = Schedule.objects.get(name="anvil_django.prune")
    assert (schedule.func, schedule.schedule_type, schedule.cluster) == (
        "anvil_django.tasks.prune",
        "D",
        "night",
    )
    assert schedule.next_run == clock.now() + timedelta(days=1)


def test_the_task_prunes_by_the_setting_alone(clock: FixedClock, settings: Any) -> None:
    ended(clock, "a")
    assert tasks.prune() == 0
    settings.ANVIL = {**settings.ANVIL, "PRUNE_AFTER_DAYS": 90}
    assert (tasks.prune(), left()) == (1, set())


def test_the_task_hands_its_worker_back_after_a_slice(
    clock: FixedClock, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.ANVIL = {**settings.ANVIL, "PRUNE_AFTER_DAYS": 90}
    for run_id in "abc":
        ended(clock, run_id)
    OrmQ.objects.all().delete()
    batches = retention._batches

    def slow(rule: Rule, alias: str, size: int) -> Iterator[list[int]]:
        for batch in batches(rule, alias, 2):
            clock.advance(300)
            yield batch

    monkeypatch.setattr(retention, "_batches", slow)

    assert tasks.prune() == 2
    (ticket,) = OrmQ.objects.all()
    assert ticket.task["func"] == "anvil_django.tasks.prune"
    assert (tasks.prune(), left()) == (1, set())


def test_a_rule_that_would_delete_what_goes_on_cannot_be_made() -> None:
    with pytest.raises(BadInputError, match="these statuses are others"):
        Rule(older_than=timedelta(days=1), statuses={RunStatus.PAUSED})
    with pytest.raises(BadInputError, match="age above zero"):
        Rule(older_than=timedelta())
