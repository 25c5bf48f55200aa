"""kill -9 at the worst moments: inside a model call, inside tools, the whole cluster, again and again."""

from __future__ import annotations

import os
import signal

import pytest

from anvil_django import approvals
from anvil_django.models import Approval, ToolCall
from anvil_django.testing import fault, say, tool_call
from example_project.shop.models import SentEmail
from tests.world import reviewer

from .cluster import Site, wait_until, worker_of

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def test_nothing_completed_is_lost_when_a_worker_is_killed_during_a_model_call(site: Site) -> None:
    site.api.script(
        say(tool_call("act", {"name": "one"})),
        say(tool_call("act", {"name": "two"})).after(fault.stall(60)),
        say("All done."),
    )
    site.start_cluster()
    run = site.start_run()
    wait_until(lambda: len(site.api.requests) == 2, "the second model call is in flight")

    kill(worker_of(run))
    # Nobody waits for the lease of a minute to run out: a dead owner on this host is recognized.
    site.wait_for(run, "done")
    assert site.counts() == {"one": 1, "two": 1}
    assert [billed.turn for billed in site.api.billed] == [0, 1, 2]
    assert (run.token, run.iterations, run.recoveries) == (2, 3, 0)
    assert site.api.unconsumed == []


@pytest.mark.parametrize(
    ("answer", "times"),
    [("It did happen.", 0), (None, 1)],
    ids=["it happened", "it did not happen"],
)
def test_an_unknown_outcome_is_never_guessed_when_a_worker_is_killed_in_a_side_effect(
    site: Site, answer: str | None, times: int
) -> None:
    site.api.script(say(tool_call("act", {"name": "one"}), tool_call("act", {"name": "two"})), say("Done."))
    site.hold("one")
    site.start_cluster()
    run = site.start_run()

    kill(site.wait_inside("one"))
    site.wait_for(run, "suspended")

    approval = Approval.objects.get()
    assert (approval.kind, approval.status, approval.tool) == ("in_doubt", "pending", "act")
    site.release("one")
    assert site.counts("began") == {"one": 1, "two": 1}, "the call in doubt does not hold up the other one"
    approvals.approve(approval, user=reviewer(), answer=answer)
    site.wait_for(run, "done")
    assert site.counts("ended") == ({"one": times, "two": 1} if times else {"two": 1})
    assert site.counts("began") == {"one": 1 + times, "two": 1}
    assert len({line["key"] for line in site.trace() if line["name"] == "one"}) == 1


def test_a_database_side_effect_is_exactly_once_when_a_worker_is_killed_in_it(site: Site) -> None:
    site.api.script(say(tool_call("book", {"name": "one"})), say("Booked."))
    site.hold("one")
    site.start_cluster()
    run = site.start_run()

    kill(site.wait_inside("one"))
    wait_until(lambda: site.counts("began") == {"one": 2}, "the tool is run again")
    assert SentEmail.objects.count() == 0, "what the killed worker wrote is rolled back"
    site.release("one")

    site.wait_for(run, "done")
    assert SentEmail.objects.count() == 1
    assert site.counts() == {"one": 1}


def test_a_new_cluster_goes_on_when_the_whole_cluster_was_killed(site: Site) -> None:
    site.api.script(
        say(tool_call("act", {"name": "one"})), say(tool_call("look", {"name": "two"})), say("Done.")
    )
    site.hold("two")
    first = site.start_cluster()
    run = site.start_run()
    site.wait_inside("two")

    first.kill()
    site.release("two")
    site.start_cluster()

    site.wait_for(run, "done")
    assert site.counts() == {"one": 1, "two": 1}
    assert len(site.api.billed) == 3, "no answer that was stored is paid for twice"


def test_a_terminated_cluster_hands_its_run_back_at_the_next_step_boundary(site: Site) -> None:
    site.api.script(
        say(tool_call("act", {"name": "one"}), tool_call("act", {"name": "two"})),
        say(tool_call("act", {"name": "three"})),
        say("Done."),
    )
    site.hold("one")
    first = site.start_cluster()
    run = site.start_run()
    site.wait_inside("one")

    os.kill(first.process.pid, signal.SIGTERM)
    wait_until(lambda: first.said("stopping cluster processes"), "the sentinel has been told")
    site.release("one")

    assert first.process.wait(timeout=30) == 0
    run.refresh_from_db()
    assert (run.status, run.lease_owner, run.recoveries) == ("queued", "", 0)
    assert list(ToolCall.objects.values_list("status", flat=True).order_by("index")) == ["done", "ready"]
    assert site.counts("began") == {"one": 1}, "no further step is begun"

    site.start_cluster()
    site.wait_for(run, "done")
    assert site.counts() == {"one": 1, "two": 1, "three": 1}
    assert not Approval.objects.exists()


def test_a_terminated_cluster_waits_for_the_model_call_in_flight(site: Site) -> None:
    site.api.script(say(tool_call("act", {"name": "one"}), delay=1.0), say("Done."))
    first = site.start_cluster()
    run = site.start_run()
    wait_until(lambda: site.api.requests, "the model call is in flight")

    assert first.terminate_main() == 0
    run.refresh_from_db()
    assert (run.status, run.iterations) == ("queued", 1), "the answer that was paid for is stored"
    assert site.counts("began") == {}

    site.start_cluster()
    site.wait_for(run, "done")
    assert site.counts() == {"one": 1}
    assert len(site.api.billed) == 2


def test_a_run_that_kills_its_workers_fails_as_poison_and_the_others_go_on(site: Site) -> None:
    site.api.add([say(tool_call("explode", {"name": "bomb"}))], match="Explode")
    site.api.script(say(tool_call("act", {"name": "one"})), say("Done."), match="Work")
    site.start_cluster(MAX_RECOVERIES=2)
    poison = site.start_run("Explode.")
    wait_until(lambda: site.counts("began").get("bomb"), "the first worker is dead")
    other = site.start_run("Work.")

    site.wait_for(other, "done")
    site.wait_for(poison, "failed")
    assert poison.error_code == "poison"
    assert site.counts("began")["bomb"] == 3, "the first time and two recoveries"
    assert len({line["key"] for line in site.trace() if line["name"] == "bomb"}) == 1
    later = site.start_run("Work again.")
    site.wait_for(later, "done")
    assert site.counts("ended") == {"one": 2}
