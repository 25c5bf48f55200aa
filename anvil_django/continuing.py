"""A further message from a person: to a run that has ended, or to one that is under way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction
from django.db.models import F
from django.utils.translation import gettext as _

from . import exactjson, history, queue
from .conf import get_settings
from .errors import BadInputError, IdempotencyKeyReusedError, IllegalTransitionError, UnknownRunError
from .identity import check_idempotency_key, storable_name
from .models import Message, Run, Steering, ToolCall
from .states import CONTINUABLE, CallStatus, RunStatus
from .stores.database_time import database_now
from .stores.decisions import queued_values
from .stores.django import DjangoStateStore

LIVE = (RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.SUSPENDED, RunStatus.PAUSED)


def say(
    run_id: str,
    content: str | Sequence[Mapping[str, Any]],
    *,
    by: str = "",
    idempotency_key: str | None = None,
) -> Run:
    """Send a user message to a run: ``deliver`` without its second value."""
    return deliver(run_id, content, by=by, idempotency_key=idempotency_key)[0]


def deliver(
    run_id: str,
    content: str | Sequence[Mapping[str, Any]],
    *,
    by: str = "",
    idempotency_key: str | None = None,
) -> tuple[Run, bool]:
    """Send a user message to a run; also says whether it has its place already, or waits for one.

    A finished, failed or cancelled run goes on with it. For a live one it waits until the API has a place for
    it: after the results of the turn under way, or where the turn would have ended the run.

    Args:
        run_id: The run.
        content: A text, or content blocks.
        by: Name of the sender; kept with the message.
        idempotency_key: The same message with the same key is sent to this run once.

    Raises:
        UnknownRunError: There is no such run.
        BadInputError: The content cannot be sent.
        IdempotencyKeyReusedError: The key belongs to another message to this run.
        NewerCheckpointError: It has ended, and a later version of this package has saved it.
        IllegalTransitionError: The run has failed in the middle of a turn: resume it first.
    """
    stored = _checked(content)
    key = check_idempotency_key(idempotency_key)
    alias = DjangoStateStore().alias
    with transaction.atomic(using=alias):
        same = Run.objects.using(alias).select_for_update().filter(run_id=exactjson.clean_text(run_id))
        run = same.first()
        if run is None:
            raise UnknownRunError(run_id)
        before = _sent_before(run, stored, key, alias)
        if before is not None:
            return run, before.placed_seq is not None
        live = run.status in LIVE
        message = Steering(
            run=run,
            sender=storable_name(by),
            idempotency_key=key,
            content_digest=exactjson.digest(stored) if key else "",
            created_at=database_now(),
        )
        if live:
            Run.objects.using(alias).filter(pk=run.pk).update(steering_waits=True)
            message.content = exactjson.dumps(stored)
            message.save(using=alias)
        else:
            _continue(run, stored, alias)
            if key is not None:
                # It has its place, and its content there: what is left to keep is that it was sent.
                message.placed_seq = run.message_count
                message.save(using=alias)
            queue.ring(run_id, using=alias)
    run.refresh_from_db()
    return run, not live


def _sent_before(run: Run, content: Any, key: str | None, alias: str) -> Steering | None:
    """The same message, sent with the same key."""
    if key is None:
        return None
    found = Steering.objects.using(alias).filter(run=run, idempotency_key=key).first()
    if found is not None and found.content_digest != exactjson.digest(content):
        raise IdempotencyKeyReusedError(key)
    return found


def _continue(run: Run, content: Any, alias: str) -> None:
    run.check_readable()
    open_calls = ToolCall.objects.using(alias).filter(run=run).exclude(status=str(CallStatus.DONE))
    if open_calls.exclude(effect="limit").exists() or _has_paused_calls(run, alias):
        raise IllegalTransitionError(
            run.run_id, run.status, str(RunStatus.QUEUED), until=_("its turn is answered")
        )
    same = Run.objects.using(alias).filter(
        pk=run.pk, status__in=[str(s) for s in CONTINUABLE], revision=run.revision
    )
    values = {**queued_values(), "pauses": 0, "cancel_requested": False}
    if not same.update(**values, message_count=F("message_count") + 1, revision=F("revision") + 1):
        raise IllegalTransitionError(run.run_id, run.status, str(RunStatus.QUEUED))
    Message.objects.using(alias).create(
        run=run,
        seq=run.message_count,
        role="user",
        content=exactjson.dumps(content),
        revision=run.revision + 1,
        created_at=database_now(),
    )


def _has_paused_calls(run: Run, alias: str) -> bool:
    """Whether the run failed after the model had paused a turn with calls in it, which nothing answers."""
    tail: list[dict[str, Any]] = []
    rows = Message.objects.using(alias).filter(run=run).order_by("-seq")
    for seq, role, content in rows.values_list("seq", "role", "content").iterator(chunk_size=20):
        if role != "assistant" or seq != run.message_count - 1 - len(tail):
            break
        tail.insert(0, {"role": role, "content": exactjson.loads(content)})
    return bool(history.open_calls(tail))


def _checked(content: Any) -> Any:
    if not isinstance(content, (str, Sequence)) or isinstance(content, (bytes, bytearray)):
        raise BadInputError(_("The message must be a text or a list of content blocks."))
    message = {"role": "user", "content": content}
    stored = history.from_input([message], limit=get_settings().input_limit)
    return stored[0]["content"]
