"""A small world outside the database, and an agent that acts on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission

from anvil_django import Agent, ApprovalRequiredError, ToolContext, register, tool
from anvil_django.agents import unregister
from example_project.shop.models import Order, Refund


@dataclass
class World:
    """What tools did, in order; no rollback reaches it."""

    effects: list[tuple[str, str]] = field(default_factory=list)
    looked: list[str] = field(default_factory=list)

    def times(self, key: str) -> int:
        return sum(1 for _, k in self.effects if k == key)


world = World()


@tool
def look(thing: str) -> dict[str, str]:
    """Look at a thing."""
    world.looked.append(thing)
    return {"thing": thing, "state": "fine"}


@tool(side_effect=True)
def mail(to: str, ctx: ToolContext) -> str:
    """Send a mail."""
    world.effects.append((f"mail {to}", ctx.idempotency_key))
    return f"sent to {to}"


@tool(side_effect=True, on_interrupt="retry")
def charge(amount: int, ctx: ToolContext) -> str:
    """Charge a card; the provider knows the idempotency key."""
    if world.times(ctx.idempotency_key) == 0:
        world.effects.append((f"charge {amount}", ctx.idempotency_key))
    return f"charged {amount}"


@tool(side_effect=True, on_interrupt="fail")
def fax(to: str, ctx: ToolContext) -> str:
    """Send a fax."""
    world.effects.append((f"fax {to}", ctx.idempotency_key))
    return f"faxed {to}"


@tool(side_effect=True, atomic=True)
def refund(number: str, amount: Decimal, ctx: ToolContext) -> str:
    """Refund an order in our own database; large ones need a person."""
    if amount > 100 and not ctx.approved:
        raise ApprovalRequiredError({"order": number, "amount": str(amount)})
    order = Order.objects.get(number=number)
    Refund.objects.create(order=order, amount=amount, reason="test", idempotency_key=ctx.idempotency_key)
    return f"refunded {amount}"


@tool(side_effect=True, requires_approval=True)
def deploy(version: str, ctx: ToolContext) -> str:
    """Deploy a version."""
    world.effects.append((f"deploy {version}", ctx.idempotency_key))
    return f"deployed {version}"


@tool
def broken(why: str) -> str:
    """Always fails."""
    raise RuntimeError(why)


TOOLS = [look, mail, charge, fax, refund, deploy, broken]


@contextmanager
def registered_agent(name: str = "worldly", **changes: Any) -> Iterator[Agent]:
    """An agent with all the tools, known while the block runs; the world is empty at its start."""
    values: dict[str, Any] = {"model": "claude-sonnet-5-5", "system": "Be good.", "tools": TOOLS}
    world.effects.clear()
    world.looked.clear()
    agent = register(Agent(name=name, **{**values, **changes}))
    try:
        yield agent
    finally:
        unregister(name)


def reviewer(username: str = "rita") -> Any:
    """A person who may decide approvals."""
    user, created = get_user_model().objects.get_or_create(username=username, first_name="Rita")
    if created:
        user.user_permissions.add(Permission.objects.get(codename="decide_approval"))
    return user


def order(number: str = "A-1", amount: str = "500.00") -> Order:
    """An order to refund."""
    return Order.objects.create(
        number=number, customer_email="c@example.com", item="lamp", amount=Decimal(amount)
    )


def until(condition: Callable[[], bool], *, turns: int = 50) -> None:
    """Assert that ``condition`` becomes true within so many repetitions of what it does."""
    assert any(condition() for _ in range(turns))
