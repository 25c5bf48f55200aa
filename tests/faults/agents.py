"""The campaign's shop agent, whose tools leave a trace outside the database. Found by autodiscovery."""

from __future__ import annotations

import os
import sys
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.db.models import F

from anvil_django import Agent, ToolContext, register, tool

from . import effect_log

READ_TIMEOUT = 1.5
"""Seconds without a byte after which a model call is given up; a stall is longer."""
AGENT_NAME = "fault_shop"

if "qcluster" in sys.argv or "anvil_worker" in sys.argv:
    # Before the workers are forked, so that none of them takes the time for it again.
    import anthropic.resources.messages  # noqa: F401


def client() -> Any:
    """A client of the campaign's scripted API."""
    import anthropic

    from anvil_django.testing.loopback import loopback_http

    return anthropic.Anthropic(
        base_url=os.environ["ANVIL_FAULTS_API"],
        api_key="test-key",
        max_retries=0,
        timeout=READ_TIMEOUT,
        http_client=loopback_http(),
    )


def note(event: str, name: str, tool_name: str, kind: str, ctx: ToolContext) -> None:
    path = Path(os.environ["ANVIL_FAULTS_FOLDER"]) / "effects.jsonl"
    effect_log.write(path, event, effect=name, tool=tool_name, kind=kind, ctx=ctx)


def act(name: str, tool_name: str, kind: str, nap: float, ctx: ToolContext) -> str:
    """The effect is the line ``ended``; kills land in the nap before it and in that after it."""
    note("began", name, tool_name, kind, ctx)
    time.sleep(nap * 0.7)
    note("ended", name, tool_name, kind, ctx)
    time.sleep(nap * 0.3)
    return f"{name} is done"


@tool
def look(name: str, nap: float, ctx: ToolContext) -> str:
    """Look an order up; may be slow."""
    from example_project.shop.models import Order

    Order.objects.get(number=ctx.run_id)
    return act(name, "look", "read", nap, ctx)


@tool(side_effect=True)
def charge(name: str, nap: float, ctx: ToolContext) -> str:
    """Charge a card at a provider that keeps no keys: it cannot be taken back."""
    return act(name, "charge", "external", nap, ctx)


@tool(side_effect=True, requires_approval=True)
def charge_asking(name: str, nap: float, ctx: ToolContext) -> str:
    """The same, once a person has allowed it."""
    return act(name, "charge_asking", "external", nap, ctx)


@tool(side_effect=True, on_interrupt="retry")
def post(name: str, nap: float, ctx: ToolContext) -> str:
    """Send a parcel; the receiver does nothing for a key it has seen."""
    return act(name, "post", "idempotent", nap, ctx)


@tool(side_effect=True, atomic=True)
def refund(name: str, order: str, amount: Decimal, nap: float, ctx: ToolContext) -> str:
    """Write a refund into the site's own database."""
    return _refund("refund", name, order, amount, nap, ctx)


@tool(side_effect=True, atomic=True, requires_approval=True)
def refund_asking(name: str, order: str, amount: Decimal, nap: float, ctx: ToolContext) -> str:
    """The same, once a person has allowed it."""
    return _refund("refund_asking", name, order, amount, nap, ctx)


def _refund(tool_name: str, name: str, order: str, amount: Decimal, nap: float, ctx: ToolContext) -> str:
    from example_project.shop.models import Order, Refund

    note("began", name, tool_name, "atomic", ctx)
    Order.objects.filter(number=order).update(refunded_amount=F("refunded_amount") + amount)
    Refund.objects.create(
        order=Order.objects.get(number=order),
        amount=amount,
        reason=name,
        idempotency_key=ctx.idempotency_key,
    )
    time.sleep(nap)
    note("ended", name, tool_name, "atomic", ctx)
    return f"{name} is done"


@tool(side_effect=True)
def fail(name: str, nap: float, ctx: ToolContext) -> str:
    """A tool that always fails, before it has done anything."""
    note("began", name, "fail", "external", ctx)
    time.sleep(nap)
    raise ValueError(f"{name} cannot be done.")


register(
    Agent(
        name=AGENT_NAME,
        model="claude-sonnet-5-5",
        system="You are the agent of a shop in which things break.",
        tools=[look, charge, charge_asking, post, refund, refund_asking, fail],
        max_iterations=30,
    )
)
