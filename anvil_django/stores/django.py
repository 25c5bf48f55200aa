"""``DjangoStateStore``: checkpoints as rows of the site's own database."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, InterfaceError, OperationalError, connections, router, transaction

from .. import exactjson, signals
from ..calls import Decision
from ..checkpoint import AgentCheckpoint
from ..clock import get_clock
from ..errors import (
    AlreadyDecidedError,
    DecisionError,
    HistoryRewrittenError,
    LeaseLostError,
    RunIdTakenError,
    UnknownRunError,
)
from ..identity import storable_name
from ..leases import Lease
from ..models import AgentVersion, Approval, Run, Steering
from ..states import ADVANCING, RESUMABLE, TERMINAL, CallStatus, RunStatus
from . import claims, decisions, saving, slices
from .base import REQUESTS, Request, RunRequestedError, StateStore, TransactionCutOffError
from .database_time import Now, database_now
from .decisions import queue_if_decided
from .reading import find_run, read_checkpoint
from .rows import request_of, run_values

logger = logging.getLogger(__name__)

FLAGS: dict[Request, str] = {
    "cancel": "cancel_requested",
    "pause": "pause_requested",
    "steer": "steering_waits",
}
"""What people ask of a run, for whoever advances it to heed."""

_UNKNOWN = object()

STALE_AFTER = 5.0
"""Seconds without a statement after which a connection is looked at before it is used again."""


class DjangoStateStore(StateStore):
    """Keeps each run as one row that is updated and rows that are only added.

    Args:
        using: Database alias; None: the one the router gives for writing runs.
    """

    keeps_transactions = True
    shares_runs = True

    def __init__(self, using: str | None = None) -> None:
        self._alias = using
        self._used_at = get_clock().monotonic()

    @property
    def alias(self) -> str:
        """The database the runs are in."""
        return self._alias or router.db_for_write(Run)

    def _runs(self) -> Any:
        return Run.objects.using(self.alias)

    # Whole checkpoints.

    def load(self, run_id: str) -> AgentCheckpoint | None:
        stored = find_run(self.alias, exactjson.clean_text(run_id))
        return None if stored is None else read_checkpoint(stored)

    def create(self, checkpoint: AgentCheckpoint, *, user: Any = None) -> None:
        self.insert(checkpoint, user=user)

    def insert(self, checkpoint: AgentCheckpoint, *, user: Any = None, **columns: Any) -> Run:
        """Create the run, with further columns of its row; joins the caller's transaction.

        Raises:
            RunIdTakenError: The run_id, or the user's idempotency key, is in use.
        """
        prefix = exactjson.dumps(checkpoint.prefix)
        values = run_values(checkpoint)
        try:
            with transaction.atomic(using=self.alias):
                version, _ = AgentVersion.objects.using(self.alias).get_or_create(
                    digest=exactjson.digest(checkpoint.agent, prefix),
                    defaults={"agent": checkpoint.agent, "prefix": prefix},
                )
                run: Run = self._runs().create(
                    **values,
                    run_id=checkpoint.run_id,
                    token=checkpoint.token,
                    agent=checkpoint.agent,
                    version=version,
                    request_digest=request_digest(checkpoint),
                    metadata=exactjson.dumps(checkpoint.metadata),
                    limits=exactjson.dumps(checkpoint.limits.to_dict()),
                    next_attempt_at=checkpoint.next_attempt_at,
                    user=user,
                    user_key="" if user is None else str(user.pk),
                    user_name="" if user is None else storable_name(user),
                    **columns,
                )
                checkpoint.saved_count, checkpoint.store_key = 0, run.pk
                asked = saving.add(checkpoint, self.alias)
        except IntegrityError:
            if self._runs().filter(run_id=checkpoint.run_id).exists():
                raise RunIdTakenError(checkpoint.run_id) from None
            raise
        saving.mark_saved(checkpoint, asked)
        return run

    def put(self, checkpoint: AgentCheckpoint) -> None:
        found = find_run(self.alias, checkpoint.run_id)
        if found is None:
            self.create(checkpoint)
            return
        stored = read_checkpoint(found)
        if (stored.token, stored.revision) != (checkpoint.token, checkpoint.revision):
            raise LeaseLostError(checkpoint.run_id, checkpoint.token)
        for seq, message in enumerate(stored.messages):
            mine = checkpoint.messages[seq] if seq < len(checkpoint.messages) else None
            if exactjson.dumps(mine) != exactjson.dumps(message):
                raise HistoryRewrittenError(checkpoint.run_id, seq)
        checkpoint.saved_count, checkpoint.store_key = len(stored.messages), stored.store_key
        known = {call.call_id: call for call in stored.questions}
        for call in checkpoint.questions:
            before = known.get(call.call_id)
            call.stored = before is not None
            if before is not None:
                call.approval_id = before.approval_id
                if before.status is not CallStatus.DONE:  # A result is written once.
                    checkpoint.touch(call)
        values = {**run_values(checkpoint), "updated_at": Now()}
        then: list[Callable[[AgentCheckpoint], None]] = []
        if checkpoint.status is not RunStatus.RUNNING:
            values.update(lease_owner="", lease_until=None)
            then.append(lambda left: slices.end(left, left.token, self.alias))
        held = {"token": checkpoint.token, "revision": checkpoint.revision}
        try:
            asked = saving.write(checkpoint, self.alias, held=held, run=values, then=then)
        except saving.Refused:
            raise LeaseLostError(checkpoint.run_id, checkpoint.token) from None
        checkpoint.stored_columns = None
        saving.mark_saved(checkpoint, asked)

    def delete(self, run_id: str) -> bool:
        deleted, _ = self._runs().filter(run_id=run_id).delete()
        return bool(deleted)

    def run_ids(self) -> list[str]:
        return list(self._runs().order_by("id").values_list("run_id", flat=True))

    def user_loader(self, run_id: str) -> Callable[[], Any] | None:
        return lambda: self._runs().select_related("user").get(run_id=run_id).user

    # The lease.

    def claim(
        self, run_id: str, owner: str, seconds: float, *, any_idle: bool = False
    ) -> tuple[AgentCheckpoint, Lease] | None:
        asked_at = get_clock().monotonic()
        rested = any_idle and self._runs().filter(run_id=run_id, status__in=map(str, RESUMABLE)).exists()
        with transaction.atomic(using=self.alias, savepoint=False):
            taken = claims.take(self.alias, run_id, owner, seconds, any_idle=any_idle)
            stored = find_run(self.alias, run_id) if taken else None
            if stored is None:
                return None
            slices.begin(stored.run, self.alias, rested=rested)
        run = stored.run
        try:
            checkpoint = read_checkpoint(stored)
            checkpoint.stored_columns = {name: getattr(run, name) for name in run_values(checkpoint)}
        except BaseException:
            # It cannot be read, so nobody advances it under this lease: interrupted, as after ``release``.
            with suppress(Exception):
                self._runs().filter(run_id=run_id, lease_owner=owner).update(lease_until=None)
            raise
        self._used_at = get_clock().monotonic()
        return checkpoint, Lease(run_id, run.token, owner, seconds, asked_at + seconds)

    def renew(self, lease: Lease) -> Request | None:
        asked_at = get_clock().monotonic()
        mine = self._runs().filter(run_id=lease.run_id, token=lease.token, lease_owner=lease.owner)
        if not mine.update(lease_until=database_now(timedelta(seconds=lease.seconds))):
            raise LeaseLostError(lease.run_id, lease.token)
        lease.extend(asked_at)
        flags = mine.values_list(*FLAGS.values()).first() or (False, False, False)
        return request_of(*flags)

    def release(self, lease: Lease) -> None:
        # Still running, but under no live lease: interrupted, for the next sweep to find at once.
        mine = self._runs().filter(run_id=lease.run_id, token=lease.token, lease_owner=lease.owner)
        with transaction.atomic(using=self.alias):
            if mine.update(lease_until=None):
                slices.give_up(lease, self.alias)

    def refresh_connections(self) -> None:
        """As Django does between two requests: a tool before this one may have taken hours."""
        now = get_clock().monotonic()
        if now - self._used_at > STALE_AFTER:
            for connection in connections.all(initialized_only=True):
                connection.close_if_unusable_or_obsolete()
            self._used_at = now

    def close_connection(self) -> None:
        connections[self.alias].close()

    # One save.

    def save(
        self,
        checkpoint: AgentCheckpoint,
        lease: Lease,
        *,
        progress: bool,
        heed: Collection[Request] = REQUESTS,
    ) -> None:
        connection = connections[self.alias]
        asked_at = get_clock().monotonic()
        if connection.in_atomic_block:
            asked = self._save(checkpoint, lease, progress, heed)
        else:
            if asked_at - self._used_at > STALE_AFTER:
                connection.close_if_unusable_or_obsolete()
            try:
                asked = self._save(checkpoint, lease, progress, heed)
            except (OperationalError, InterfaceError) as exc:
                logger.warning(
                    "save failed, trying once more: %s", type(exc).__name__, extra={"run_id": lease.run_id}
                )
                connection.close()
                asked = self._save(checkpoint, lease, progress, heed, again=True)
        saving.mark_saved(checkpoint, asked)
        lease.extend(asked_at)
        self._used_at = get_clock().monotonic()

    def _save(
        self,
        checkpoint: AgentCheckpoint,
        lease: Lease,
        progress: bool,
        heed: Collection[Request],
        again: bool = False,
    ) -> saving.Asked:
        if progress:
            checkpoint.recoveries = 0
        then: list[Callable[[AgentCheckpoint], None]] = []
        if checkpoint.placed:
            then.append(self._mark_placed)
        if checkpoint.status is RunStatus.SUSPENDED:
            then.append(self._unless_decided)
        if checkpoint.status in TERMINAL and signals.run_ended.has_listeners(Run):
            then.append(self._tell)
        if checkpoint.status is not RunStatus.RUNNING:
            then.append(lambda left: slices.end(left, lease.token, self.alias))
        held = {"token": lease.token, "lease_owner": lease.owner, "revision": checkpoint.revision}
        held.update({FLAGS[request]: False for request in sorted(heed)})
        values = self._saved_values(checkpoint, lease)
        # Under this token and revision nobody else has written them since. What stays the same is not written
        # again: an indexed column would cost its index another page.
        known = checkpoint.stored_columns or {}
        # The time is another one with each save, though a ``Now`` equals the one before.
        changed = {
            name: value
            for name, value in values.items()
            if isinstance(value, Now) or known.get(name, _UNKNOWN) != value
        }
        try:
            asked = saving.write(checkpoint, self.alias, held=held, run=changed, then=then)
        except saving.Refused:
            if again and self._is_stored(checkpoint, lease):
                checkpoint.stored_columns = None
                return self._asked_before(checkpoint)  # It was committed; only the answer was lost.
            raise self._why_not(checkpoint, lease) from None
        checkpoint.stored_columns = known | values
        return asked

    def _asked_before(self, checkpoint: AgentCheckpoint) -> saving.Asked:
        """The cases that a save has opened whose answer was lost."""
        rows = Approval.objects.using(self.alias).filter(run_id=checkpoint.store_key, open_key__isnull=False)
        opened = dict(rows.values_list("call__call_id", "pk"))
        new = [call for call in checkpoint.questions if call.undecided and call.approval_id is None]
        return [(call, opened[call.call_id]) for call in new if call.call_id in opened]

    def _saved_values(self, checkpoint: AgentCheckpoint, lease: Lease) -> dict[str, Any]:
        values = run_values(checkpoint)
        values.update(recoveries=checkpoint.recoveries, updated_at=Now())
        if checkpoint.question is not None and checkpoint.question.call_id in checkpoint.unsaved_calls:
            values["limits"] = exactjson.dumps(checkpoint.limits.to_dict())
        if checkpoint.next_attempt_at is None:
            values["next_attempt_at"] = None
        else:
            # As a distance, so that it is the database's clock that decides when it is due.
            wait = max(checkpoint.next_attempt_at - get_clock().now(), timedelta())
            values["next_attempt_at"] = Now(wait)
        if checkpoint.status is RunStatus.RUNNING:
            values["lease_until"] = Now(timedelta(seconds=lease.seconds))
            return values
        values.update(lease_owner="", lease_until=None)
        if checkpoint.status is RunStatus.QUEUED:
            values["ticket_at"] = Now()
        if checkpoint.status is RunStatus.PAUSED:
            values["pause_requested"] = False
        if checkpoint.status in TERMINAL:
            values.update(finished_at=Now(), cancel_requested=False, pause_requested=False)
        return values

    def _unless_decided(self, checkpoint: AgentCheckpoint) -> None:
        # A decision taken while this worker was still busy found nothing to wake up; it counts now.
        if queue_if_decided(checkpoint.store_key, self.alias, sources=[RunStatus.SUSPENDED]):
            checkpoint.status = RunStatus.QUEUED

    def _mark_placed(self, checkpoint: AgentCheckpoint) -> None:
        # The run's row is locked by now: whoever sends another message waits and sets the flag after us.
        waiting = Steering.objects.using(self.alias).filter(run_id=checkpoint.store_key, placed_seq=None)
        for key, seq in checkpoint.placed.items():
            waiting.filter(pk=key).update(placed_seq=seq)
        if not waiting.exists():
            self._runs().filter(pk=checkpoint.store_key).update(steering_waits=False)

    def _tell(self, checkpoint: AgentCheckpoint) -> None:
        run = self._runs().get(pk=checkpoint.store_key)
        signals.send_after_commit(signals.run_ended, using=self.alias, sender=Run, run=run)

    def _why_not(self, checkpoint: AgentCheckpoint, lease: Lease) -> LeaseLostError | RunRequestedError:
        mine = self._runs().filter(
            pk=checkpoint.store_key, token=lease.token, lease_owner=lease.owner, revision=checkpoint.revision
        )
        flags = mine.values_list(*FLAGS.values()).first()
        request = request_of(*flags) if flags else None
        return RunRequestedError(request) if request else LeaseLostError(lease.run_id, lease.token)

    def _is_stored(self, checkpoint: AgentCheckpoint, lease: Lease) -> bool:
        saved = self._runs().filter(
            pk=checkpoint.store_key,
            token=lease.token,
            revision=checkpoint.revision + 1,
            message_count=len(checkpoint.messages),
        )
        # Whoever saves the run by a ``Checkpointer`` meanwhile does so under this token too.
        return bool(saved.exists()) and saving.is_stored(checkpoint, self.alias)

    # What people ask.

    def wake(self, run_id: str, sources: Collection[RunStatus]) -> bool:
        run_pk = self._runs().filter(run_id=run_id).values_list("pk", flat=True).first()
        return run_pk is not None and queue_if_decided(run_pk, self.alias, sources=sources)

    def request(self, run_id: str, request: Request, *, by: str = "") -> bool:
        runs = self._runs().filter(run_id=run_id, status__in=[str(s) for s in ADVANCING])
        return bool(runs.update(**{FLAGS[request]: True}, requested_by=storable_name(by)))

    def take_steering(self, checkpoint: AgentCheckpoint) -> list[tuple[Any, Any]]:
        waiting = Steering.objects.using(self.alias).filter(run_id=checkpoint.store_key, placed_seq=None)
        return [(row.pk, exactjson.loads(row.content)) for row in waiting.order_by("id")]

    def decide(self, run_id: str, call_id: str, decision: Decision) -> None:
        decision.check()
        stored = find_run(self.alias, run_id)
        if stored is None:
            raise UnknownRunError(run_id)
        checkpoint = read_checkpoint(stored)
        call = next((c for c in checkpoint.questions if c.call_id == call_id), None)
        if call is None or call.approval_id is None:
            raise DecisionError(f"Nothing waits for a decision under call id {call_id!r}.")
        if not call.undecided:
            by = call.decision.reviewer if call.decision else ""
            raise AlreadyDecidedError(f"Call {call_id!r}", "decided", by)
        approval = Approval.objects.using(self.alias).get(pk=call.approval_id)
        decisions.record(approval, call, decision)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """The tool's writes and the save of its result in one commit.

        What fails in a function that the tool had left for after the commit does not undo the commit: it is
        logged, and the call counts as done.
        """
        committed, connection, session = False, connections[self.alias], None

        def note() -> None:
            nonlocal committed
            committed = True

        try:
            with transaction.atomic(using=self.alias):
                session = connection.connection
                transaction.on_commit(note, using=self.alias)
                yield
        except Exception as exc:
            if not committed:
                # Django opens another one when not even the rollback works.
                if connection.connection is not session:
                    raise TransactionCutOffError from exc
                raise
            logger.exception("a function left for after the commit of an atomic tool failed")


def request_digest(checkpoint: AgentCheckpoint) -> str:
    """What makes two requests for a run the same: agent, input and metadata."""
    return exactjson.digest(checkpoint.agent, checkpoint.messages, checkpoint.metadata)
