"""Approvals where the user model has a UUID as key and no ``username``."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.test import Client

from anvil_django import Agent, approvals, register, start_run, tasks, tool
from anvil_django.agents import unregister
from anvil_django.errors import NotAllowedError
from anvil_django.models import Approval, Decision
from anvil_django.testing import ScriptedMessagesAPI, say, tool_call

pytestmark = pytest.mark.django_db

APPROVALS = "/admin/anvil_django/approval/"
Ask = Callable[..., Approval]


@tool(side_effect=True, requires_approval=True)
def wire(amount: int) -> str:
    """Wire money."""
    return f"wired {amount}"


@tool(side_effect=True, requires_approval=True, reviewers="treasury")
def borrow(amount: int) -> str:
    """Borrow money."""
    return f"borrowed {amount}"


def person(name: str, *permissions: str) -> Any:
    user = get_user_model().objects.create_user(f"{name}@example.com", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return user


def logged_in(user: Any) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def rita() -> Any:
    return person("rita", "decide_approval")


@pytest.fixture
def ask(messages_api: ScriptedMessagesAPI) -> Iterator[Ask]:
    register(Agent(name="teller", model="claude-sonnet-5-5", system="Be good.", tools=[wire, borrow]))

    def case(user: Any = None, name: str = "wire") -> Approval:
        messages_api.script(say(tool_call(name, {"amount": 50})))
        run = start_run("teller", "Pay.", user=user)
        tasks.advance(run.run_id)
        return Approval.objects.get(run=run)

    yield case
    unregister("teller")


def test_the_model_has_a_uuid_and_no_username(rita: Any) -> None:
    assert isinstance(rita.pk, uuid.UUID)
    assert not hasattr(rita, "username")


def test_a_case_is_listed_with_the_name_of_the_requester(ask: Ask, rita: Any) -> None:
    approval = ask(person("carl"))
    client = logged_in(rita)
    for query in ("", "for=me", "claim=nobody", "q=carl"):
        assert "carl@example.com" in client.get(f"{APPROVALS}?{query}").text
    assert "carl@example.com" in client.get(f"{APPROVALS}{approval.pk}/change/").text
    assert "1 approval waits for your decision" in client.get("/admin/").text


def test_a_decision_names_the_person(ask: Ask, rita: Any, messages_api: ScriptedMessagesAPI) -> None:
    approval = ask(person("carl"))
    client = logged_in(rita)
    client.post(f"{APPROVALS}{approval.pk}/decide/approve/", {"confirmed": "yes", "reason": "It is due."})
    decision = Decision.objects.get()
    assert (decision.user, decision.reviewer, decision.reviewer_key) == (
        rita,
        "rita@example.com",
        str(rita.pk),
    )
    assert LogEntry.objects.get().user == rita
    messages_api.script(say("Paid."))
    assert tasks.advance(approval.run.run_id) == "done"
    rita.delete()
    decision.refresh_from_db()
    assert (decision.user, decision.reviewer) == (None, "rita@example.com")
    page = logged_in(person("vera", "view_approval")).get(f"{APPROVALS}{approval.pk}/change/")
    assert "Approved by rita@example.com" in page.text


def test_several_cases_are_rejected_from_the_list(ask: Ask, rita: Any) -> None:
    approval = ask()
    sent = {"action": "reject", "_selected_action": approval.pk, "confirmed": "yes", "reason": "No."}
    logged_in(rita).post(APPROVALS, sent)
    approval.refresh_from_db()
    assert approval.status == "rejected"


def test_whoever_started_the_run_cannot_decide(ask: Ask) -> None:
    carl = person("carl", "decide_approval")
    approval = ask(carl)
    with pytest.raises(NotAllowedError, match="You started this run"):
        approvals.approve(approval, user=carl)
    client = logged_in(carl)
    assert "You started this run" in client.get(f"{APPROVALS}{approval.pk}/change/").text
    client.post(f"{APPROVALS}{approval.pk}/decide/approve/", {"confirmed": "yes", "reason": ""})
    assert not Decision.objects.exists()


def test_only_the_reviewers_of_a_tool_decide_about_it(ask: Ask, rita: Any) -> None:
    approval = ask(name="borrow")
    client = logged_in(rita)
    url = f"{APPROVALS}{approval.pk}/decide/approve/"
    client.post(url, {"confirmed": "yes", "reason": ""})
    assert not Decision.objects.exists()
    rita.groups.add(Group.objects.create(name="treasury"))
    client.post(url, {"confirmed": "yes", "reason": ""})
    assert Decision.objects.get().user == rita


def test_a_claim_is_the_persons_own(ask: Ask, rita: Any) -> None:
    approval = ask()
    client, other = logged_in(rita), logged_in(person("otto", "decide_approval"))
    client.post(f"{APPROVALS}{approval.pk}/claim/")
    approval.refresh_from_db()
    assert (approval.claimed_by, approval.claimed_name) == (rita, "rita@example.com")
    assert "It is claimed by rita@example.com" in other.get(f"{APPROVALS}{approval.pk}/change/").text
    other.post(f"{APPROVALS}{approval.pk}/release/")
    approval.refresh_from_db()
    assert approval.claimed_by == rita
    assert "rita@example.com" in client.get(f"{APPROVALS}?claim=mine").text
    client.post(f"{APPROVALS}{approval.pk}/release/")
    approval.refresh_from_db()
    assert approval.claimed_by is None
