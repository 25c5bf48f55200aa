"""SIGKILL at every named boundary of real workers: the run ends, and each effect happens once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from anvil_django import approvals, runs
from anvil_django.boundaries import BOUNDARIES
from anvil_django.models import Approval, Run
from anvil_django.testing import say, tool_call
from example_project.shop.models import SentEmail
from tests.world import reviewer

from . import crew
from .cluster import Site, wait_until

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]


def failing_client() -> Any:
    """The crew's client; where there was none yet, an end of the process that nothing handles."""
    asked = crew.workspace() / "asked-for-a-client"
    if not asked.exists():
        asked.touch()
        raise SystemExit("no client")
    return crew.client()


def settle(site: Site) -> None:
    """Answer what waits: a call in doubt happened if it left its trace."""
    for approval in Approval.objects.pending().select_related("run", "call"):
        key = f"{approval.run.run_id}:{approval.call.call_id}"
        ended = [line["name"] for line in site.trace() if line["event"] == "ended" and line["key"] == key]
        approvals.approve(approval, user=reviewer(), answer=f"{ended[0]} is done" if ended else None)


def test_a_worker_killed_at_each_named_boundary_is_replaced_and_nothing_happens_twice(
    site: Site, settings: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    site.api.script(
        say(tool_call("look", {"name": "one"}), tool_call("act", {"name": "two"})),
        say(tool_call("book", {"name": "three"}), tool_call("act", {"name": "four"})),
        say("All done."),
    )
    notes = tmp_path / "killed"
    monkeypatch.setenv("ANVIL_KILL_AT", ",".join(BOUNDARIES))
    monkeypatch.setenv("ANVIL_KILL_ONCE", str(notes))
    cluster = site.start_cluster(
        KILL_POINTS=True,
        CLIENT=f"{__name__}.failing_client",
        SLICE_SECONDS=0.001,  # Every slice ends after a step, so that the workers ring as well.
        MAX_RECOVERIES=len(BOUNDARIES),
    )
    started = [runs.start("crew", f"Go, {n}.") for n in range(2)]

    settings.ANVIL = {**settings.ANVIL, "TICKET_SECONDS": 0.5}

    def over() -> bool:
        list(runs.recover())  # For the schedule: a worker that dies before it rings leaves nobody to do it.
        settle(site)
        return not Run.objects.unfinished().exists()

    wait_until(over, "the runs have ended", seconds=60)

    killed = [line.split() for line in notes.read_text().splitlines()]
    assert sorted(place for place, _ in killed) == sorted(f"{name}#1" for name in BOUNDARIES)
    assert len({pid for _, pid in killed}) == len(BOUNDARIES)
    assert all(pid != str(os.getpid()) for _, pid in killed)
    assert cluster.said("killed on purpose") == len(BOUNDARIES)
    for run in started:
        run.refresh_from_db()
        assert (run.status, run.stop_reason) == ("done", "end_turn"), (run.error, site.logs())
    counts = site.counts()
    assert (counts["two"], counts["four"]) == (2, 2)
    assert SentEmail.objects.count() == 2
