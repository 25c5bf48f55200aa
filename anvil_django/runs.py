"""The one door to change a run: start, advance, cancel, pause, resume, retry, say, fork, recover.

The last three have modules of their own (``continuing``, ``forking``, ``recovery``) and are called from here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop, override

from . import endings, exactjson, history, queue
from .agents import Agent, get_agent
from .boundaries import reach
from .checkpoint import CHECKPOINT_VERSION, AgentCheckpoint, AgentResult
from .clock import get_clock
from .conf import get_settings
from .continuing import deliver, say
from .errors import (
    IdempotencyKeyReusedError,
    IllegalTransitionError,
    LeaseLostError,
    RunIdTakenError,
    UnknownAgentError,
    UnknownRunError,
)
from .forking import fork
from .identity import check_idempotency_key, check_metadata, check_run_id, new_run_id, storable_name
from .leases import Lease, owner_name
from .loop import Loop
from .models import Run
from .recovery import Recovery, recover
from .states import RESUMABLE, UNFINISHED, RunStatus
from .stores.base import ONLY_CANCEL, RunRequestedError
from .stores.database_time import database_now
from .stores.decisions import queue_if_decided
from .stores.django import DjangoStateStore, request_digest

__all__ = [
    "Recovery",
    "Slice",
    "advance_slice",
    "cancel",
    "deliver",
    "fork",
    "get",
    "get_or_start",
    "pause",
    "recover",
    "resume",
    "retry",
    "say",
    "start",
]

logger = logging.getLogger(__name__)

LEFT_ALONE = gettext_noop(
    "Waits for a worker with a newer anvil_django: it was saved by one, and a worker that reads checkpoints "
    "up to version {known} left it alone."
)
THEN_RESUME = gettext_noop("{why} Then resume the run.")
CANCEL_LOOKS = 10
"""How often a run that is to be cancelled may change hands between two looks at it."""
AGENT_MISSING_RETRY = 30.0
"""Seconds until a run whose agent this process does not know is offered to a worker again."""


def get(run_id: str) -> Run:
    """The run of that run_id.

    Raises:
        UnknownRunError: There is none.
    """
    run = Run.objects.filter(run_id=exactjson.clean_text(str(run_id))).first()
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
    run, _created = get_or_start(
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
    check_idempotency_key(idempotency_key)
    store = DjangoStateStore()
    existing = _existing(checkpoint, run_id, user, idempotency_key)
    if existing is not None:
        return existing, False
    with transaction.atomic(using=store.alias):
        try:
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
        Where it stands now; None when it could not be taken: it is held, not due, not queued, or saved by a
        later version of this package.
    """
    store = DjangoStateStore()
    claimed = store.claim(run_id, owner_name(), get_settings().lease_seconds)
    if claimed is None:
        _note_if_newer(run_id, store.alias)
        return None
    checkpoint, lease = claimed
    try:
        checkpoint = _advance(store, checkpoint, lease, should_stop)
    except LeaseLostError:
        logger.info("the run was taken over by another worker", extra={"run_id": run_id})
        return None
    except BaseException:
        with suppress(Exception):
            reach("run.giving_up")
            store.release(lease)  # Wherever it was: the next sweep need not wait for the lease to run out.
        raise
    if checkpoint.status is RunStatus.QUEUED:
        _ring_when_due(checkpoint, store.alias)
    return AgentResult.of(checkpoint)


def _note_if_newer(run_id: str, alias: str) -> None:
    """Say, once for each run, that a worker of this version met it and left it alone."""
    newer = Run.objects.using(alias).filter(
        run_id=run_id, status=str(RunStatus.QUEUED), checkpoint_version__gt=CHECKPOINT_VERSION
    )
    why = LEFT_ALONE.format(known=CHECKPOINT_VERSION)
    # The ticket is used up: without one, the next sweep of a newer worker finds the run.
    if newer.exclude(error=why).update(error=why, ticket_at=None):
        logger.warning("left alone: a newer anvil_django has saved this run", extra={"run_id": run_id})


