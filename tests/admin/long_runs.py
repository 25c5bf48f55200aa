"""Runs of any length, written as rows: what the workers would have left."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from anvil_django import exactjson, runs, start_run
from anvil_django.models import Approval, Message, Run, Slice, ToolCall

BEGAN = datetime(2026, 12, 1, 9, 0, tzinfo=UTC)
USAGE = {"input_tokens": 900, "output_tokens": 60, "cache_read_input_tokens": 4_000}


def at(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def long_run(
    steps: int, *, agent: str = "teller", text: str = "Step", tool: str = "mail", **values: Any
) -> Run:
    """A run of so many iterations with one call each, four seconds apart; the last one ends it."""
    run = start_run(agent, "Pay all bills.", run_id=values.pop("run_id", f"long-{steps}"))
    runs.pause(run.run_id)
    return lengthen(run, steps, text=text, tool=tool, **values)


def lengthen(run: Run, steps: int, *, text: str = "Step", tool: str = "mail", **values: Any) -> Run:
    """Write the iterations of such a run below its row."""
    Message.objects.bulk_create(
        Message(
            run=run,
            seq=1 + 2 * n,
            role="assistant",
            content=exactjson.dumps([{"type": "text", "text": f"{text} {n + 1}."}, call_block(n, tool)]),
            stop_reason="tool_use" if n < steps - 1 else "end_turn",
            usage=exactjson.dumps(USAGE),
            cost_usd="0.0123",
            created_at=at(4 * n + 3),
        )
        for n in range(steps)
    )
    ToolCall.objects.bulk_create(
        ToolCall(
            run=run,
            seq=1 + 2 * n,
            index=0,
            call_id=f"toolu_{n}",
            name=tool,
            input='{"to": "ann"}',
            effect="external",
            status="done",
            outcome="returned",
            started_token=1,
            result='"sent"',
            created_at=at(4 * n + 3),
            started_at=at(4 * n + 3),
            finished_at=at(4 * n + 4),
        )
        for n in range(steps)
    )
    Message.objects.filter(run=run, role="user").update(created_at=at(-10))
    Slice.objects.create(
        run=run,
        token=1,
        owner="host/1/2/3/x",
        waited_since=at(-10),
        claimed_at=at(0),
        ended_at=at(4 * steps),
        ended_as=values.get("status", "done"),
    )
    Run.objects.filter(pk=run.pk).update(
        **{
            "status": "done",
            "stop_reason": "end_turn",
            "error": "",
            "iterations": steps,
            "created_at": at(-10),
            "updated_at": at(4 * steps),
            "finished_at": at(4 * steps),
            "cost_usd": "12.3",
            **values,
        }
    )
    run.refresh_from_db()
    return run


def call_block(number: int, tool: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{number}", "name": tool, "input": {"to": "ann"}}


def ask_about(run: Run, seq: int, *, tool: str = "mail") -> Approval:
    """A question about the call of a message that nobody has answered."""
    call = ToolCall.objects.get(run=run, seq=seq)
    return Approval.objects.create(
        run=run,
        call=call,
        agent=run.agent,
        kind="tool",
        tool=tool,
        digest="0",
        open_key=str(call.pk),
        requested_at=at(4),
    )
