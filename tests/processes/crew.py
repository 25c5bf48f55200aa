"""An agent whose tools leave a trace that no rollback and no kill can take back.

Each tool appends a line to a file when it begins and when it has ended, and waits in between for as long as
the test holds it, so that a kill lands exactly inside.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from anvil_django import Agent, ToolContext, tool
from example_project.shop.models import SentEmail

HOLD_LIMIT = 60.0
"""Seconds after which a held tool goes on, so that nothing is left behind by a test that broke off."""


def client() -> Any:
    """A client of the test's own scripted API; the suite's settings keep the usual variables away."""
    import anthropic

    return anthropic.Anthropic(
        base_url=os.environ["ANVIL_TEST_API_URL"], api_key="test-key", max_retries=0, timeout=30.0
    )


def workspace() -> Path:
    """The folder that the test and its processes share."""
    return Path(os.environ["ANVIL_TEST_WORKSPACE"])


def note(event: str, name: str, ctx: ToolContext) -> None:
    """Append one line, whole or not at all."""
    line = {"event": event, "name": name, "pid": os.getpid(), "key": ctx.idempotency_key, "run": ctx.run_id}
    with open(workspace() / "trace", "ab", buffering=0) as trace:
        trace.write(json.dumps(line).encode() + b"\n")


def wait_while_held(name: str) -> None:
    """Stay here while the test holds ``name``."""
    deadline = time.monotonic() + HOLD_LIMIT
    while (workspace() / f"hold-{name}").exists() and time.monotonic() < deadline:
        time.sleep(0.01)


def perform(name: str, ctx: ToolContext) -> str:
    note("began", name, ctx)
    wait_while_held(name)
    note("ended", name, ctx)
    return f"{name} is done"


@tool
def look(name: str, ctx: ToolContext) -> str:
    """Look at something."""
    return perform(name, ctx)


@tool(side_effect=True)
def act(name: str, ctx: ToolContext) -> str:
    """Change something outside; it cannot be taken back."""
    return perform(name, ctx)


@tool(side_effect=True, atomic=True)
def book(name: str, ctx: ToolContext) -> str:
    """Write a row into the site's own database."""
    SentEmail.objects.create(
        to="c@example.com", subject=name, body="booked", idempotency_key=ctx.idempotency_key
    )
    return perform(name, ctx)


@tool(side_effect=True, requires_approval=True)
def ask_first(name: str, ctx: ToolContext) -> str:
    """Change something that a person has to allow."""
    return perform(name, ctx)


@tool(side_effect=True, on_interrupt="retry")
def explode(name: str, ctx: ToolContext) -> str:
    """Take the worker down."""
    note("began", name, ctx)
    os._exit(9)


AGENT = Agent(
    name="crew",
    model="claude-sonnet-5-5",
    system="Work carefully.",
    tools=[look, act, book, ask_first, explode],
)
