"""A worker that has finished a slice looks for interrupted runs, but not after every one."""

from __future__ import annotations

import pytest

from anvil_django import models, start_run, tasks
from anvil_django.clock import FixedClock
from anvil_django.stores import DjangoStateStore
from anvil_django.testing import ScriptedMessagesAPI, say

from .world import registered_agent

pytestmark = pytest.mark.django_db


def interrupt(run_id: str) -> None:
    """Leave a run as a worker that died long ago has left it."""
    start_run("worldly", "Lost.", run_id=run_id)
    assert DjangoStateStore().claim(run_id, "gone", 60) is not None
    models.Run.objects.filter(run_id=run_id).update(lease_until=None)


def status(run_id: str) -> str:
    return models.Run.objects.get(run_id=run_id).status


def test_a_slice_is_followed_by_a_sweep_at_most_every_ten_seconds(
    messages_api: ScriptedMessagesAPI, clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "SWEEP_EVERY", 10.0)
    monkeypatch.setattr(tasks, "_swept_at", None)
    messages_api.script(say("Done."))
    with registered_agent():
        for run_id in ("one", "two", "three"):
            start_run("worldly", "Go.", run_id=run_id)
        interrupt("first")
        tasks.advance("one")
        assert (status("one"), status("first")) == ("done", "queued")

        interrupt("second")
        clock.advance(9)
        tasks.advance("two")
        assert status("second") == "running"

        clock.advance(1)
        tasks.advance("three")
        assert status("second") == "queued"


def test_a_sweep_that_fails_does_not_fail_the_slice(
    messages_api: ScriptedMessagesAPI, clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> int:
        raise RuntimeError("no database")

    monkeypatch.setattr(tasks, "_swept_at", None)
    monkeypatch.setattr(tasks, "recover", broken)
    messages_api.script(say("Done."))
    with registered_agent():
        start_run("worldly", "Go.", run_id="one")

        assert tasks.advance("one") == "done"
