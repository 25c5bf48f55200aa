"""A deploy takes an agent away, renames it or changes what it is, with runs in every state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from django.urls import reverse

from anvil_django import Agent, approvals, exactjson, models, register, runs, start_run, tasks, tool
from anvil_django.agents import unregister
from anvil_django.clock import FixedClock
from anvil_django.conf import get_settings
from anvil_django.errors import NotAllowedError
from anvil_django.testing import Kill, ScriptedMessagesAPI, fault, kill_at, say, tool_call

from .rest import RUNS, client_of, person

pytestmark = pytest.mark.django_db

paid: list[str] = []


@tool(side_effect=True, requires_approval=True, reviewers="Payers")
def pay(to: str) -> str:
    """Pay somebody."""
    paid.append(to)
    return f"paid {to}"


@tool
def look() -> str:
    """Look."""
    return "fine"


def clerk(**options: Any) -> Agent:
    """The agent as a deploy left it."""
    values: dict[str, Any] = {"model": "claude-sonnet-5-5", "system": "Be good.", "tools": [pay]}
    unregister("clerk")
    return register(Agent(name="clerk", **{**values, **options}))


@pytest.fixture(autouse=True)
def registered() -> Iterator[Agent]:
    paid.clear()
    yield clerk()
    unregister("clerk")
    unregister("cashier")


def run() -> models.Run:
    return models.Run.objects.get(run_id="r")


def approve() -> None:
    payer = person("pia", "decide_approval", groups=("Payers",))
    approvals.approve(models.Approval.objects.get(), user=payer)


# The states


def queued(api: ScriptedMessagesAPI) -> Callable[[], str]:
    api.script(say("Done."))
    start_run("clerk", "Go.", run_id="r")
    return lambda: "r"


def approved(api: ScriptedMessagesAPI) -> Callable[[], str]:
    api.script(say(tool_call("pay", {"to": "ann"})), say("Done."))
    start_run("clerk", "Go.", run_id="r")
    tasks.advance("r")

    def go_on() -> str:
        approve()
        return "r"

    return go_on


def failed(api: ScriptedMessagesAPI) -> Callable[[], str]:
    api.script(say("Done.").after(fault.http(400, "invalid_request_error", "No.")))
    start_run("clerk", "Go.", run_id="r")
    assert tasks.advance("r") == "failed"
    return lambda: str(runs.retry("r").run_id)


def paused(api: ScriptedMessagesAPI) -> Callable[[], str]:
    api.script(say("Done."))
    start_run("clerk", "Go.", run_id="r")
    runs.pause("r")
    return lambda: str(runs.resume("r").run_id)


def finished(api: ScriptedMessagesAPI) -> Callable[[], str]:
    api.script(say("Hello."), say("Done."))
    start_run("clerk", "Go.", run_id="r")
    assert tasks.advance("r") == "done"
    return lambda: str(runs.say("r", "And now?").run_id)


def forked(api: ScriptedMessagesAPI) -> Callable[[], str]:
    api.script(say("Hello."), say("Done."))
    start_run("clerk", "Go.", run_id="r")
    assert tasks.advance("r") == "done"
    return lambda: str(runs.fork("r", message="And now?", new_id="fork").run_id)


STATES = [queued, approved, failed, paused, finished, forked]
states = pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)


@states
def test_a_run_whose_agent_is_gone_is_offered_to_others_and_then_waits_for_an_operator(
    messages_api: ScriptedMessagesAPI, clock: FixedClock, state: Any
) -> None:
    go_on = state(messages_api)
    unregister("clerk")
    run_id = go_on()
    asked = len(messages_api.requests)

    for _ in range(get_settings().max_model_attempts - 1):
        assert tasks.advance(run_id) == "queued"
        assert tasks.advance(run_id) == "not taken", "not at once"
        clock.advance(31)
    assert tasks.advance(run_id) == "paused"

    stuck = runs.get(run_id)
    assert (stuck.status, stuck.error_code) == ("paused", "unknown_agent")
    assert stuck.why.startswith("No agent named 'clerk' is registered (registered: ")
    assert stuck.why.endswith("Register it in an agents.py of an installed app. Then resume the run.")
    assert (len(messages_api.requests), paid) == (asked, [])

    clerk()
    runs.resume(run_id)
    assert tasks.advance(run_id) == "done"
    assert (runs.get(run_id).error, paid) == ("", ["ann"] if state is approved else [])


def test_the_reason_is_seen_over_rest_and_in_the_admin(
    messages_api: ScriptedMessagesAPI, clock: FixedClock, admin_client: Any
) -> None:
    queued(messages_api)
    unregister("clerk")
    for _ in range(get_settings().max_model_attempts):
        tasks.advance("r")
        clock.advance(31)

    shown = client_of(person("vera", "view_run")).get(f"{RUNS}r/").json()
    page = admin_client.get(reverse("admin:anvil_django_run_change", args=[run().pk])).content.decode()

    assert (shown["status"], shown["error_code"], shown["why"]) == ("paused", "unknown_agent", run().why)
    assert "Then resume the run." in page
    clerk()
    runs.resume("r")
    assert tasks.advance("r") == "done"


def test_a_worker_that_knows_the_agent_takes_it_from_one_that_does_not(
    messages_api: ScriptedMessagesAPI, clock: FixedClock
) -> None:
    messages_api.script(say(tool_call("look"), tool_call("pay", {"to": "ann"})))
    clerk(tools=[look, pay])
    start_run("clerk", "Go.", run_id="r")
    with pytest.raises(Kill), kill_at("tool.before"):
        tasks.advance("r")
    clock.advance(61)
    assert len(list(runs.recover())) == 1
    unregister("clerk")  # An old worker of a rolling deploy,
    assert tasks.advance("r") == "queued"
    assert (run().error_code, run().why[:23]) == ("unknown_agent", "No agent named 'clerk' ")
    clock.advance(31)
    clerk(tools=[look, pay])  # and a new one.

    assert tasks.advance("r") == "suspended"
    assert (run().error_code, run().attempt, run().why) == ("", 0, "Waits for a person's decision.")


def test_a_run_whose_agent_is_gone_can_be_cancelled(messages_api: ScriptedMessagesAPI) -> None:
    approved(messages_api)
    unregister("clerk")

    assert runs.cancel("r").status == "cancelled"
    assert models.ToolCall.objects.get().outcome == "cancelled"
    # The history stays one that can go on.
    clerk()
    runs.say("r", "Go on.")
    assert tasks.advance("r") == "done"


def test_a_renamed_agent_goes_on_under_its_old_name(
    messages_api: ScriptedMessagesAPI, registered: Agent
) -> None:
    go_on = approved(messages_api)
    unregister("clerk")
    renamed = register(Agent(name="cashier", model="claude-opus-5-5", tools=[pay]))
    register(replace(renamed, name="clerk"))

    assert tasks.advance(go_on()) == "done"
    assert paid == ["ann"]


# What is frozen


@states
def test_the_prefix_is_sent_as_it_was_byte_for_byte(
    messages_api: ScriptedMessagesAPI, clock: FixedClock, state: Any, registered: Agent
) -> None:
    go_on = state(messages_api)
    asked = len(messages_api.requests)
    clerk(model="claude-opus-5-5", system="Be bad.", tools=[pay, look], cache=None, params={"top_k": 3})

    assert tasks.advance(go_on()) == "done"

    assert len(messages_api.requests) > asked
    for request in messages_api.requests[asked:]:
        sent = request.body
        assert (sent["model"], sent["tools"]) == (registered.model, registered.prefix["tools"])
        assert [block["text"] for block in sent["system"]] == ["Be good."]
        assert "top_k" not in sent
    first, *_, last = [exactjson.dumps({**r.body, "messages": []}) for r in messages_api.requests * 2]
    assert first == last


@pytest.mark.parametrize(("now", "sent"), [(50, 100), (300, 300)])
def test_only_room_for_the_answer_may_grow(messages_api: ScriptedMessagesAPI, now: int, sent: int) -> None:
    messages_api.script(say("Done."))
    clerk(max_tokens=100)
    start_run("clerk", "Go.", run_id="r")
    clerk(max_tokens=now)

    assert tasks.advance("r") == "done"
    assert messages_api.requests[0].body["max_tokens"] == sent


# Who decides


def test_an_open_case_whose_group_is_gone_waits_until_there_is_one_again(
    messages_api: ScriptedMessagesAPI, django_user_model: Any
) -> None:
    approved(messages_api)
    clerk(tools=[tool(name="pay", side_effect=True, requires_approval=True)(pay.fn)])
    root = django_user_model.objects.create_superuser("root")

    with pytest.raises(NotAllowedError, match="Payers"):
        approvals.approve(models.Approval.objects.get(), user=root)
    assert run().status == "suspended"

    approve()  # Somebody of a new group of that name.
    assert tasks.advance("r") == "done"
    assert paid == ["ann"]
