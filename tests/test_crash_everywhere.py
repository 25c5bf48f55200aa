"""``crash_everywhere`` finds what is wrong with an agent's tools, and passes what is right."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from django.core import mail
from django.test import override_settings

from anvil_django import ToolContext, approvals, tool
from anvil_django.models import Approval, Run
from anvil_django.testing import Scenario, ScriptedMessagesAPI, crash_everywhere, fault, say, tool_call
from example_project.shop.models import SentEmail

from .waiting import person
from .world import registered_agent, reviewer, world

pytestmark = pytest.mark.django_db


def effects() -> list[str]:
    return [name for name, _ in world.effects]


SENDING = Scenario(
    agent="postman",
    input="Write to Ann.",
    turns=[say(tool_call("send", {"to": "ann"})), say("Sent.")],
    effects=effects,
    reset=world.effects.clear,
)


@contextmanager
def postman(send: Callable[..., Any], **options: Any) -> Iterator[None]:
    """An agent whose one tool is ``send``."""
    with registered_agent("postman", tools=[tool(name="send", **options)(send)]):
        yield


def send(to: str, ctx: ToolContext) -> str:
    """Send a mail."""
    world.effects.append((f"mail {to}", ctx.idempotency_key))
    return f"sent to {to}"


def store(to: str, ctx: ToolContext) -> str:
    """Send a mail by a row."""
    SentEmail.objects.create(to=to, subject="s", body="b", idempotency_key=ctx.idempotency_key)
    return f"sent to {to}"


def test_a_tool_that_hides_its_side_effect_is_found_out(messages_api: ScriptedMessagesAPI) -> None:
    with postman(send), pytest.raises(AssertionError) as failure:
        crash_everywhere(SENDING, messages_api)

    told = str(failure.value)
    assert "crashes changed what came of the run" in told
    assert "a crash at tool.returned#1:\n    - an effect took place twice and not once: 'mail ann'" in told
    assert 'crash_everywhere(..., only="tool.returned#1")' in told
    assert "tool.before#1" not in told


def test_a_tool_that_is_repeated_without_its_key_is_found_out(messages_api: ScriptedMessagesAPI) -> None:
    with (
        postman(send, side_effect=True, on_interrupt="retry"),
        pytest.raises(AssertionError, match="took place twice and not once"),
    ):
        crash_everywhere(SENDING, messages_api, only="tool.returned")


def test_a_person_who_answers_wrongly_is_found_out(messages_api: ScriptedMessagesAPI) -> None:
    def settle(approval: Approval) -> None:
        approvals.settle(approval, user=reviewer(), verdict="happened", result="sent to ann")

    with (
        postman(send, side_effect=True),
        pytest.raises(AssertionError, match="took place never and not once"),
    ):
        crash_everywhere(replace(SENDING, settle=settle), messages_api, only="tool.before")


def test_a_result_that_depends_on_the_attempt_is_found_out(messages_api: ScriptedMessagesAPI) -> None:
    def count(to: str) -> str:
        """Count how often it is asked."""
        world.looked.append(to)
        return f"asked {len(world.looked)} times"

    scenario = replace(SENDING, reset=world.looked.clear)
    with (
        postman(count),
        pytest.raises(AssertionError, match=r"messages\.2 is not what it was\. .*asked 2 times"),
    ):
        crash_everywhere(scenario, messages_api, only="tool.returned")


def test_a_run_that_takes_another_way_each_time_is_found_out(messages_api: ScriptedMessagesAPI) -> None:
    asked: list[Any] = []

    def now_and_then(arguments: Any, ctx: ToolContext) -> bool:
        asked.append(arguments)
        return len(asked) < 2

    with (
        postman(send, side_effect=True, requires_approval=now_and_then),
        pytest.raises(AssertionError, match=r"not take the same way twice.* came to \S+ instead of \S+"),
    ):
        crash_everywhere(SENDING, messages_api)


def test_a_world_that_is_not_reset_is_found_out(messages_api: ScriptedMessagesAPI) -> None:
    with (
        postman(send, side_effect=True),
        pytest.raises(AssertionError, match=r"give Scenario a reset.* \[\], and now \[\"'mail ann'\"\]"),
    ):
        crash_everywhere(replace(SENDING, reset=None), messages_api)


def test_a_turn_that_the_script_lacks_is_found_out() -> None:
    with (
        postman(send, side_effect=True),
        pytest.raises(AssertionError, match=r"Without any crash: unexpected request 2"),
        ScriptedMessagesAPI() as api,
        api.client() as client,
        override_settings(ANVIL={"CLIENT": lambda: client}),
    ):
        crash_everywhere(replace(SENDING, turns=SENDING.turns[:1]), api)


def test_a_side_effect_that_says_so_passes_and_is_settled_by_what_happened(
    messages_api: ScriptedMessagesAPI,
) -> None:
    with postman(send, side_effect=True):
        report = crash_everywhere(SENDING, messages_api)

    assert set(report.in_doubt) == {"save.done#1", "tool.before#1", "tool.returned#1", "save.before#2"}
    assert not report.failures


def test_a_call_that_is_given_up_may_be_missing_but_not_doubled(messages_api: ScriptedMessagesAPI) -> None:
    with postman(send, side_effect=True, on_interrupt="fail"):
        report = crash_everywhere(SENDING, messages_api)

    assert not report.failures
    assert not report.in_doubt


def test_effects_in_the_database_are_rolled_back_between_rounds(messages_api: ScriptedMessagesAPI) -> None:
    scenario = replace(SENDING, effects=lambda: SentEmail.objects.values_list("to"), reset=None)
    with postman(store, side_effect=True):
        report = crash_everywhere(scenario, messages_api)

    assert report.undisturbed.effects == ["('ann',)"]
    assert not SentEmail.objects.exists()
    assert not Run.objects.exists()


@pytest.mark.django_db(transaction=True)
def test_a_test_that_commits_resets_its_own_effects(messages_api: ScriptedMessagesAPI) -> None:
    scenario = replace(
        SENDING,
        effects=lambda: SentEmail.objects.values_list("to"),
        reset=lambda: SentEmail.objects.all().delete(),
    )
    with postman(store, side_effect=True, atomic=True):
        report = crash_everywhere(scenario, messages_api)

    assert "atomic.before_commit#1" in report.boundaries
    assert not report.in_doubt
    assert SentEmail.objects.count() == 1, "the last round's"
    assert not Run.objects.exists()


def test_faults_of_the_model_come_again_in_each_round(messages_api: ScriptedMessagesAPI) -> None:
    turns = [say(tool_call("send", {"to": "ann"})).after(fault.overloaded()), say("Sent.")]
    with postman(send, side_effect=True):
        report = crash_everywhere(replace(SENDING, turns=turns), messages_api)

    assert report.boundaries.count("model.before#3") == 1, "two answers and a failure"
    assert "run.before_ring#2" in report.boundaries, "the run is queued again after the failure"
    # A fixed clock leaves nothing behind that would ring in the middle of another test.
    assert not [thread for thread in threading.enumerate() if isinstance(thread, threading.Timer)]


def test_the_people_of_the_scenario_decide(messages_api: ScriptedMessagesAPI) -> None:
    def decide(approval: Approval) -> None:
        approvals.reject(approval, user=reviewer(), reason="Not Ann.")

    with postman(send, side_effect=True, requires_approval=True):
        report = crash_everywhere(replace(SENDING, decide=decide, user=person("paul")), messages_api)

    assert report.undisturbed.effects == []
    assert "Not Ann." in str(report.undisturbed.messages)


def test_as_many_people_as_it_takes_say_yes(messages_api: ScriptedMessagesAPI) -> None:
    with postman(send, side_effect=True, requires_approval=True, approvals=2, reviewers="Tellers"):
        report = crash_everywhere(SENDING, messages_api, only="run.claimed")

    assert report.undisturbed.effects == ["'mail ann'"]


def test_one_boundary_alone_can_be_asked_for(messages_api: ScriptedMessagesAPI) -> None:
    with postman(send, side_effect=True):
        with pytest.raises(ValueError, match=r"does not come to tool\.returned#2; it comes to 15 boundaries"):
            crash_everywhere(SENDING, messages_api, only="tool.returned#2")
        report = crash_everywhere(replace(SENDING, turns=()), messages_api, only="tool.returned#1")

    assert report.in_doubt == {"tool.returned#1": ["send"]}


def test_each_boundary_is_a_result_of_its_own_with_subtests(messages_api: ScriptedMessagesAPI) -> None:
    results: dict[str, str] = {}

    class Subtests:
        @contextmanager
        def test(self, name: str) -> Iterator[None]:
            try:
                yield
                results[name] = ""
            except AssertionError as failure:
                results[name] = str(failure)

    with postman(send):
        report = crash_everywhere(SENDING, messages_api, subtests=Subtests())

    assert list(results) == report.boundaries
    assert {name for name, told in results.items() if told} == set(report.failures)
    assert re.match("a crash at tool.returned#1:\n  - an effect took place", results["tool.returned#1"])


def test_what_is_in_memory_can_be_an_effect(messages_api: ScriptedMessagesAPI) -> None:
    def really_send(to: str) -> str:
        """Send a mail."""
        mail.send_mail("s", "b", None, [to])
        return "sent"

    scenario = replace(
        SENDING,
        effects=lambda: [(message.to, message.body) for message in mail.outbox],
        reset=lambda: mail.outbox.clear(),  # Django's runner makes a new list for each test.
    )
    with postman(really_send, side_effect=True):
        assert not crash_everywhere(scenario, messages_api, only="tool.returned").failures
