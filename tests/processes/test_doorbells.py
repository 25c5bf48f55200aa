"""The queue is a doorbell: it may ring twice or never, and a sweep finds what waits without one."""

from __future__ import annotations

from typing import Any

import pytest
from django_q.models import OrmQ

from anvil_django import queue, runs
from anvil_django.models import Run
from anvil_django.testing import say, tool_call

from .cluster import ROUNDS, Site, tickets, wait_until

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]


def test_the_same_doorbell_delivered_twice_does_nothing_twice(site: Site) -> None:
    site.api.script(say(tool_call("act", {"name": "one"})), say("Done."))
    run = site.start_run()
    queue.ring(run.run_id, using="default")
    assert tickets() == {run.run_id: 2}

    site.start_cluster()
    site.wait_for(run, "done")
    wait_until(lambda: not OrmQ.objects.exists(), "both tickets are used up")
    assert (run.token, run.iterations) == (1, 2)
    assert site.counts() == {"one": 1}
    assert len(site.api.requests) == 2


def test_a_wake_up_is_never_lost_when_the_process_died_before_the_queue_was_told(
    site: Site, settings: Any
) -> None:
    site.api.script(say(tool_call("act", {"name": "one"})), say("Done."))
    run = site.start_run()
    OrmQ.objects.all().delete()
    assert list(runs.recover()) == [], "a doorbell has its time to be answered"

    settings.ANVIL = {**settings.ANVIL, "TICKET_SECONDS": 0.2}
    found = wait_until(lambda: list(runs.recover()), "the sweep finds the run")
    assert [(recovery.run_id, recovery.error) for recovery in found] == [(run.run_id, "")]
    assert tickets() == {run.run_id: 1}
    assert list(runs.recover()) == [], "and leaves it alone once it has been rung"
    site.start_cluster()
    site.wait_for(run, "done")
    assert site.counts() == {"one": 1}


def test_a_starting_worker_finds_a_run_that_the_queue_lost(site: Site) -> None:
    site.api.script(say(tool_call("act", {"name": "one"})), say("Done."))
    run = site.start_run()
    OrmQ.objects.all().delete()
    lost = Run.objects.filter(pk=run.pk, ticket_at__isnull=False)
    assert lost.exists()

    site.start_cluster(TICKET_SECONDS=0.05)
    site.wait_for(run, "done")
    assert site.counts() == {"one": 1}


def test_sweeps_at_the_same_time_ring_each_run_once(site: Site) -> None:
    site.api.script(say("Done."))
    racers = site.start_racers(3)
    for number in range(ROUNDS):
        waiting = {site.start_run(f"Round {number}, run {index}.").run_id for index in range(5)}
        OrmQ.objects.all().delete()
        Run.objects.filter(run_id__in=waiting).update(ticket_at=None)
        answers = site.race(racers, *[("recover",)] * len(racers))
        assert tickets() == dict.fromkeys(waiting, 1)
        assert sorted(run_id for answer in answers for run_id in answer) == sorted(waiting)
        Run.objects.filter(run_id__in=waiting).delete()
