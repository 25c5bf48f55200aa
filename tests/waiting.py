"""A turn that waits for people, the people who decide, and what the model is told in the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission

from anvil_django import Agent, ToolContext, start_run, tasks, tool
from anvil_django.clock import FixedClock
from anvil_django.models import Approval, Run, ToolCall
from anvil_django.stores import DjangoStateStore
from anvil_django.testing import Kill, ScriptedMessagesAPI, kill_at, say, tool_call

from .driving import results
from .world import registered_agent, world

UNKNOWN = (
    "This call was started and then interrupted. Whether it took effect is unknown. "
    "It was not run again; do not assume either outcome."
)


@tool(side_effect=True, requires_approval=True)
def pay(to: str, amount: int, ctx: ToolContext) -> str:
    """Pay somebody."""
    return paid(to, amount, ctx)


@tool(side_effect=True, requires_approval=True, approvals=2)
def pay_by_two(to: str, amount: int, ctx: ToolContext) -> str:
    """Pay somebody, if two people agree."""
    return paid(to, amount, ctx)


@tool
def look(thing: str) -> str:
    """Look at a thing."""
    world.looked.append(thing)
    return f"{thing} is fine"


@tool(side_effect=True)
def free(to: str, amount: int, ctx: ToolContext) -> str:
    """Pay somebody, and ask nobody."""
    return paid(to, amount, ctx)


def paid(to: str, amount: int, ctx: ToolContext) -> str:
    """What a tool that pays does."""
    world.effects.append((f"{amount} to {to}", ctx.idempotency_key))
    return f"paid {amount} to {to}"


def effects() -> list[str]:
    """Every payment, in order."""
    return [what for what, _ in world.effects]


@contextmanager
def desk(*tools: Any, **changes: Any) -> Iterator[Agent]:
    """An agent named ``desk`` with these tools, known while the block runs."""
    with registered_agent("desk", tools=tools, **changes) as agent:
        yield agent


def paying(
    name: str = "pay", to: str = "ann", amount: Any = 500, id: str = "toolu_1", **more: Any
) -> dict[str, Any]:
    """The model asks for a payment."""
    return tool_call(name, {"to": to, "amount": amount, **more}, id=id)


def ask(
    api: ScriptedMessagesAPI, *calls: dict[str, Any], then: Iterable[Any] = ("Done.",), **options: Any
) -> Run:
    """Start the run ``r``, whose model asks for these calls and says ``then``; advance it."""
    turns = [say(turn) if isinstance(turn, str) else turn for turn in then]
    api.script(say(*calls), *turns)
    return go(**options)


def go(run_id: str = "r", user: Any = None) -> Run:
    """Start a run and advance it until it waits or ends."""
    start_run("desk", f"Go, {run_id}.", run_id=run_id, user=user)
    tasks.advance(run_id)
    return run(run_id)


def crash_at(boundary: str) -> None:
    """Advance the run ``r`` and die at this boundary."""
    with pytest.raises(Kill), kill_at(boundary):
        tasks.advance("r")


def ask_in_doubt(
    api: ScriptedMessagesAPI, clock: FixedClock, *, name: str = "free", then: Any = ("Done.",)
) -> None:
    """Start the run ``r``, and die inside a call that asked nobody: whether it happened is in doubt."""
    api.script(say(paying(name)), *[say(turn) for turn in then])
    start_run("desk", "Go.", run_id="r")
    crash_at("tool.returned")
    clock.advance(61)
    tasks.advance("r")


def on(run_id: str = "r") -> Run:
    """Advance the run, and give it."""
    tasks.advance(run_id)
    return run(run_id)


def run(run_id: str = "r") -> Run:
    """The run as it is stored."""
    return Run.objects.get(run_id=run_id)


def case(call_id: str = "toolu_1", run_id: str = "r") -> Approval:
    """The last question about a call."""
    found = Approval.objects.filter(call__call_id=call_id, run__run_id=run_id)
    return found.select_related("run", "call").latest("id")


def question(run_id: str = "r") -> Approval:
    """The pending question of a run, whatever it is about."""
    return Approval.objects.select_related("run", "call").get(run__run_id=run_id, status="pending")


def call(call_id: str = "toolu_1", run_id: str = "r") -> ToolCall:
    """The stored call."""
    return ToolCall.objects.get(call_id=call_id, run__run_id=run_id)


def told(run_id: str = "r") -> dict[str, str]:
    """What the model is told about each call."""
    checkpoint = DjangoStateStore().load(run_id)
    assert checkpoint is not None
    return {block["tool_use_id"]: _text(block["content"]) for block in results(checkpoint)}


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(block["text"] for block in content)


def person(
    username: str, *codenames: str, groups: Iterable[str] = (), may_decide: bool = True, **fields: Any
) -> Any:
    """Somebody with an account; with the permission to decide unless told otherwise."""
    user = get_user_model().objects.create(username=username, **fields)
    names = [*codenames, "decide_approval"] if may_decide else codenames
    user.user_permissions.set(Permission.objects.filter(codename__in=names))
    for name in groups:
        user.groups.add(Group.objects.get_or_create(name=name)[0])
    return user
