"""Agents whose calls wait for people: for anybody, for a group, for two people, in doubt, or for money."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

from anvil_django import Agent, ToolContext, register, runs, start_run, tasks, tool
from anvil_django.agents import unregister
from anvil_django.models import Approval
from anvil_django.testing import ScriptedMessagesAPI, Turn, say, tool_call

done: list[str] = []


class Died(BaseException):
    """The worker died in a tool."""


@tool
def look() -> str:
    """Look."""
    return "fine"


@tool(side_effect=True, requires_approval=True)
def deploy(version: str) -> str:
    """Deploy a version; everybody who may decide may decide this."""
    done.append(f"deployed {version}")
    return f"deployed {version}"


@tool(side_effect=True, requires_approval=True, reviewers="Tellers")
def wire(account: str, amount: int) -> str:
    """Wire money; for tellers."""
    done.append(f"wired {amount} to {account}")
    return "wired"


@tool(
    side_effect=True,
    requires_approval=True,
    reviewers="Tellers",
    approvals=2,
    escalate_to="Managers",
    escalate_after=3600,
    approval_ttl=7200,
)
def close(account: str) -> str:
    """Close an account; takes two tellers, and managers after an hour."""
    done.append(f"closed {account}")
    return "closed"


@tool(side_effect=True, requires_approval=True, reviewers="anvil_django.control_run")
def audit(account: str) -> str:
    """Audit an account; for people with a permission."""
    return "audited"


@tool(side_effect=True, reviewers="Tellers")
def mail(to: str, ctx: ToolContext) -> str:
    """Send a mail; the first attempt takes the worker down."""
    if ctx.attempt == 1:
        raise Died
    done.append(f"mailed {to}")
    return f"sent to {to}"


ARGUMENTS: dict[str, dict[str, Any]] = {
    "deploy": {"version": "1.2"},
    "wire": {"account": "DE-1", "amount": 50},
    "close": {"account": "DE-1"},
    "audit": {"account": "DE-1"},
    "mail": {"to": "ann"},
}


@contextmanager
def bank() -> Iterator[None]:
    """The agents "teller", and "spender" who soon spends more than it may; known while the block runs."""
    done.clear()
    model = "claude-sonnet-5-5"
    register(Agent(name="teller", model=model, tools=[deploy, wire, close, audit, mail]))
    register(
        Agent(name="spender", model=model, tools=[look], on_limit="ask", max_cost_usd=Decimal("0.0000001"))
    )
    yield
    unregister("teller")
    unregister("spender")


def ask(
    api: ScriptedMessagesAPI,
    name: str = "deploy",
    arguments: dict[str, Any] | None = None,
    *,
    user: Any = None,
    run_id: str = "r1",
) -> Approval:
    """Start a run that calls one tool, and advance it until a person is asked."""
    call = tool_call(name, ARGUMENTS[name] if arguments is None else arguments, id=f"toolu_{run_id}")
    start(api, say(call), "teller", user, run_id)
    return Approval.objects.get(run__run_id=run_id)


def ask_for_money(api: ScriptedMessagesAPI, *, user: Any = None, run_id: str = "r1") -> Approval:
    """Start a run that spends more than it may, and advance it until a person is asked."""
    start(api, say(tool_call("look")), "spender", user, run_id)
    return Approval.objects.get(run__run_id=run_id)


def start(api: ScriptedMessagesAPI, turn: Turn, agent: str, user: Any, run_id: str) -> None:
    """Start a run and advance it as far as it goes; a worker that dies is replaced."""
    api.script(turn, match=f"[{run_id}]")
    start_run(agent, f"Please do it. [{run_id}]", user=user, run_id=run_id)
    try:
        tasks.advance(run_id)
    except Died:
        assert len(list(runs.recover(run_id=run_id))) == 1
        tasks.advance(run_id)


def go_on(api: ScriptedMessagesAPI, approval: Approval) -> str:
    """Advance a decided run to its end; what its agent was told about the call."""
    api.script(say("Understood."), match=f"[{approval.run.run_id}]")
    assert tasks.advance(approval.run.run_id) == "done"
    approval.call.refresh_from_db()
    return str(approval.call.result)