def _advance(
    store: DjangoStateStore, checkpoint: AgentCheckpoint, lease: Lease, should_stop: Callable[[], bool] | None
) -> AgentCheckpoint:
    try:
        agent = get_agent(checkpoint.agent)
    except UnknownAgentError as exc:
        _without_agent(checkpoint, exc)
        try:
            store.save(checkpoint, lease, progress=False, heed=ONLY_CANCEL)
        except RunRequestedError:
            endings.cancel(checkpoint)
            store.save(checkpoint, lease, progress=True, heed=())
        return checkpoint
    stop = should_stop or Slice(checkpoint.run_id, checkpoint.store_key).is_over
    load_user = store.user_loader(checkpoint.run_id)
    loop = Loop(agent, checkpoint, store, lease, load_user=load_user, should_stop=stop)
    for _event in loop.events():
        pass
    return loop.checkpoint


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
    with override(None):  # What is stored is English, whatever the site speaks.
        checkpoint.error_code, checkpoint.error = exc.code, UnknownAgentError(exc.name, exc.known).message
    if checkpoint.attempt < get_settings().max_model_attempts:
        checkpoint.status = RunStatus.QUEUED
        checkpoint.next_attempt_at = get_clock().now() + timedelta(seconds=AGENT_MISSING_RETRY)
    else:
        checkpoint.status = RunStatus.PAUSED
        checkpoint.error = THEN_RESUME.format(why=checkpoint.error)


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
        NewerCheckpointError: Nobody advances it, and only a later version of this package could end it.
    """
    store = DjangoStateStore()
    for _look in range(CANCEL_LOOKS):
        run = get(run_id)
        if run.status in map(str, RESUMABLE):
            run.check_readable()
        asked = store.request(run_id, "cancel", by=by)
        claimed = store.claim(run_id, owner_name(), get_settings().lease_seconds, any_idle=True)
        if claimed is not None:
            checkpoint, lease = claimed
            endings.cancel(checkpoint)
            store.save(checkpoint, lease, progress=True, heed=())
            _note_who(run, by, store.alias)
        elif not asked and get(run_id).status in UNFINISHED:
            continue  # It went from a worker's hands to its rest between the two.
        elif not asked:
            return _unless(run_id, RunStatus.CANCELLED)
        return get(run_id)
    raise IllegalTransitionError(
        run_id, run.status, str(RunStatus.CANCELLED), until=_("it rests for a moment")
    )


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
        requested_by=storable_name(by),
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


def resume(run_id: str, *, by: str = "") -> Run:
    """Have a paused or failed run go on, or a suspended one whose decisions are all taken.

    A finished run is left as it is; one that is queued has the queue told again. ``by`` is the name of
    whoever asks; it is kept with the run.

    Raises:
        UnknownRunError: There is no such run.
        IllegalTransitionError: It waits for a person's decision.
    """
    run = get(run_id)
    alias = DjangoStateStore().alias
    with transaction.atomic(using=alias):
        queued = queue_if_decided(run.pk, alias, sources=RESUMABLE)
        if queued:
            _note_who(run, by, alias)
        if queued or run.status == str(RunStatus.QUEUED):
            queue.ring(run_id, using=alias)
    run = get(run_id)  # Or it has been pruned meanwhile.
    if run.status == str(RunStatus.SUSPENDED):
        raise IllegalTransitionError(run_id, run.status, str(RunStatus.QUEUED), until=_("a person decides"))
    return run


def retry(run_id: str, *, by: str = "") -> Run:
    """Have a failed run go on from its last stored step.

    ``by`` is the name of whoever asks; it is kept with the run.

    Raises:
        UnknownRunError: There is no such run.
        IllegalTransitionError: It has not failed.
    """
    run = get(run_id)
    alias = DjangoStateStore().alias
    with transaction.atomic(using=alias):
        if not queue_if_decided(run.pk, alias, sources=[RunStatus.FAILED]):
            raise IllegalTransitionError(run_id, get(run_id).status, str(RunStatus.QUEUED))
        _note_who(run, by, alias)
        queue.ring(run_id, using=alias)
    run.refresh_from_db()
    return run


def _note_who(run: Run, by: str, alias: str) -> None:
    if by:
        Run.objects.using(alias).filter(pk=run.pk).update(requested_by=storable_name(by))
