"""What is asked of a run at an awkward moment is followed, whatever the run was about to become."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import OperationalError

from anvil_django import models, runs, start_run, tasks
from anvil_django.errors import IllegalTransitionError
from anvil_django.stores import DjangoStateStore, saving
from anvil_django.testing import ScriptedMessagesAPI, say, tool_call
from example_project.shop.models import Refund

from .world import order, registered_agent

pytestmark = pytest.mark.django_db

REFUND = tool_call("refund", {"number": "A-1", "amount": "20"})
DEPLOY = tool_call("deploy", {"version": "v1"})


@contextmanager
def at_save(number: int, event: Callable[[], Any]) -> Iterator[None]:
    """Something happens right before the n-th save."""
    save, saves = DjangoStateStore.save, []

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        saves.append(True)
        if len(saves) == number:
            event()
        return save(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DjangoStateStore, "save", wrapped)
        yield


def run() -> models.Run:
    return models.Run.objects.get(run_id="r")


REQUESTS = {"cancel": (runs.cancel, "cancelled"), "pause": (runs.pause, "paused")}


@pytest.mark.parametrize("request_", REQUESTS)
def test_while_an_atomic_tool_runs_beside_a_call_that_waits(
    messages_api: ScriptedMessagesAPI, request_: str
) -> None:
    ask, status = REQUESTS[request_]
    messages_api.script(say(REFUND, DEPLOY))
    order()
    with registered_agent(), at_save(2, lambda: ask("r")):
        start_run("worldly", "Go.", run_id="r")
        tasks.advance("r")

    assert (run().status, run().cancel_requested, run().pause_requested) == (status, False, False)
    assert Refund.objects.count() == 1


@pytest.mark.parametrize(("request_", "status"), [("cancel", "cancelled"), ("pause", "done")])
def test_while_an_atomic_tool_runs_that_is_the_last_of_a_run_at_its_limit(
    messages_api: ScriptedMessagesAPI, request_: str, status: str
) -> None:
    messages_api.script(say(REFUND))
    order()
    with registered_agent(max_iterations=1), at_save(2, lambda: REQUESTS[request_][0]("r")):
        start_run("worldly", "Go.", run_id="r")
        tasks.advance("r")

    assert (run().status, run().cancel_requested, run().pause_requested) == (status, False, False)
    assert Refund.objects.count() == 1


def test_while_an_atomic_tool_runs_and_the_worker_is_told_to_stop(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say(REFUND))
    order()
    with registered_agent(), at_save(2, lambda: runs.cancel("r")):
        start_run("worldly", "Go.", run_id="r")
        runs.advance_slice("r", should_stop=Refund.objects.exists)

    assert (run().status, run().cancel_requested) == ("cancelled", False)
    assert Refund.objects.count() == 1


def test_a_cancellation_that_comes_while_the_run_is_being_paused(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say(tool_call("look", {"thing": "a"})))
    with registered_agent():
        start_run("worldly", "Go.", run_id="r")
        with at_save(1, lambda: runs.pause("r")), at_save(2, lambda: runs.cancel("r")):
            tasks.advance("r")

    assert (run().status, run().cancel_requested) == ("cancelled", False)


def test_a_cancellation_that_comes_while_no_agent_is_found(messages_api: ScriptedMessagesAPI) -> None:
    with registered_agent():
        start_run("worldly", "Go.", run_id="r")
    with at_save(1, lambda: runs.cancel("r")):
        tasks.advance("r")

    assert (run().status, run().cancel_requested) == ("cancelled", False)


def test_a_cancellation_that_never_finds_the_run_at_rest_says_so(
    messages_api: ScriptedMessagesAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    with registered_agent():
        start_run("worldly", "Go.", run_id="r")
    monkeypatch.setattr(DjangoStateStore, "request", lambda *args, **kwargs: False)
    monkeypatch.setattr(DjangoStateStore, "claim", lambda *args, **kwargs: None)

    with pytest.raises(IllegalTransitionError, match="it cannot become cancelled"):
        runs.cancel("r")


@pytest.mark.django_db(transaction=True)
def test_a_case_whose_save_was_committed_and_not_answered_is_known_to_the_worker(
    messages_api: ScriptedMessagesAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages_api.script(say(DEPLOY, tool_call("look", {"thing": "a"})))
    write, lost = saving.write, []

    def lose_the_answer(*args: Any, **kwargs: Any) -> Any:
        asked = write(*args, **kwargs)
        if asked and not lost:
            lost.append(True)
            raise OperationalError("the connection is gone")
        return asked

    monkeypatch.setattr(saving, "write", lose_the_answer)
    with registered_agent(), at_save(2, lambda: runs.cancel("r")):
        start_run("worldly", "Go.", run_id="r")
        tasks.advance("r")

    assert lost
    assert run().status == "cancelled"
    assert models.Approval.objects.get().status == "void"


def test_a_turn_of_very_many_calls_is_stored(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say(*[tool_call("look", {"thing": str(i)}) for i in range(150)]), say("Done."))
    with registered_agent():
        start_run("worldly", "Go.", run_id="r")
        tasks.advance("r")

    assert run().status == "done"
    assert models.ToolCall.objects.filter(status="done").count() == 150
