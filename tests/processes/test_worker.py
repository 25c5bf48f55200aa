"""``manage.py anvil_worker`` with real processes: told to stop, killed from within, deadlocked, orphaned."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest
from django.utils import timezone
from django_q.models import OrmQ
from django_q.tasks import async_task

from anvil_django import health
from anvil_django.models import Cluster
from anvil_django.supervisor import ExitCode
from anvil_django.testing import say, tool_call

from .cluster import ROOT, WORKERS, Site, wait_until
from .worker import children, gone, start_worker

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]

QUICKLY = ["--probe-every", "0.3", "--stall", "1.2"]


def test_told_to_stop_it_hands_the_run_back_at_the_next_step_and_leaves_nothing(site: Site) -> None:
    site.api.script(say(tool_call("act", {"name": "one"}), tool_call("act", {"name": "two"})), say("Done."))
    site.hold("one")
    worker = start_worker(site)
    run = site.start_run()
    site.wait_inside("one")
    group = worker.cluster
    assert health.live().is_well
    assert health.ready().is_well

    worker.signal(signal.SIGTERM)
    wait_until(lambda: worker.said("stopping cluster processes"), "the sentinel has been told")
    site.release("one")

    assert worker.ended() == ExitCode.STOPPED
    gone(group)
    run.refresh_from_db()
    assert (run.status, run.recoveries, site.counts("began")) == ("queued", 0, {"one": 1})
    assert not Cluster.objects.exists()
    assert health.live().problems == ["No cluster of this host has given a sign of life for 180 s."]


@pytest.mark.slow
def test_what_is_not_done_after_the_grace_time_is_killed(site: Site) -> None:
    site.api.script(say(tool_call("look", {"name": "one"})))
    site.hold("one")
    worker = start_worker(site, "--grace", "0.5")
    site.start_run()
    site.wait_inside("one")
    group = worker.cluster

    worker.signal(signal.SIGTERM)

    assert worker.ended() == ExitCode.CUT_OFF
    gone(group)


@pytest.mark.slow
def test_a_second_signal_kills_at_once(site: Site) -> None:
    site.api.script(say(tool_call("look", {"name": "one"})))
    site.hold("one")
    worker = start_worker(site)
    site.start_run()
    site.wait_inside("one")
    group = worker.cluster

    worker.signal(signal.SIGINT)
    wait_until(lambda: worker.said("stopping cluster processes"), "the sentinel has been told")
    worker.signal(signal.SIGINT)

    assert worker.ended(within=3) == 128 + signal.SIGINT
    gone(group)


@pytest.mark.slow
def test_a_cluster_whose_sentinel_is_killed_is_replaced_and_the_run_goes_on(site: Site) -> None:
    site.api.script(
        say(tool_call("act", {"name": "one"})), say(tool_call("look", {"name": "two"})), say("Done.")
    )
    site.hold("two")
    worker = start_worker(site)
    run = site.start_run()
    site.wait_inside("two")
    group = worker.cluster

    (sentinel,) = children(group)
    os.kill(sentinel, signal.SIGKILL)
    site.wait_inside("two", times=2)
    gone(group)
    site.release("two")

    site.wait_for(run, "done", seconds=10)
    assert worker.said("another one in 0 s") == 1
    assert site.counts("began") == {"one": 1, "two": 2}


@pytest.mark.slow
def test_a_cluster_whose_workers_wait_for_a_dead_one_is_replaced(site: Site) -> None:
    site.api.script(say(tool_call("act", {"name": "one"})), say("Done."))
    worker = start_worker(site, *QUICKLY, workers=1)
    group = worker.cluster

    # It holds the lock of the queue while it waits for a task; a moment later it may be with a probe.
    for _attempt in range(5):
        (sentinel,) = children(group)
        os.kill(next(pid for pid in worker.workers() if pid in children(sentinel)), signal.SIGKILL)
        with suppress(AssertionError):
            wait_until(lambda: worker.said("does not answer"), "it is noticed", seconds=3)
            break
    # This one would have been in the hands of the cluster that hangs.
    run = site.start_run()

    site.wait_for(run, "done", seconds=10)
    gone(group)
    assert worker.said("another one in 0 s") == 1


@pytest.mark.slow
def test_a_run_that_a_hanging_cluster_had_fetched_is_not_waited_for(site: Site) -> None:
    site.api.script(say(tool_call("act", {"name": "one"})), say("Done."))
    worker = start_worker(site, workers=1)
    group = worker.cluster
    (sentinel,) = children(group)
    os.kill(sentinel, signal.SIGSTOP)  # Nobody is replaced, so nobody will take what is fetched now.
    os.kill(worker.workers()[0], signal.SIGKILL)
    run = site.start_run()
    wait_until(lambda: OrmQ.objects.filter(lock__gt=timezone.now()).exists(), "the ticket is fetched")
    os.killpg(group, signal.SIGKILL)

    site.wait_for(run, "done", seconds=10)
    assert run.token == 1


@pytest.mark.slow
def test_a_cluster_is_left_alone_while_all_its_workers_are_busy(site: Site) -> None:
    worker = start_worker(site, *QUICKLY)
    group = worker.cluster
    for _ in range(WORKERS):
        async_task("time.sleep", 4, save=False)  # Tasks of the site, which hold no lease.
    wait_until(lambda: worker.said("processing") == WORKERS, "all workers are busy")
    time.sleep(3)

    assert (worker.said("does not answer"), worker.cluster) == (0, group)


@pytest.mark.slow
def test_a_cluster_whose_supervisor_was_killed_hands_its_run_back_and_ends(site: Site) -> None:
    site.api.script(say(tool_call("act", {"name": "one"}), tool_call("act", {"name": "two"})), say("Done."))
    site.hold("one")
    worker = start_worker(site)
    run = site.start_run()
    site.wait_inside("one")
    group = worker.cluster

    worker.signal(signal.SIGKILL)
    worker.ended()
    wait_until(lambda: worker.said("stopping cluster processes"), "the sentinel has been told")
    site.release("one")

    gone(group)
    run.refresh_from_db()
    assert (run.status, run.recoveries, site.counts("began")) == ("queued", 0, {"one": 1})


@pytest.mark.slow
def test_a_cluster_that_hangs_after_its_supervisor_was_killed_is_killed(site: Site) -> None:
    site.api.script(say(tool_call("look", {"name": "one"})))
    site.hold("one")
    worker = start_worker(site, "--grace", "1")
    site.start_run()
    site.wait_inside("one")
    group = worker.cluster

    worker.signal(signal.SIGKILL)
    worker.ended()

    gone(group)


@pytest.mark.slow
def test_a_cluster_that_cannot_be_kept_alive_is_given_up(site: Site) -> None:
    script = (
        "import django; django.setup();"
        "from django.core.management import call_command;"
        "from anvil_django import supervisor; from django_q import cluster;"
        "supervisor.DELAYS = (0.0, 0.0);"
        "cluster.Sentinel.guard = lambda self: 1 / 0;"
        "call_command('anvil_worker')"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], env=site.environment(), cwd=ROOT, capture_output=True, timeout=30
    )
    assert ended.returncode == ExitCode.KEEPS_DYING
    assert b"the cluster ended 3 times in a row shortly after its start; given up" in ended.stderr
