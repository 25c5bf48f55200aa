"""A new run from the middle of another one's history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction
from django.utils.translation import gettext as _

from . import history, queue
from .checkpoint import AgentCheckpoint
from .conf import get_settings
from .errors import BadInputError, IllegalTransitionError, UnknownRunError
from .identity import check_metadata, check_run_id, new_run_id
from .models import Message, Run
from .states import TERMINAL
from .stores.database_time import database_now
from .stores.django import DjangoStateStore


def fork(
    run_id: str,
    *,
    iteration: int | None = None,
    message: str | Sequence[Mapping[str, Any]] | None = None,
    user: Any = None,
    new_id: Any = None,
    metadata: Mapping[str, Any] | None = None,
) -> Run:
    """Start a new run from a run that has ended, as it was after one of its iterations.

    The new run has the same frozen prefix and a copy of the history up to there. It shares no side effect:
    what was done stays done and is part of what the model reads, and no call of the old run is run again.
    Usage and limits begin anew.

    Args:
        run_id: A finished, failed or cancelled run.
        iteration: After which of its stored model answers; 0: only its input; None: all of them.
        message: A user message to go on with; needed where the history ends with the model's turn.
        user: Who starts it.
        new_id: The new run's id; None: a time-ordered UUID.
        metadata: JSON values for the new run; None: those of the old one.

    Raises:
        UnknownRunError: There is no such run.
        IllegalTransitionError: It has not ended.
        BadInputError: There is no such iteration, or it needs a message.
        RunIdTakenError: ``new_id`` is in use.
    """
    store = DjangoStateStore()
    parent = store.load(run_id)
    if parent is None:
        raise UnknownRunError(run_id)
    if parent.status not in TERMINAL:
        raise IllegalTransitionError(run_id, str(parent.status), "forked", until=_("it has ended"))
    answers = list(
        Message.objects.using(store.alias)
        .filter(run_id=parent.store_key, role="assistant")
        .exclude(stop_reason="")
        .order_by("seq")
        .values_list("seq", flat=True)
    )
    after = len(answers) if iteration is None else iteration
    messages = _cut(parent, answers, after)
    if message is not None:
        text = [{"role": "user", "content": message}]
        messages += history.from_input(text, limit=get_settings().input_limit)
    if messages[-1]["role"] == "assistant":
        raise BadInputError(
            _(
                "After iteration %(after)s the model has spoken last: give a message to go on with, "
                "or fork from an earlier iteration."
            )
            % {"after": after}
        )
    child = AgentCheckpoint(
        run_id=new_run_id() if new_id is None else check_run_id(new_id),
        agent=parent.agent,
        prefix=parent.prefix,
        messages=messages,
        limits=parent.limits,
        metadata=parent.metadata if metadata is None else check_metadata(metadata),
        container=parent.container,
    )
    with transaction.atomic(using=store.alias):
        run = store.insert(
            child,
            user=user,
            forked_from_id=parent.store_key,
            forked_at=after,
            ticket_at=database_now(),
        )
        queue.ring(run.run_id, using=store.alias)
    return run


def _cut(parent: AgentCheckpoint, answers: list[int], after: int) -> list[dict[str, Any]]:
    """The history up to an answer and the results of its calls."""
    if isinstance(after, bool) or not isinstance(after, int) or not 0 <= after <= len(answers):
        raise BadInputError(
            _("Run %(run_id)r has %(count)s stored iterations; %(after)r is not one of 0 to %(count)s.")
            % {"run_id": parent.run_id, "count": len(answers), "after": after}
        )
    if after < len(answers):
        end = answers[after]
    else:
        end = len(parent.messages)
    messages = parent.messages[:end]
    if (after == len(answers) and parent.calls) or history.open_calls(messages):
        # A failed run may have died in the middle of a turn: what has no result cannot be sent.
        raise BadInputError(
            _(
                "The turn of iteration %(after)s was never answered; "
                "fork from iteration %(before)s or earlier."
            )
            % {"after": after, "before": after - 1}
        )
    return messages
