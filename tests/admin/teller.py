"""People, tools and requests of the admin's tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.contrib.messages import get_messages
from django.test import Client

from anvil_django import ApprovalRequiredError, ToolContext, tasks, tool
from anvil_django.models import Approval
from anvil_django.testing import ScriptedMessagesAPI, say

APPROVALS = "/admin/anvil_django/approval/"
RUNS = "/admin/anvil_django/run/"
HOSTILE = "<script>alert('x')</script><img src=x onerror=alert(1)>"

done: list[str] = []


class Died(BaseException):
    """The worker's process is gone in the middle of a tool."""


@tool(side_effect=True, requires_approval=True)
def wire(account: str, amount: int, ctx: ToolContext) -> str:
    """Wire money."""
    done.append(f"wired {amount} to {account}")
    return f"wired {amount}"


@tool(side_effect=True)
def gift(to: str, ctx: ToolContext) -> str:
    """Give something away, if a person says so."""
    if not ctx.approved:
        raise ApprovalRequiredError({"for": to, "note": HOSTILE})
    return "given"


@tool(side_effect=True)
def mail(to: str, ctx: ToolContext) -> str:
    """Send a mail; the first attempt takes the worker down."""
    if ctx.attempt == 1:
        raise Died
    done.append(f"mailed {to}")
    return f"sent to {to}"


@tool(side_effect=True, requires_approval=True, approvals=2)
def transfer(account: str, amount: int) -> str:
    """Move money when two people say so."""
    done.append(f"moved {amount} to {account}")
    return f"moved {amount}"


@tool(side_effect=True, requires_approval=True, reviewers="treasury")
def borrow(account: str, amount: int) -> str:
    """Borrow money; the treasury decides."""
    done.append(f"borrowed {amount}")
    return f"borrowed {amount}"


TOOLS = [wire, gift, mail, transfer, borrow]
Ask = Callable[..., Approval]


def person(name: str, *permissions: str, is_staff: bool = True, group: str = "") -> Any:
    user = get_user_model().objects.create(username=name, is_staff=is_staff)
    if group:
        user.groups.add(Group.objects.get_or_create(name=group)[0])
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return user


def logged_in(user: Any) -> Client:
    client = Client()
    client.force_login(user)
    return client


def goes_on(messages_api: ScriptedMessagesAPI, approval: Approval) -> str:
    """What the agent was told about the call, once the run has ended."""
    messages_api.script(say("Understood."), match=f"[{approval.run.run_id}]")
    assert tasks.advance(approval.run.run_id) == "done"
    approval.call.refresh_from_db()
    return str(approval.call.result)


def post(client: Client, url: str, action: str, *rows: Any, **data: Any) -> Any:
    client.cookies.pop("messages", None)  # what was told before and not shown yet
    return client.post(url, {"action": action, ACTION_CHECKBOX_NAME: [row.pk for row in rows], **data})


def confirm(client: Client, url: str, action: str, *rows: Any, **data: Any) -> Any:
    return post(client, url, action, *rows, confirmed="yes", **data)


def told(response: Any) -> list[str]:
    return [str(message) for message in get_messages(response.wsgi_request)]


def status(row: Any) -> str:
    row.refresh_from_db()
    return str(row.status)
