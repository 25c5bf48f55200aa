"""Decisions that are taken at the same instant, or while a worker is busy with the same turn."""

from __future__ import annotations

import pytest
from django_q.models import OrmQ

from anvil_django import approvals, tasks
from anvil_django.models import Approval
from anvil_django.testing import say, tool_call
from tests.world import reviewer

from .cluster import ROUNDS, Site, tickets

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]


def test_the_last_two_decisions_of_a_turn_wake_the_run_once_and_never_lose_it(site: Site) -> None:
    site.api.script(
        say(tool_call("ask_first", {"name": "one"}), tool_call("ask_first", {"name": "two"})), say("Done.")
    )
    racers, person = site.start_racers(2), reviewer()
    for number in range(ROUNDS):
        run = site.start_run(f"Round {number}.")
        OrmQ.objects.all().delete()
        assert tasks.advance(run.run_id) == "suspended"
        first, second = Approval.objects.filter(run=run).values_list("pk", flat=True)

        results = site.race(racers, ("approve", first, person.pk), ("approve", second, person.pk))
        assert results == ["approved", "approved"]
        run.refresh_from_db()
        assert (run.status, tickets()[run.run_id]) == ("queued", 1)
        assert tasks.advance(run.run_id) == "done"
    assert site.counts() == {"one": ROUNDS, "two": ROUNDS}


def test_of_two_decisions_on_one_call_exactly_one_counts(site: Site) -> None:
    site.api.script(say(tool_call("ask_first", {"name": "one"})), say("Done."))
    racers, person = site.start_racers(2), reviewer()
    for number in range(ROUNDS):
        run = site.start_run(f"Round {number}.")
        OrmQ.objects.all().delete()
        assert tasks.advance(run.run_id) == "suspended"
        approval = Approval.objects.get(run=run)

        results = site.race(racers, *[("approve", approval.pk, person.pk)] * 2)
        assert sorted(result.split(":")[0] for result in results) == ["AlreadyDecidedError", "approved"]
        assert approval.decisions.count() == 1
        assert tickets()[run.run_id] == 1
    assert site.counts() == {}


def test_a_decision_is_not_lost_while_the_worker_runs_another_call_of_the_turn(site: Site) -> None:
    site.api.script(
        say(tool_call("ask_first", {"name": "one"}), tool_call("act", {"name": "two"})), say("Done.")
    )
    site.hold("two")
    site.start_cluster()
    run = site.start_run()
    site.wait_inside("two")

    approvals.approve(Approval.objects.get(), user=reviewer())
    site.release("two")
    site.wait_for(run, "done")
    assert site.counts() == {"one": 1, "two": 1}


def test_a_decision_at_the_instant_a_run_is_suspended_is_not_lost(site: Site) -> None:
    site.api.script(
        say(tool_call("ask_first", {"name": "one"}), tool_call("act", {"name": "two"})), say("Done.")
    )
    racers, person = site.start_racers(2), reviewer()
    for number in range(ROUNDS):
        run = site.start_run(f"Round {number}.")
        OrmQ.objects.all().delete()

        results = site.race(racers, ("advance", run.run_id), ("approve_when_asked", run.run_id, person.pk))
        assert results[0] in {"queued", "suspended"}
        assert results[1] == "approved"
        run.refresh_from_db()
        assert (run.status, tickets()[run.run_id]) == ("queued", 1), results
        assert tasks.advance(run.run_id) == "done"
    assert site.counts() == {"one": ROUNDS, "two": ROUNDS}
