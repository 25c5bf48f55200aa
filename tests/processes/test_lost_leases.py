"""One worker at a time: a worker that was stopped for too long, and two that take a run at once."""

from __future__ import annotations

import pytest

from anvil_django import runs
from anvil_django.models import Message, Run, ToolCall
from anvil_django.testing import fault, say, tool_call

from .cluster import ROUNDS, Site, stopped, wait_until, worker_of

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]

# Results of read-only tools wait for the next commit, so that it is the lease alone that stops a worker.
SHORT_LEASE = {"LEASE_SECONDS": 1.5, "HEARTBEAT_SECONDS": 0.3, "FLUSH_SECONDS": 60}
TAKEN_OVER = "the run was taken over by another worker"


def rows(run: Run) -> list[object]:
    """All that is stored of a run."""
    return [
        Run.objects.filter(pk=run.pk).values().get(),
        list(Message.objects.filter(run=run).order_by("seq").values()),
        list(ToolCall.objects.filter(run=run).order_by("seq", "index").values()),
    ]


def test_a_worker_stopped_in_a_tool_past_its_lease_writes_and_starts_nothing(site: Site) -> None:
    site.api.script(
        say(tool_call("look", {"name": "one"}), tool_call("look", {"name": "two"})),
        say(tool_call("act", {"name": "three"})),
        say("Done."),
    )
    site.hold("one")
    first = site.start_cluster(**SHORT_LEASE)
    run = site.start_run()
    pid = site.wait_inside("one")

    with stopped(pid):
        wait_until(lambda: list(runs.recover()), "its lease has run out and the other worker is told")
        site.wait_inside("one", times=2)
        site.release("one")
        site.wait_for(run, "done")
        before, requests = rows(run), len(site.api.requests)
    wait_until(lambda: first.said(TAKEN_OVER), "the stopped worker has noticed")

    assert rows(run) == before
    assert len(site.api.requests) == requests == 3
    mine = [(line["event"], line["name"]) for line in site.trace() if line["pid"] == pid]
    assert mine[0] == ("began", "one")
    assert set(mine[1:]) <= {("ended", "one")}, "the tool it was in returned; nothing more began"
    assert site.counts()["three"] == 1


def test_a_worker_stopped_in_a_side_effect_past_its_lease_does_not_record_or_repeat_it(site: Site) -> None:
    site.api.script(say(tool_call("act", {"name": "one"}), tool_call("act", {"name": "two"})), say("Done."))
    site.hold("one")
    first = site.start_cluster(**SHORT_LEASE)
    run = site.start_run()
    pid = site.wait_inside("one")

    with stopped(pid):
        wait_until(lambda: list(runs.recover()), "its lease has run out and the other worker is told")
        site.wait_for(run, "suspended")
        before = rows(run)
    site.release("one")
    wait_until(lambda: first.said(TAKEN_OVER), "the stopped worker has noticed")

    assert rows(run) == before, "a person is being asked; the late result does not overtake them"
    assert site.counts("began") == {"one": 1, "two": 1}
    assert len(site.api.requests) == 1


def test_a_worker_stopped_in_a_model_call_past_its_lease_writes_and_starts_nothing(
    site: Site,
) -> None:
    site.api.script(say(tool_call("act", {"name": "one"})).after(fault.stall(3, events=2)), say("Done."))
    first = site.start_cluster(**SHORT_LEASE)
    run = site.start_run()
    wait_until(lambda: site.api.requests, "the model call is in flight")

    with stopped(worker_of(run)):
        wait_until(lambda: list(runs.recover()), "its lease has run out and the other worker is told")
        site.wait_for(run, "done")
        before = rows(run)
    wait_until(lambda: first.said(TAKEN_OVER), "the stopped worker has noticed")

    assert rows(run) == before
    assert len(site.api.requests) == 3, "the stalled one, its repetition, and the last turn"
    assert site.counts() == {"one": 1}


def test_a_held_lease_is_renewed_for_as_long_as_a_step_takes(site: Site) -> None:
    site.api.script(say(tool_call("act", {"name": "one"})), say("Done."))
    site.hold("one")
    site.start_cluster(**SHORT_LEASE)
    run = site.start_run()
    site.wait_inside("one")
    run.refresh_from_db()

    until, owner = run.lease_until, run.lease_owner
    later = Run.objects.filter(pk=run.pk, lease_owner=owner, lease_until__gt=until)
    wait_until(later.exists, "the lease has been renewed")
    wait_until(lambda: Run.objects.filter(pk=run.pk).exclude(lease_until=until).exists(), "and again")
    # Whoever comes by now finds the run held.
    second = site.start_racers(1, **SHORT_LEASE)
    assert site.race(second, ("advance", run.run_id)) == ["not taken"]
    assert site.race(second, ("recover",)) == [[]]
    site.release("one")
    site.wait_for(run, "done")
    assert run.token == 1


def test_two_processes_that_advance_one_run_at_once_do_every_step_once(site: Site) -> None:
    site.api.script(
        say(tool_call("act", {"name": "one"}), tool_call("look", {"name": "two"})),
        say(tool_call("book", {"name": "three"})),
        say("Done."),
    )
    racers = site.start_racers(2)
    for number in range(ROUNDS):
        run = site.start_run(f"Round {number}.")
        results = site.race(racers, ("advance", run.run_id), ("advance", run.run_id))
        assert sorted(results) == ["done", "not taken"], results
        run.refresh_from_db()
        assert (run.status, run.token, run.iterations) == ("done", 1, 3)
    assert site.counts("began") == {"one": ROUNDS, "two": ROUNDS, "three": ROUNDS}
    assert len({line["key"] for line in site.trace()}) == 3 * ROUNDS
    assert len(site.api.billed) == 3 * ROUNDS
