"""What a run costs besides its iterations is counted in statements: starting, taking, sweeping."""

from __future__ import annotations

from typing import Any

import pytest

from anvil_django import models, runs, start_run, tasks
from anvil_django.leases import owner_name
from anvil_django.stores import DjangoStateStore, sweep
from anvil_django.testing import ScriptedMessagesAPI, say, tool_call

from .world import registered_agent

pytestmark = pytest.mark.django_db


def start(*run_ids: str) -> None:
    with registered_agent():
        for run_id in run_ids:
            start_run("worldly", "Go.", run_id=run_id)


def lose(run_id: str) -> None:
    """Leave a run as a worker that died long ago has left it."""
    assert DjangoStateStore().claim(run_id, "gone", 60) is not None
    models.Run.objects.filter(run_id=run_id).update(lease_until=None)


def test_a_sweep_that_finds_nothing_is_one_statement(django_assert_num_queries: Any) -> None:
    start("queued", "running")
    assert DjangoStateStore().claim("running", owner_name(), 60) is not None
    with django_assert_num_queries(1):
        assert tasks.recover() == 0


def test_a_run_is_started_in_nine_statements(django_assert_num_queries: Any) -> None:
    """A look for the id, the version, the run, its message, the doorbell; two savepoints and their ends."""
    start("first")
    with registered_agent(), django_assert_num_queries(9):
        start_run("worldly", "Go.", run_id="r")


def test_a_run_is_taken_and_read_in_five_statements(
    django_assert_num_queries: Any, messages_api: ScriptedMessagesAPI
) -> None:
    """It, its row, the row of its slice, its calls, its messages; however many these are."""
    messages_api.script(*(say(tool_call("look", {"thing": str(n)})) for n in range(5)), say("Done."))
    start("r", "long")
    with registered_agent():
        tasks.advance("long")
    assert models.Message.objects.filter(run__run_id="long").count() > 5
    models.Run.objects.filter(run_id="long").update(status="queued", stop_reason="", finished_at=None)
    for run_id in ("r", "long"):
        with django_assert_num_queries(5):
            assert DjangoStateStore().claim(run_id, owner_name(), 60) is not None


def test_a_sweep_asks_on_until_it_has_seen_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "AT_ONCE", 2)
    everyone = [f"r{number}" for number in range(5)]
    start(*everyone)
    for run_id in everyone:
        lose(run_id)
    assert [found.run_id for found in runs.recover(dry_run=True)] == everyone
    assert tasks.recover() == 5
    assert set(models.Run.objects.values_list("status", flat=True)) == {"queued"}


def test_a_sweep_of_one_agent_or_one_run_leaves_the_others() -> None:
    start("mine", "other")
    for run_id in ("mine", "other"):
        lose(run_id)
    models.Run.objects.filter(run_id="other").update(agent="other")
    assert [found.run_id for found in runs.recover(agent="other", dry_run=True)] == ["other"]
    assert [found.run_id for found in runs.recover(run_id="mine", dry_run=True)] == ["mine"]
    assert [found.run_id for found in runs.recover(limit=1, dry_run=True)] == ["mine"]
