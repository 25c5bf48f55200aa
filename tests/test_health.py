"""What ``anvil_health`` says and how it exits, what ``anvil_worker`` refuses, who shows a sign of life."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from typing import Any
from unittest import mock

import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError
from django_q.conf import Conf
from django_q.models import OrmQ, Schedule

from anvil_django import Agent, clusters, health, recovery, runs, tasks
from anvil_django.clock import FixedClock
from anvil_django.leases import owner_name, place, process_name
from anvil_django.models import Cluster, Run

from .world import registered_agent

pytestmark = pytest.mark.django_db

ELSEWHERE = "elsewhere/1/2/3"


@pytest.fixture
def agent() -> Iterator[Agent]:
    with registered_agent() as known:
        yield known


@pytest.fixture
def as_worker(monkeypatch: pytest.MonkeyPatch, clock: FixedClock) -> None:
    """This process works for a cluster, which is its parent."""
    monkeypatch.setattr(clusters, "_joined", None)
    clusters.join()


def cluster(name: str, clock: FixedClock, *, ago: float = 0, queue: str = "anvil-tests") -> None:
    seen = clock.now() - timedelta(seconds=ago)
    Cluster.objects.create(name=name, queue=queue, workers=2, started_at=seen, seen_at=seen)


def ask(*options: str) -> tuple[int, str]:
    """The exit code and the answer."""
    out = StringIO()
    try:
        call_command("anvil_health", *options, stdout=out)
    except SystemExit as ended:
        return int(str(ended.code)), out.getvalue()
    return 0, out.getvalue()


# Ready: do runs get on?


def test_all_is_well_while_some_cluster_lives_and_nothing_waits(clock: FixedClock) -> None:
    cluster(ELSEWHERE, clock, ago=100)

    code, text = ask()

    assert (code, text.splitlines()) == (
        0,
        [
            "Cluster anvil-tests (process 2 on elsewhere), 2 workers: seen 1m ago.",
            "Runs waiting for a worker: 0.",
            "Runs that lost their worker: 0.",
        ],
    )


def test_a_cluster_that_is_silent_for_too_long_counts_as_gone(clock: FixedClock) -> None:
    cluster(ELSEWHERE, clock, ago=181)

    code, text = ask()

    assert (code, text.splitlines()[0]) == (1, "No cluster has given a sign of life for 180 s.")
    assert ask("--max-age", "200")[0] == 0


def test_only_clusters_of_the_queue_that_is_asked_about_count(clock: FixedClock) -> None:
    cluster(ELSEWHERE, clock, queue="night")

    assert ask("--cluster-name", "night")[0] == 0
    assert ask("--cluster-name", "anvil-tests")[0] == 1


def test_a_run_that_nobody_takes_is_a_problem_once_it_waits_too_long(agent: Agent, clock: FixedClock) -> None:
    run = runs.start("worldly", "Hello")
    Run.objects.filter(pk=run.pk).update(created_at=clock.now())
    clock.advance(299)
    cluster(ELSEWHERE, clock)
    assert ask()[0] == 0
    clock.advance(2)

    code, text = ask("--json")

    answer = json.loads(text)
    assert (code, answer["well"], answer["waiting"], answer["longest_wait"]) == (1, False, 1, 301.0)
    assert answer["problems"] == ["Due for more than 300 s and not taken by a worker: 1."]


def test_a_run_that_backs_off_is_not_due_and_one_that_was_just_resumed_has_not_waited_long(
    agent: Agent, clock: FixedClock
) -> None:
    run = runs.start("worldly", "Hello")
    runs.pause(run.run_id)
    later = runs.start("worldly", "Hello")
    clock.advance(1000)
    Run.objects.filter(pk=later.pk).update(next_attempt_at=clock.now() + timedelta(seconds=10))
    runs.resume(run.run_id)
    cluster(ELSEWHERE, clock)

    found = health.ready()

    assert (found.problems, found.waiting, found.longest_wait) == ([], 1, 0.0)


def test_a_run_whose_lease_ran_out_long_ago_is_a_problem(agent: Agent, clock: FixedClock) -> None:
    run = runs.start("worldly", "Hello")
    Run.objects.filter(pk=run.pk).update(
        status="running", lease_owner=f"{ELSEWHERE}/a", lease_until=clock.now() - timedelta(seconds=301)
    )
    cluster(ELSEWHERE, clock)

    found = health.ready()

    assert (found.problems, found.interrupted) == (["Without a worker for more than 300 s: 1."], 1)


def test_a_sweep_that_is_not_scheduled_is_a_problem(clock: FixedClock) -> None:
    cluster(ELSEWHERE, clock)
    Schedule.objects.all().delete()

    assert health.ready().problems == [
        "The recovery sweep is not scheduled (anvil_django.recover); run migrate."
    ]


# Live: is the cluster of this host alive?


def test_live_asks_only_about_this_host(clock: FixedClock) -> None:
    cluster(ELSEWHERE, clock)
    assert ask("--live") == (1, "No cluster of this host has given a sign of life for 180 s.\n")

    cluster(f"{place()}2/3", clock)
    assert ask("--live")[0] == 0


def test_a_cluster_that_is_too_busy_to_say_so_lives_while_it_holds_a_run(
    agent: Agent, clock: FixedClock
) -> None:
    run = runs.start("worldly", "Hello")
    cluster(f"{place()}2/3", clock, ago=1000)
    held = {"status": "running", "lease_owner": owner_name()}
    Run.objects.filter(pk=run.pk).update(**held, lease_until=clock.now() + timedelta(seconds=50))
    assert health.live().is_well

    clock.advance(51)
    assert not health.live().is_well


def test_a_database_that_does_not_answer_is_no_reason_to_kill_a_cluster_but_it_is_not_ready() -> None:
    with mock.patch.object(Cluster.objects, "filter", side_effect=OperationalError("gone")):
        assert ask("--live") == (0, "The database does not answer; nothing is known against the workers.\n")
        assert ask() == (1, "The database does not answer: OperationalError.\n")


# Signs of life.


def test_a_starting_worker_shows_a_sign_of_life_and_forgets_the_clusters_that_have_gone(
    clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "_joined", None)
    cluster(f"{place()}{os.getpid()}/1", clock)
    cluster(ELSEWHERE, clock, ago=86_300)
    cluster("long ago/1/2/3", clock, ago=86_500)

    clusters.join()

    assert set(Cluster.objects.values_list("name", flat=True)) == {process_name(os.getppid()), ELSEWHERE}


def test_an_answered_probe_and_a_sweep_are_signs_of_life(as_worker: None, clock: FixedClock) -> None:
    for act in (lambda: tasks.answer(1, False), tasks.recover):
        clock.advance(clusters.SAY_EVERY)
        act()
        assert Cluster.objects.get().seen_at == clock.now()


def test_signs_of_life_are_not_written_more_often_than_anybody_asks(
    as_worker: None, clock: FixedClock, django_assert_num_queries: Any
) -> None:
    clock.advance(clusters.SAY_EVERY)
    with django_assert_num_queries(1):
        for _ in range(5):
            tasks.answer(1, False)


def test_some_probes_sweep(agent: Agent, as_worker: None, clock: FixedClock) -> None:
    run = runs.start("worldly", "Hello")
    Run.objects.filter(pk=run.pk).update(status="running", lease_owner=f"{ELSEWHERE}/a", lease_until=None)

    tasks.answer(1, False)
    assert runs.get(run.run_id).status == "running"
    tasks.answer(2, True)
    assert runs.get(run.run_id).status == "queued"


def test_a_process_that_is_no_worker_shows_none(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        tasks.answer(1, False)


# The queue is told again of what a killed cluster may have had.


def test_the_runs_that_wait_longest_are_rung_again(agent: Agent, clock: FixedClock) -> None:
    names = [runs.start("worldly", f"Hello {number}").run_id for number in range(3)]
    clock.advance(1)
    Run.objects.filter(run_id=names[2]).update(ticket_at=None)
    OrmQ.objects.all().delete()

    assert recovery.ring_again(2) == 2

    assert [ticket.task["args"][0] for ticket in OrmQ.objects.order_by("id")] == [names[2], names[0]]


# What anvil_worker refuses, and the name it takes.


def refused(*options: str) -> str:
    with pytest.raises(CommandError) as caught:
        call_command("anvil_worker", *options)
    return str(caught.value)


def test_a_worker_is_refused_where_it_would_do_nothing_or_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    assert refused("--stall", "3", "--probe-every", "5") == (
        "--stall (3) must be longer than --probe-every (5): between two probes nobody has to take a task."
    )
    assert refused("--cluster-name", "nigth") == (
        "There is no cluster 'nigth' in Q_CLUSTER; there is anvil-tests."
    )
    assert "'soon' is not a number of seconds above zero" in refused("--grace", "soon")
    monkeypatch.setattr(Conf, "SYNC", True)
    assert refused().startswith("Q_CLUSTER['sync'] is on")


def test_a_worker_for_another_queue_starts_anew_under_its_name(settings: Any) -> None:
    settings.Q_CLUSTER = {**settings.Q_CLUSTER, "ALT_CLUSTERS": {"night": {}}}
    settings.ANVIL = {**settings.ANVIL, "QUEUE": "night"}

    with mock.patch("os.execve", side_effect=SystemExit) as started, pytest.raises(SystemExit):
        call_command("anvil_worker")

    executable, arguments, environment = started.call_args.args
    assert (executable, arguments) == (sys.executable, sys.orig_argv)
    assert environment["Q_CLUSTER_NAME"] == "night"
