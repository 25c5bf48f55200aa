"""Rows of runs as they would be after some time, made by hand: for what is counted and measured."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import count
from typing import Any

from django.utils.crypto import get_random_string

from anvil_django.models import AgentVersion, Approval, Run, Slice, ToolCall

_numbers = count(1)


def run(agent: str, created_at: datetime, status: str = "done", **columns: Any) -> Run:
    """A run of an agent; one that is done ended by itself, unless ``stop_reason`` says otherwise."""
    needed = {"done": {"stop_reason": "end_turn"}, "failed": {"error_code": "test"}}.get(status, {})
    version, _made = AgentVersion.objects.get_or_create(
        agent=agent, defaults={"digest": get_random_string(64), "prefix": "{}"}
    )
    values = {"run_id": f"past-{next(_numbers)}", "request_digest": "0" * 64, **needed, **columns}
    made = Run.objects.create(agent=agent, version=version, status=status, **values)
    # When a row is inserted it says so itself.
    Run.objects.filter(pk=made.pk).update(created_at=created_at)
    made.created_at = created_at
    return made


def call(
    of: Run, name: str, asked_at: datetime, seconds: float, *, begun: float | None = None, **columns: Any
) -> ToolCall:
    """A call that has ended.

    Args:
        of: Its run.
        asked_at: When the model's answer was stored.
        seconds: After which its result was.
        begun: After how many seconds its start was stored; None: it was not, as of read-only tools.
    """
    values = {"seq": 1, "index": 0, "outcome": "returned", "effect": "none" if begun is None else "external"}
    return ToolCall.objects.create(
        run=of,
        name=name,
        call_id=f"call-{next(_numbers)}",
        input="{}",
        status="done",
        result='"done"',
        created_at=asked_at,
        started_at=None if begun is None else asked_at + timedelta(seconds=begun),
        finished_at=asked_at + timedelta(seconds=seconds),
        **(values | columns),
    )


def case(of: Run, tool: str, asked_at: datetime, seconds: float | None, **columns: Any) -> Approval:
    """A case that was approved after some seconds; None: it waits."""
    waits = seconds is None
    about = ToolCall.objects.create(
        run=of,
        name=tool,
        call_id=f"call-{next(_numbers)}",
        input="{}",
        status="waiting",
        seq=1,
        index=0,
        created_at=asked_at,
    )
    values = {"kind": "tool", "status": "pending" if waits else "approved"} | columns
    return Approval.objects.create(
        run=of,
        call=about,
        agent=of.agent,
        tool=tool,
        open_key=str(about.pk) if values["status"] == "pending" else None,
        digest="0" * 64,
        requested_at=asked_at,
        decided_at=None if seconds is None else asked_at + timedelta(seconds=seconds),
        **values,
    )


def stretch(of: Run, token: int, due: datetime, waited: float, **columns: Any) -> Slice:
    """A worker's stretch on a run that was due at a time and waited for it for some seconds."""
    claimed = due + timedelta(seconds=waited)
    values = {"ended_at": claimed + timedelta(seconds=1), "ended_as": "done", "owner": "host:1"} | columns
    return Slice.objects.create(run=of, token=token, waited_since=due, claimed_at=claimed, **values)
