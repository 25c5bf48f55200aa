"""A process meets a run that a later version of this package has saved: it leaves it alone, visibly."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from anvil_django import approvals, models, runs, start_run, tasks
from anvil_django.clock import FixedClock
from anvil_django.conf import get_settings
from anvil_django.errors import NewerCheckpointError
from anvil_django.testing import ScriptedMessagesAPI, say, tool_call

from .rest import RUNS, client_of, person
from .world import registered_agent, reviewer

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def worldly() -> Iterator[None]:
    with registered_agent():
        yield


def run() -> models.Run:
    return models.Run.objects.get(run_id="r")


def suspend(api: ScriptedMessagesAPI, *then: Any) -> None:
    """A run that waits for a person."""
    api.script(say(tool_call("deploy", {"version": "1.2"})), *then)
    start_run("worldly", "Go.", run_id="r")
    assert tasks.advance("r") == "suspended"


def approve() -> None:
    approvals.approve(models.Approval.objects.get(), user=reviewer())


def newer(**values: Any) -> models.Run:
    """As if a later version had saved the run."""
    models.Run.objects.filter(run_id="r").update(checkpoint_version=2, **values)
    return run()


def upgrade(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is the later version from now on."""
    for module in ("models.run", "stores.rows", "stores.sweep", "stores.claims", "runs", "approvals"):
        monkeypatch.setattr(f"anvil_django.{module}.CHECKPOINT_VERSION", 2)


LEFT_ALONE = (
    "Waits for a worker with a newer anvil_django: it was saved by one, and a worker that reads checkpoints "
    "up to version 1 left it alone."
)


def columns(row: models.Run) -> dict[str, Any]:
    return models.Run.objects.filter(pk=row.pk).values().get()


def test_an_older_worker_leaves_a_newer_run_alone_and_says_so_once(
    messages_api: ScriptedMessagesAPI,
    clock: FixedClock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    messages_api.script(say("Done."))
    start_run("worldly", "Go.", run_id="r")
    before = columns(newer())

    with caplog.at_level(logging.WARNING, logger="anvil_django"):
        for _ in range(3):
            assert tasks.advance("r") == "not taken"
            clock.advance(3600)
            assert list(runs.recover()) == []

    assert [record.getMessage() for record in caplog.records if record.name == "anvil_django.runs"] == [
        "left alone: a newer anvil_django has saved this run"
    ]
    assert columns(run()) == {**before, "error": LEFT_ALONE, "ticket_at": None}
    assert run().why == LEFT_ALONE

    upgrade(monkeypatch)
    assert [found.why for found in runs.recover()] == ["the queue lost it"]
    assert tasks.advance("r") == "done"
    assert (run().why, run().checkpoint_version) == ("", 2)


def test_an_older_sweep_does_not_take_a_newer_run_for_poison(
    messages_api: ScriptedMessagesAPI, clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages_api.script(say("Done."))
    start_run("worldly", "Go.", run_id="r")
    newer(status="running", recoveries=get_settings().max_recoveries + 1, token=7)
    before = columns(run())

    for _ in range(3):
        clock.advance(3600)
        assert list(runs.recover()) == []
        assert tasks.advance("r") == "not taken"

    assert columns(run()) == before
    newer(recoveries=0)
    upgrade(monkeypatch)
    assert [found.why for found in runs.recover()] == ["its lease has expired"]
    assert tasks.advance("r") == "done"


def test_a_person_is_told_that_an_older_process_cannot_touch_a_newer_run(
    messages_api: ScriptedMessagesAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspend(messages_api)
    before = columns(newer())
    told = "has version 2; this anvil_django reads up to version 1. Upgrade anvil_django"
    client = client_of(person("olga", "control_run", "view_run"))

    for refused in (lambda: runs.cancel("r"), lambda: runs.fork("r"), approve):
        with pytest.raises(NewerCheckpointError, match=told):
            refused()
    shown = client.post(f"{RUNS}r/cancel/")
    assert (shown.status_code, shown.json()["code"]) == (409, "newer_checkpoint")
    assert columns(run()) == before

    upgrade(monkeypatch)
    assert runs.cancel("r").status == "cancelled"


def test_a_case_of_a_newer_run_does_not_expire_by_an_older_sweep(
    messages_api: ScriptedMessagesAPI, clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspend(messages_api, say("Done."))
    models.Approval.objects.update(expires_at=clock.now())
    newer()
    clock.advance(60)

    assert approvals.expire_overdue() == []
    upgrade(monkeypatch)
    assert len(approvals.expire_overdue()) == 1
    assert tasks.advance("r") == "done"


def test_a_newer_run_that_is_queued_can_be_stopped_by_an_older_process(
    messages_api: ScriptedMessagesAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_run("worldly", "Go.", run_id="r")
    newer()

    assert runs.cancel("r").cancel_requested
    upgrade(monkeypatch)
    assert tasks.advance("r") == "cancelled"


def test_a_newer_run_that_has_ended_takes_no_message_from_an_older_process(
    messages_api: ScriptedMessagesAPI,
) -> None:
    messages_api.script(say("Hello."))
    start_run("worldly", "Go.", run_id="r")
    tasks.advance("r")
    before = columns(newer())

    with pytest.raises(NewerCheckpointError):
        runs.say("r", "And now?")
    assert columns(run()) == before
