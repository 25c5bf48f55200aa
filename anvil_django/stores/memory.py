"""``MemoryStateStore``: checkpoints in this process, for tests, notebooks and loops that need not last."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from .. import exactjson
from ..calls import Decision, ToolCall
from ..checkpoint import AgentCheckpoint
from ..clock import get_clock
from ..errors import (
    AlreadyDecidedError,
    ApprovalExpiredError,
    DecisionError,
    HistoryRewrittenError,
    LeaseLostError,
    UnknownRunError,
)
from ..leases import Lease
from ..states import ADVANCING, RESUMABLE, TERMINAL, ApprovalKind, CallStatus, Channel, RunStatus
from .base import REQUESTS, ApprovalUnusableError, Request, RunRequestedError, StateStore


@dataclass
class _Stored:
    state: dict[str, Any] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)
    token: int = 0
    owner: str = ""
    expires: float = 0.0
    request: Request | None = None
    user: Any = None

    @property
    def status(self) -> RunStatus:
        return RunStatus(self.state["status"])

    @property
    def held(self) -> bool:
        return bool(self.owner) and get_clock().monotonic() < self.expires


class MemoryStateStore(StateStore):
    """Keeps every checkpoint as JSON text in a dict: what comes out is what would come out of a database."""

    def __init__(self) -> None:
        self._runs: dict[str, _Stored] = {}
        self._lock = threading.RLock()

    def load(self, run_id: str) -> AgentCheckpoint | None:
        with self._lock:
            stored = self._runs.get(run_id)
            return None if stored is None else self._read(stored)

    def _read(self, stored: _Stored) -> AgentCheckpoint:
        state = exactjson.loads(exactjson.dumps(stored.state))
        messages = [exactjson.loads(text) for text in stored.messages]
        checkpoint = AgentCheckpoint.from_dict({**state, "messages": messages})
        checkpoint.token = stored.token
        checkpoint.saved_count = len(messages)
        checkpoint.requested = stored.request
        return checkpoint

    def put(self, checkpoint: AgentCheckpoint) -> None:
        with self._lock:
            stored = self._runs.get(checkpoint.run_id)
            if stored is None:
                stored = self._runs[checkpoint.run_id] = _Stored(token=checkpoint.token)
                checkpoint.saved_count = 0
            else:
                if (stored.token, stored.state["revision"]) != (checkpoint.token, checkpoint.revision):
                    raise LeaseLostError(checkpoint.run_id, checkpoint.token)
                self._check_append_only(stored, checkpoint)
            self._write(stored, checkpoint)

    def _check_append_only(self, stored: _Stored, checkpoint: AgentCheckpoint) -> None:
        for seq, text in enumerate(stored.messages):
            if seq >= len(checkpoint.messages) or exactjson.dumps(checkpoint.messages[seq]) != text:
                raise HistoryRewrittenError(checkpoint.run_id, seq)
        checkpoint.saved_count = len(stored.messages)

    def _write(self, stored: _Stored, checkpoint: AgentCheckpoint) -> None:
        texts = [exactjson.dumps(message) for _, message, _ in checkpoint.unsaved_messages()]
        checkpoint.mark_saved(get_clock().now())
        stored.messages.extend(texts)
        state = checkpoint.to_dict()
        del state["messages"]
        stored.state = exactjson.loads(exactjson.dumps(state))

    def create(self, checkpoint: AgentCheckpoint, *, user: Any = None) -> None:
        with self._lock:
            super().create(checkpoint)
            self._runs[checkpoint.run_id].user = user

    def user_loader(self, run_id: str) -> Callable[[], Any]:
        return lambda: self._runs[run_id].user

    def delete(self, run_id: str) -> bool:
        with self._lock:
            return self._runs.pop(run_id, None) is not None

    def run_ids(self) -> list[str]:
        with self._lock:
            return list(self._runs)

    def claim(
        self, run_id: str, owner: str, seconds: float, *, any_idle: bool = False
    ) -> tuple[AgentCheckpoint, Lease] | None:
        with self._lock:
            stored = self._runs.get(run_id)
            if stored is None or stored.held:
                return None
            status = stored.status
            if status not in {RunStatus.QUEUED, RunStatus.RUNNING} and not (any_idle and status in RESUMABLE):
                return None
            checkpoint = self._read(stored)
            if status is RunStatus.QUEUED and not any_idle:
                due = checkpoint.next_attempt_at
                if due is not None and due > get_clock().now():
                    return None
            if status is RunStatus.RUNNING:
                stored.state["recoveries"] += 1
            stored.state["status"] = str(RunStatus.RUNNING)
            stored.token += 1
            asked_at = get_clock().monotonic()
            stored.owner, stored.expires = owner, asked_at + seconds
            lease = Lease(run_id, stored.token, owner, seconds, stored.expires)
            return self._read(stored), lease

    def _held(self, lease: Lease) -> _Stored:
        stored = self._runs.get(lease.run_id)
        if stored is None or stored.token != lease.token or stored.owner != lease.owner:
            raise LeaseLostError(lease.run_id, lease.token)
        return stored

    def save(
        self,
        checkpoint: AgentCheckpoint,
        lease: Lease,
        *,
        progress: bool,
        heed: Collection[Request] = REQUESTS,
    ) -> None:
        with self._lock:
            stored = self._held(lease)
            if stored.state["revision"] != checkpoint.revision:
                raise LeaseLostError(lease.run_id, lease.token)
            if stored.request is not None and stored.request in heed:
                raise RunRequestedError(stored.request)
            for call in checkpoint.unsaved_calls.values():
                if call.consuming and not self._decided(stored, call):
                    raise ApprovalUnusableError(call.call_id)
            for call in checkpoint.unsaved_calls.values():
                call.consuming = False
            if progress:
                checkpoint.recoveries = 0
            self._write(stored, checkpoint)
            if checkpoint.status is RunStatus.RUNNING:
                stored.expires = get_clock().monotonic() + lease.seconds
                lease.extend(get_clock().monotonic())
            else:
                stored.owner = ""
                if checkpoint.status in TERMINAL or checkpoint.status is RunStatus.PAUSED:
                    stored.request = None

    def renew(self, lease: Lease) -> Request | None:
        with self._lock:
            stored = self._held(lease)
            asked_at = get_clock().monotonic()
            stored.expires = asked_at + lease.seconds
            lease.extend(asked_at)
            return stored.request

    def release(self, lease: Lease) -> None:
        with self._lock:
            stored = self._runs.get(lease.run_id)
            if stored is not None and stored.token == lease.token:
                stored.owner = ""

    def wake(self, run_id: str, sources: Collection[RunStatus]) -> bool:
        with self._lock:
            stored = self._runs.get(run_id)
            if stored is None or stored.status not in sources or stored.held:
                return False
            suspended = stored.status is RunStatus.SUSPENDED
            if suspended and any(call.undecided for call in self._calls(stored)):
                return False
            self._queue(stored)
            return True

    def _queue(self, stored: _Stored) -> None:
        cleared = dict.fromkeys(("error", "error_code", "stop_reason"), "")
        stored.state.update(
            status=str(RunStatus.QUEUED), attempt=0, next_attempt_at=None, recoveries=0, **cleared
        )
        # A paused turn stays one, or the run would end with it; only the count begins anew.
        stored.state["pauses"] = min(stored.state["pauses"], 1)
        if stored.request == "pause":
            stored.request = None

    def request(self, run_id: str, request: Request, *, by: str = "") -> bool:
        with self._lock:
            stored = self._runs.get(run_id)
            if stored is None or stored.status not in ADVANCING:
                return False
            stored.request = request
            return True

    def decide(self, run_id: str, call_id: str, decision: Decision) -> None:
        decision.check()
        with self._lock:
            stored = self._runs.get(run_id)
            if stored is None:
                raise UnknownRunError(run_id)
            calls = self._calls(stored)
            call = next((c for c in calls if c.call_id == call_id), None)
            if call is None or call.kind is None:
                raise DecisionError(f"Nothing waits for a decision under call id {call_id!r}.")
            if not call.undecided:
                by = call.decision.reviewer if call.decision else ""
                raise AlreadyDecidedError(f"Call {call_id!r}", "decided", by)
            over = call.expires_at is not None and call.expires_at <= get_clock().now()
            if over and decision.channel != Channel.EXPIRY:
                raise ApprovalExpiredError(f"The time to decide call {call_id!r} is over; it counts as a no.")
            if not over and decision.channel == Channel.EXPIRY:
                raise DecisionError(f"The time to decide call {call_id!r} is not over.")
            decision = decision.storable()
            call.take(replace(decision, decided_at=get_clock().now()), run_id)
            stored.state["calls"] = [c.to_dict() for c in calls if c.kind is not ApprovalKind.LIMIT]
            stored.state["question"] = next(
                (c.to_dict() for c in calls if c.kind is ApprovalKind.LIMIT), None
            )
            if stored.status is RunStatus.SUSPENDED and not any(c.undecided for c in calls):
                self._queue(stored)

    def _decided(self, stored: _Stored, call: ToolCall) -> bool:
        known = next((c for c in self._calls(stored) if c.call_id == call.call_id), None)
        # Once the call has started, the stored copy no longer waits: the decision was used.
        waits = known is not None and known.status in {CallStatus.WAITING, CallStatus.IN_DOUBT}
        return waits and known is not None and known.decision == call.decision

    def _calls(self, stored: _Stored) -> list[ToolCall]:
        question = stored.state["question"]
        return [
            ToolCall.from_dict(call) for call in (*stored.state["calls"], *([question] if question else ()))
        ]

    def transaction(self) -> AbstractContextManager[None]:
        return nullcontext()
