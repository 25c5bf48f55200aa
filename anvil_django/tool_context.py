"""``ToolContext``: what a tool may know about the call it serves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any


@dataclass(frozen=True, init=False)
class ToolContext:
    """What a tool may know about the call it serves; give a parameter this annotation to receive it.

    Args:
        run_id: The run.
        call_id: The tool call, as the model named it; unique within the run.
        idempotency_key: Stays the same however often this call is run again; hand it to whatever the tool
            calls, so that a repetition is recognized.
        attempt: 1 for the first time this call is run.
        user: Whoever the run belongs to, or None.
        metadata: What the run was started with.
        approved: Whether a person approved this very call with these very arguments.
        decision: That person's decision, or None.
        load_user: Finds the user when a tool asks for it, in place of ``user``.
    """

    run_id: str
    call_id: str
    idempotency_key: str
    attempt: int
    metadata: dict[str, Any]
    approved: bool
    decision: Any | None
    load_user: Callable[[], Any] | None = field(repr=False, compare=False)

    def __init__(
        self,
        run_id: str,
        call_id: str,
        idempotency_key: str,
        attempt: int = 1,
        *,
        user: Any = None,
        metadata: dict[str, Any] | None = None,
        approved: bool = False,
        decision: Any | None = None,
        load_user: Callable[[], Any] | None = None,
    ) -> None:
        values = {
            "run_id": run_id,
            "call_id": call_id,
            "idempotency_key": idempotency_key,
            "attempt": attempt,
            "metadata": {} if metadata is None else metadata,
            "approved": approved,
            "decision": decision,
            # A given user becomes a loader too, so that dataclasses.replace() carries it along.
            "load_user": load_user if user is None else lambda: user,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @cached_property
    def user(self) -> Any:
        """Whoever the run belongs to, or None; loaded when first asked for."""
        return None if self.load_user is None else self.load_user()
