"""A further message from a person: to a run that has ended, or to one that is under way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction
from django.db.models import F

from . import exactjson, history, queue
from .conf import get_settings
from .errors import BadInputError, IllegalTransitionError, UnknownRunError
from .models import Message, Run, Steering, ToolCall
from .states import CONTINUABLE, CallStatus, RunStatus
from .stores.database_time import database_now
from .stores.decisions import queued_values
from .stores.django import DjangoStateStore

LIVE = (RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.SUSPENDED, RunStatus.PAUSED)


def say(run_id: str, content: str | Sequence[Mapping[str, Any]], *, by: str = "") -> Run:
    """Send a user message to a run: ``deliver`` without its second value."""
    return deliver(run_id, content, by=by)[0]


def deliver(run_id: str, content: str | Sequence[Mapping[str, Any]], *, by: str = "") -> tuple[Run, bool]:
    """Send a user message to a run; also says whether it has its place already, or waits for one.

    A finished, failed or cancelled run goes on with it. For a live one it waits until the API has a place for
    it: after the results of the turn under way, or where the turn would have ended the run.

    Args:
        run_id: The run.
        content: A text, or content blocks.
        by: Name of the sender; kept with the message.

    Raises:
        UnknownRunError: There is no such run.
        BadInputError: The content cannot be sent.
        IllegalTransitionError: The run has failed in the middle of a turn: resume it first.
    """
    stored = _checked(content)
    alias = DjangoStateStore().alias
    with transaction.atomic(using=alias):
        run = Run.objects.using(alias).select_for_update().filter(run_id=run_id).first()
        if run is None:
            raise UnknownRunError(run_id)
        live = run.status in LIVE
        if live:
            Run.objects.using(alias).filter(pk=run.pk).update(steering_waits=True)
            Steering.objects.using(alias).create(
                run=run, content=exactjson.dumps(stored), sender=by[:200], created_at=database_now()
            )
        else:
            _continue(run, stored, alias)
            queue.ring(run_id, using=alias)
    run.refresh_from_db()
    return run, not live


def _continue(run: Run, content: Any, alias: str) -> None:
    open_calls = ToolCall.objects.using(alias).filter(run=run).exclude(status=str(CallStatus.DONE))
    if open_calls.exclude(effect="limit").exists():
        raise IllegalTransitionError(
            run.run_id, run.status, str(RunStatus.QUEUED), until="its turn is answered"
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


def _checked(content: Any) -> Any:
    if not isinstance(content, (str, Sequence)) or isinstance(content, (bytes, bytearray)):
        raise BadInputError("The message must be a text or a list of content blocks.")
    message = {"role": "user", "content": content}
    stored = history.from_input([message], limit=get_settings().input_limit)
    return stored[0]["content"]
