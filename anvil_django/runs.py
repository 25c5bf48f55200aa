"""The one door to change a run: start, advance, cancel, pause, resume, recover."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet

from . import endings, history, queue
from .agents import Agent, get_agent
from .boundaries import reach
from .checkpoint import AgentCheckpoint, AgentResult
from .clock import get_clock
from .conf import get_settings
from .errors import (
    AnvilError,
    BadInputError,
    IdempotencyKeyReusedError,
    IllegalTransitionError,
    LeaseLostError,
    RunIdTakenError,
    UnknownAgentError,
    UnknownRunError,
)
from .identity import check_metadata, check_run_id, new_run_id
from .leases import is_dead, is_here, owner_name
from .loop import Loop
from .models import Approval, Run
from .states import RESUMABLE, ApprovalStatus, RunStatus
from .stores.database_time import database_now
from .stores.decisions import queue_if_decided, queued_values
from .stores.django import DjangoStateStore, request_digest

logger = logging.getLogger(__name__)

IDEMPOTENCY_KEY_LENGTH = 200
INTERRUPTED = "Waits for a worker: its last one died or lost the connection."
AGENT_MISSING_RETRY = 30.0
"""Seconds until a run whose agent this process does not know is offered to a worker again."""


def get(run_id: str) -> Run:
    """The run of that run_id.

    Raises:
        UnknownRunError: There is none.
    """
    run = Run.objects.filter(run_id=run_id).first()
    if run is None:
        raise UnknownRunError(run_id)
    return run


# Start.


def start(
    agent: Agent | str,
    messages: str | Sequence[Mapping[str, Any]],
    *,
    user: Any = None,
    run_id: Any = None,
    idempotency_key: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Run:
    """Store a run and tell the queue; see ``anvil_django.start_run``."""
    run, _ = get_or_start(
        agent, messages, user=user, run_id=run_id, idempotency_key=idempotency_key, metadata=metadata
    )
    return run


def get_or_start(
    agent: Agent | str,
    messages: str | Sequence[Mapping[str, Any]],
    *,
    user: Any = None,
    run_id: Any = None,
    idempotency_key: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> tuple[Run, bool]:
    """As ``start``; also says whether the run is new, or one that this same request started before."""
    definition = get_agent(agent if isinstance(agent, str) else agent.name)
    checkpoint = AgentCheckpoint(
        run_id=new_run_id() if run_id is None else check_run_id(run_id),
        agent=definition.name,
        prefix=definition.prefix,
        messages=history.from_input(messages, limit=get_settings().input_limit),
        limits=definition.limits,
        metadata=check_metadata(metadata),
        total_cost_usd=definition.cost_so_far(),
    )
    if user is not None and not getattr(user, "is_authenticated", False):
        user = None
    if idempotency_key is not None and not 0 < len(idempotency_key) <= IDEMPOTENCY_KEY_LENGTH:
        raise BadInputError(f"An idempotency key has 1 to {IDEMPOTENCY_KEY_LENGTH} characters.")
    store = DjangoStateStore()
    existing = _existing(checkpoint, run_id, user, idempotency_key)
    if existing is not None:
        return existing, False
    with transaction.atomic(using=store.alias):
        try:
            with transaction.atomic(using=store.alias):
                run = store.insert(
                    checkpoint, user=user, idempotency_key=idempotency_key, ticket_at=database_now()
                )
        except (RunIdTakenError, IntegrityError):
            # Somebody else stored the same id or key between our look and our insert.
            existing = _existing(checkpoint, run_id, user, idempotency_key)
            if existing is None:
                raise
            return existing, False
        reach("run.before_ring")
        queue.ring(run.run_id, using=store.alias)
    reach("run.rung")
    return run, True


def _existing(checkpoint: AgentCheckpoint, run_id: Any, user: Any, key: str | None) -> Run | None:
    """The run that this same request started before, if any."""
    digest = request_digest(checkpoint)
    user_key = "" if user is None else str(user.pk)
    if key is not None:
        found = Run.objects.filter(user_key=user_key, idempotency_key=key).first()
        if found is not None:
            if found.request_digest != digest or (run_id is not None and found.run_id != str(run_id)):
                raise IdempotencyKeyReusedError(key)
            return found
    if run_id is not None:
        found = Run.objects.filter(run_id=checkpoint.run_id).first()
        if found is not None:
            if found.request_digest != digest or found.user_key != user_key:
                raise RunIdTakenError(checkpoint.run_id)
            return found
    return None


# Advance.


def advance_slice(run_id: str, *, should_stop: Callable[[], bool] | None = None) -> AgentResult | None:
    """Advance the run under a lease until it ends, waits, or its slice is over.

    Returns:
        Where it stands now; None when it could not be taken: it is held, not due, or not queued.
    """
    store = DjangoStateStore()
    claimed = store.claim(run_id, owner_name(), get_settings().lease_seconds)
    if claimed is None:
        return None
    checkpoint, lease = claimed
    try:
        agent = get_agent(checkpoint.agent)
    except UnknownAgentError as exc:
        _without_agent(checkpoint, exc)
        store.save(checkpoint, lease, progress=False, heed=False)
        result = AgentResult.of(checkpoint)
    else:
        stop = should_stop or Slice(run_id, checkpoint.store_key).is_over
        loop = Loop(agent, checkpoint, store, lease, load_user=store.user_loader(run_id), should_stop=stop)
        try:
            for _ in loop.events():
                pass
        except LeaseLostError:
            logger.info("the run was taken over by another worker", extra={"run_id": run_id})
            return None
        checkpoint, result = loop.checkpoint, AgentResult.of(loop.checkpoint)
    if result.status is RunStatus.QUEUED:
        _ring_when_due(checkpoint, store.alias)
    return result


def _ring_when_due(checkpoint: AgentCheckpoint, alias: str) -> None:
    due = checkpoint.next_attempt_at
    wait = (due - get_clock().now()).total_seconds() if due is not None else 0.0
    reach("run.before_ring")
    if wait > 0 and queue.is_inline():
        get_clock().sleep(wait)
        wait = 0.0
    if wait > 0:
        # A moment later than due: the database's clock decides, and may be slightly behind ours.
        queue.ring_later(checkpoint.run_id, wait + 0.05, using=alias)
    else:
        queue.ring(checkpoint.run_id, using=alias)
    reach("run.rung")


def _without_agent(checkpoint: AgentCheckpoint, exc: UnknownAgentError) -> None:
    # During a rolling deploy another worker may know the agent, so it is offered again before an operator
    # has to look.
    checkpoint.attempt += 1
    checkpoint.error_code, checkpoint.error = exc.code, exc.message
    if checkpoint.attempt < get_settings().max_model_attempts:
        checkpoint.status = RunStatus.QUEUED
        checkpoint.next_attempt_at = get_clock().now() + timedelta(seconds=AGENT_MISSING_RETRY)
    else:
        checkpoint.status = RunStatus.PAUSED


class Slice:
    """How long a background task may advance one run."""

    def __init__(self, run_id: str, run_pk: int) -> None:
        self._pk = run_pk
        self._began = get_clock().monotonic()
        self._asked_at = self._began
        self._stopping = queue.stop_signal()

    def is_over(self) -> bool:
        """Whether the worker is wanted elsewhere: the cluster stops, or the time is up."""
        if self._stopping():
            return True
        if queue.is_inline():
            return False
        settings, now = get_settings(), get_clock().monotonic()
        if now - self._began >= settings.slice_seconds:
            return True
        if now - self._began < settings.slice_soft_seconds or now - self._asked_at < 1.0:
            return False
        self._asked_at = now
        waiting = Run.objects.filter(status=str(RunStatus.QUEUED)).exclude(pk=self._pk)
        return waiting.filter(Q(next_attempt_at=None) | Q(next_attempt_at__lte=database_now())).exists()


# Steer.


def cancel(run_id: str, *, by: str = "") -> Run:
    """End a run. A worker that is advancing it ends it at its next step; otherwise it ends here and now.

    Cancelling a cancelled run does nothing. ``by`` is the name of whoever asks; it is kept with the run.

    Raises:
        UnknownRunError: There is no such run.
        IllegalTransitionError: It is done.
    """
    run = get(run_id)
    store = DjangoStateStore()
    if not store.request(run_id, "cancel", by=by):
        return _unless(run_id, RunStatus.CANCELLED)
    claimed = store.claim(run_id, owner_name(), get_settings().lease_seconds, any_idle=True)
    if claimed is not None:
        checkpoint, lease = claimed
        endings.cancel(checkpoint)
        store.save(checkpoint, lease, progress=True, heed=False)
    run.refresh_from_db()
    return run


def pause(run_id: str, *, by: str = "") -> Run:
    """Stop a run until it is resumed: a queued one at once, a running one at its next step.

    ``by`` is the name of whoever asks; it is kept with the run.

    Raises:
        UnknownRunError: There is no such run.
        IllegalTransitionError: It has ended or waits for a decision.
    """
    get(run_id)
    queued = Run.objects.filter(run_id=run_id, status=str(RunStatus.QUEUED))
    paused = queued.update(
        status=str(RunStatus.PAUSED),
        error=endings.PAUSED,
        error_code="",
        requested_by=by[:200],
        updated_at=database_now(),
    )
    if not paused and not DjangoStateStore().request(run_id, "pause", by=by):
        return _unless(run_id, RunStatus.PAUSED)
    return get(run_id)


def _unless(run_id: str, wanted: RunStatus) -> Run:
    run = get(run_id)
    if run.status != str(wanted):
        raise IllegalTransitionError(run_id, run.status, str(wanted))
    return run


def resume(run_id: str) -> Run:
    """Have a paused or failed run go on, or a suspended one whose decisions are all taken.

    A finished run is left as it is; one that is queued has the queue told again.

    Raises:
        UnknownRunError: There is no such run.
        IllegalTransitionError: It waits for a person's decision.
    """
    run = get(run_id)
    alias = DjangoStateStore().alias
    with transaction.atomic(using=alias):
        if queue_if_decided(run.pk, alias, sources=RESUMABLE) or run.status == str(RunStatus.QUEUED):
            queue.ring(run_id, using=alias)
    run.refresh_from_db()
    if run.status == str(RunStatus.SUSPENDED):
        raise IllegalTransitionError(run_id, run.status, str(RunStatus.QUEUED), until="a person decides")
    return run


# Recover.


@dataclass(frozen=True)
class Recovery:
    """One run that the sweep found, and what became of it."""

    run_id: str
    agent: str
    why: str
    """What was found."""
    error: str = ""
    """Why nothing could be done about it."""


def recover(
    *,
    run_id: str | None = None,
    agent: str | None = None,
    failed: bool = False,
    limit: int | None = None,
    dry_run: bool = False,
) -> Iterator[Recovery]:
    """Find runs that should be advancing and are not, and put each back on its way.

    It may run at any time, twice, and at the same time as itself: each run moves by one conditional update.
    Runs that wait for people are left alone.

    Args:
        run_id: Only this run.
        agent: Only runs of this agent.
        failed: Failed runs too.
        limit: Most runs.
        dry_run: Only say what would be done.
    """
    found = 0
    for run, why in _interrupted(run_id, agent, failed):
        if limit is not None and found >= limit:
            return
        try:
            if dry_run or _put_back(run):
                found += 1
                yield Recovery(run.run_id, run.agent, why)
        except Exception as exc:
            # One bad run must not keep the others waiting.
            logger.exception("a run could not be recovered", extra={"run_id": run.run_id})
            found += 1
            yield Recovery(run.run_id, run.agent, why, error=_sentence(exc))


def _sentence(exc: Exception) -> str:
    return exc.message if isinstance(exc, AnvilError) else f"{type(exc).__name__}: {exc}"


def _interrupted(run_id: str | None, agent: str | None, failed: bool) -> Iterator[tuple[Run, str]]:
    now = database_now()
    patience = timedelta(seconds=get_settings().ticket_seconds)
    pending = Approval.objects.filter(run_id=OuterRef("pk"), status=str(ApprovalStatus.PENDING))
    no_lease = Q(lease_until=None) | Q(lease_until__lt=now)
    due = Q(next_attempt_at=None) | Q(next_attempt_at__lte=now)
    unanswered = Q(ticket_at=None) | Q(ticket_at__lt=database_now(-patience))
    groups: list[tuple[str, Q]] = [
        ("its lease has expired", Q(status=str(RunStatus.RUNNING)) & no_lease),
        ("its worker is dead", Q(status=str(RunStatus.RUNNING)) & ~no_lease),
        ("the queue lost it", Q(status=str(RunStatus.QUEUED)) & due & unanswered),
        ("its decisions are taken", Q(Q(status=str(RunStatus.SUSPENDED)), ~Exists(pending))),
    ]
    if failed:
        groups.append(("it failed", Q(status=str(RunStatus.FAILED))))
    for why, condition in groups:
        runs = Run.objects.filter(condition).order_by("id")
        if run_id is not None:
            runs = runs.filter(run_id=run_id)
        if agent is not None:
            runs = runs.filter(agent=agent)
        for run in _in_chunks(runs):
            if why != "its worker is dead" or (is_here(run.lease_owner) and is_dead(run.lease_owner)):
                yield run, why


def _in_chunks(runs: QuerySet[Run]) -> Iterator[Run]:
    # Not one open cursor: on SQLite it would hold a snapshot that no write could get past.
    last = 0
    while chunk := list(runs.filter(pk__gt=last)[:500]):
        yield from chunk
        last = chunk[-1].pk


def _put_back(run: Run) -> bool:
    """Queue one interrupted run and tell the queue; False if it moved on meanwhile."""
    alias = DjangoStateStore().alias
    same = Run.objects.using(alias).filter(
        pk=run.pk, status=run.status, token=run.token, revision=run.revision
    )
    with transaction.atomic(using=alias):
        if run.status == str(RunStatus.RUNNING):
            # Under the token that was seen: a worker that has taken it since keeps it. The lease may have
            # been renewed by a worker that was only slow.
            moved = same.filter(lease_owner=run.lease_owner, lease_until=run.lease_until).update(
                status=str(RunStatus.QUEUED),
                recoveries=F("recoveries") + 1,
                lease_owner="",
                lease_until=None,
                error=INTERRUPTED,
                ticket_at=database_now(),
            )
        elif run.status == str(RunStatus.QUEUED):
            moved = same.filter(ticket_at=run.ticket_at).update(ticket_at=database_now())
        elif run.status == str(RunStatus.SUSPENDED):
            moved = queue_if_decided(run.pk, alias, sources=[RunStatus.SUSPENDED])
        else:
            moved = same.update(**queued_values())
        if moved:
            queue.ring(run.run_id, using=alias)
    return bool(moved)
