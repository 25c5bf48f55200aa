"""``AgentCheckpoint``: all that is needed to go on with a run, and the values around it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Self

from . import exactjson, history
from .calls import Decision, PendingCall, ToolCall
from .cost import Usage
from .errors import NewerCheckpointError, RedactedCheckpointError
from .limits import Limits
from .states import RunStatus

if TYPE_CHECKING:
    from .stores.base import StateStore

__all__ = ["AgentCheckpoint", "AgentResult", "Checkpointer", "Decision", "MessageMeta"]

CHECKPOINT_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class MessageMeta:
    """What is stored beside a message and never sent."""

    stop_reason: str = ""
    usage: dict[str, Any] | None = None
    cost_usd: Decimal | None = None
    model: str = ""
    message_id: str = ""
    request_id: str = ""
    derived: bool = False
    """The message is composed from stored tool results and has no copy of its own."""


@dataclass(kw_only=True)
class AgentCheckpoint:
    """The whole state of a run, as the loop and the stores pass it around.

    Attributes:
        version: Format version of ``to_dict``.
        run_id: Public identity of the run.
        agent: Name of the agent.
        prefix: The frozen request prefix (model, system, tools, parameters).
        status: Where the run stands.
        messages: The history in the API's form; only ever added to.
        calls: The tool calls of a turn that is not answered yet, in block order.
        iterations: Model calls whose answers were stored.
        total_usage: Tokens of all billed answers.
        total_cost_usd: Their price; None where a price is unknown.
        approvals: What became of calls a person decided, by call id.
        stop_reason, error_code, error: Why it ended or waits; ``error`` is a sentence.
        limits: What the run may use in all.
        question: The question whether it may use more, asked like a tool call; never part of the history.
        rejected: The subjects (tool and arguments) that a person has said no to.
        active_seconds: Time spent advancing.
        pauses: ``pause_turn`` answers in a row.
        attempt: Failed attempts of the model call that is due.
        next_attempt_at: Not before this time, after a failed attempt.
        container: The code-execution container to send along, if any.
        recoveries: How often in a row it lost its worker without finishing a step.
        token: Fencing token of the lease under which this was read.
        revision: Number of saves.
        updated_at: Time of the last save.
    """

    run_id: str
    agent: str
    prefix: dict[str, Any]
    messages: list[dict[str, Any]]
    version: int = CHECKPOINT_VERSION
    status: RunStatus = RunStatus.QUEUED
    calls: list[ToolCall] = field(default_factory=list)
    iterations: int = 0
    total_usage: Usage = field(default_factory=Usage)
    total_cost_usd: Decimal | None = Decimal(0)
    approvals: dict[str, dict[str, Any]] = field(default_factory=dict)
    stop_reason: str = ""
    error_code: str = ""
    error: str = ""
    limits: Limits = field(default_factory=Limits)
    question: ToolCall | None = None
    rejected: list[str] = field(default_factory=list)
    metadata: dict[str, Any] = field(default_factory=dict)
    active_seconds: float = 0.0
    pauses: int = 0
    attempt: int = 0
    next_attempt_at: datetime | None = None
    container: dict[str, Any] | None = None
    recoveries: int = 0
    token: int = 0
    revision: int = 0
    updated_at: datetime | None = None
    saved_count: int = field(default=0, compare=False, repr=False)
    meta: dict[int, MessageMeta] = field(default_factory=dict, compare=False, repr=False)
    unsaved_calls: dict[str, ToolCall] = field(default_factory=dict, compare=False, repr=False)
    requested: str | None = field(default=None, compare=False, repr=False)
    """"cancel", "pause" or "steer", when that was asked before the run was claimed."""
    placed: dict[Any, int] = field(default_factory=dict, compare=False, repr=False)
    """Steering messages placed since the last save, by the store's key, with the numbers they got."""
    store_key: Any = field(default=None, compare=False, repr=False)
    """The store's own name for the run, for the store alone."""
    stored_columns: dict[str, Any] | None = field(default=None, compare=False, repr=False)
    """What the store knows the run's row to hold, for the store alone; None: it does not know."""

    @property
    def pending(self) -> list[PendingCall]:
        """Every call that waits for a person."""
        return [
            PendingCall(
                call_id=c.call_id,
                tool=c.name,
                kind=str(c.kind),
                input=c.input,
                payload=c.payload,
                expires_at=c.expires_at,
            )
            for c in self.questions
            if c.undecided
        ]

    @property
    def questions(self) -> list[ToolCall]:
        """Every call a person may have to decide: those of the open turn, and that about a limit."""
        return [*self.calls, self.question] if self.question is not None else self.calls

    @property
    def final_text(self) -> str:
        """The text of the last assistant turn of a finished run."""
        return history.final_text(self.messages) if self.status is RunStatus.DONE else ""

    # What changes the history; the only ways to do so.

    def append(self, message: dict[str, Any], meta: MessageMeta | None = None) -> None:
        """Add a message at the end."""
        if meta is not None:
            self.meta[len(self.messages)] = meta
        self.messages.append(message)

    def open_turn(self, calls: list[ToolCall]) -> None:
        """Note the tool calls of the assistant turn just appended."""
        self.calls = calls
        self.unsaved_calls.update((c.call_id, c) for c in calls)

    def touch(self, call: ToolCall) -> None:
        """Have the next save store this call again."""
        self.unsaved_calls[call.call_id] = call

    def close_turn(self) -> None:
        """Answer the open turn: all its calls are done."""
        for call in self.calls:
            if call.decision is not None:
                self.approvals[call.call_id] = call.decided_result()
        self.append(history.results_message(self.calls, self.messages), MessageMeta(derived=True))
        self.calls = []

    # What a store asks.

    def unsaved_messages(self) -> Iterator[tuple[int, dict[str, Any], MessageMeta]]:
        """Messages the store does not have yet, with their numbers."""
        for seq in range(self.saved_count, len(self.messages)):
            yield seq, self.messages[seq], self.meta.get(seq, _NO_META)

    def mark_saved(self, at: datetime | None = None) -> None:
        """All is stored."""
        self.saved_count = len(self.messages)
        self.meta.clear()
        self.unsaved_calls.clear()
        self.placed.clear()
        self.revision += 1
        self.updated_at = at

    def to_dict(self) -> dict[str, Any]:
        """The checkpoint as JSON values, for any storage."""
        return {
            "version": self.version,
            "run_id": self.run_id,
            "agent": self.agent,
            "status": str(self.status),
            "messages": self.messages,
            "iterations": self.iterations,
            "total_usage": self.total_usage.to_dict(),
            "total_cost_usd": None if self.total_cost_usd is None else str(self.total_cost_usd),
            "approvals": self.approvals,
            "pending": [{"call_id": p.call_id, "tool": p.tool, "payload": p.payload} for p in self.pending],
            "final_text": self.final_text,
            "updated_at": _iso(self.updated_at),
            "stop_reason": self.stop_reason,
            "error_code": self.error_code,
            "error": self.error,
            "prefix": self.prefix,
            "calls": [call.to_dict() for call in self.calls],
            "limits": self.limits.to_dict(),
            "question": self.question.to_dict() if self.question else None,
            "rejected": self.rejected,
            "metadata": self.metadata,
            "active_seconds": self.active_seconds,
            "pauses": self.pauses,
            "attempt": self.attempt,
            "next_attempt_at": _iso(self.next_attempt_at),
            "container": self.container,
            "recoveries": self.recoveries,
            "token": self.token,
            "revision": self.revision,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The reverse of ``to_dict``.

        Raises:
            NewerCheckpointError: The data was written by a later version of this package.
            RedactedCheckpointError: It is what the REST API shows where something is hidden.
        """
        if data.get("redacted"):
            raise RedactedCheckpointError
        version = data.get("version")
        if not isinstance(version, int) or version > CHECKPOINT_VERSION:
            raise NewerCheckpointError(version, CHECKPOINT_VERSION)
        plain = (
            "run_id",
            "agent",
            "prefix",
            "messages",
            "iterations",
            "approvals",
            "stop_reason",
            "error_code",
        )
        more = ("error", "metadata", "active_seconds", "pauses", "attempt", "container", "recoveries")
        cost = data.get("total_cost_usd")
        return cls(
            **{key: data[key] for key in (*plain, *more, "rejected", "token", "revision") if key in data},
            version=version,
            status=RunStatus(data["status"]),
            calls=[ToolCall.from_dict(call) for call in data.get("calls", ())],
            total_usage=Usage.from_dict(data.get("total_usage") or {}),
            total_cost_usd=None if cost is None else Decimal(cost),
            limits=Limits.from_dict(data.get("limits") or {}),
            question=ToolCall.from_dict(data["question"]) if data.get("question") else None,
            next_attempt_at=_time(data.get("next_attempt_at")),
            updated_at=_time(data.get("updated_at")),
        )

    def copy(self) -> Self:
        """An independent copy."""
        return type(self).from_dict(exactjson.loads(exactjson.dumps(self.to_dict())))


_NO_META = MessageMeta()


def _iso(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat()


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


@dataclass(frozen=True, kw_only=True)
class AgentResult:
    """Where a run stands after it was advanced; ``error`` is a sentence or ""."""

    run_id: str
    status: RunStatus
    stop_reason: str
    final_text: str
    messages: list[dict[str, Any]]
    iterations: int
    total_usage: Usage
    total_cost_usd: Decimal | None
    pending: list[PendingCall]
    error: str
    error_code: str = ""

    @classmethod
    def of(cls, checkpoint: AgentCheckpoint) -> Self:
        """The result that a checkpoint stands for."""
        names = cls.__dataclass_fields__
        return cls(**{name: getattr(checkpoint, name) for name in names})


class Checkpointer:
    """One run in one store.

    Args:
        store: Where checkpoints are kept.
        run_id: Which run.
    """

    def __init__(self, store: StateStore, run_id: str) -> None:
        self.store = store
        self.run_id = str(run_id)

    def save(self, checkpoint: AgentCheckpoint) -> None:
        """Store the checkpoint: create the run, or add what is new to it.

        Raises:
            LeaseLostError: It was read under an older fencing token, or the run moved on since.
            HistoryRewrittenError: It changes a message that is already stored.
        """
        if checkpoint.run_id != self.run_id:
            raise ValueError(f"This Checkpointer is for run {self.run_id!r}, not {checkpoint.run_id!r}.")
        self.store.put(checkpoint)

    def load(self) -> AgentCheckpoint | None:
        """The stored checkpoint, or None."""
        return self.store.load(self.run_id)

    def delete(self) -> bool:
        """Forget the run; True if there was one."""
        return self.store.delete(self.run_id)
