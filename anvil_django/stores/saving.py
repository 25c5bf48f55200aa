"""One save: what of a checkpoint is new, and how it is written with all that follows from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from django.db import connections, transaction

from ..calls import ToolCall
from ..checkpoint import AgentCheckpoint
from ..clock import get_clock
from ..conf import get_settings
from ..models import Message as MessageRow
from ..models import ToolCall as ToolCallRow
from ..states import CallStatus
from . import decisions
from .base import ApprovalUnusableError
from .database_time import Now
from .rows import call_values, message_values, new_call_values
from .statements import Changes, Values

Asked = list[tuple[ToolCall, int]]
"""Calls with the keys of the approvals that were created for them."""


MOST_AT_ONCE = 100
"""Rows that are written in one statement; with many more, planning it takes longer than it saves."""


class Refused(Exception):  # noqa: N818 (a jump out of the transaction, not an error)
    """The run's row does not hold what it must, or a call has its result already; nothing was written."""


def add(checkpoint: AgentCheckpoint, alias: str) -> Asked:
    """Write all rows of a new run but its own, in the caller's transaction."""
    _changes(checkpoint, {}, {}).add(connections[alias])
    return [_ask(call, checkpoint, alias) for call in _new_or_changed(checkpoint) if _is_to_be_asked(call)]


def write(
    checkpoint: AgentCheckpoint,
    alias: str,
    *,
    held: Values,
    run: Values,
    then: Sequence[Callable[[AgentCheckpoint], None]] = (),
) -> Asked:
    """Write the run's row and what is new, all or nothing.

    Args:
        held: What the row must hold now.
        run: What it holds afterwards.
        then: What else belongs to the transaction.

    Returns:
        The approvals asked for by the way.

    Raises:
        Refused: The row does not hold ``held``.
        ApprovalUnusableError: The decision under which a call was to start does not stand.
    """
    connection = connections[alias]
    changes = _changes(checkpoint, held, run)
    reviewed = [call for call in _new_or_changed(checkpoint) if _concerns_people(call)]
    if not reviewed and not then and changes.rows <= MOST_AT_ONCE and _takes_all_at_once(connection):
        if not changes.write_at_once(connection):
            raise Refused
        return []
    with transaction.atomic(using=alias):
        if not changes.write(connection):
            raise Refused
        asked = _tell_people(reviewed, checkpoint, alias)
        for step in then:
            step(checkpoint)
    return asked


def is_stored(checkpoint: AgentCheckpoint, alias: str) -> bool:
    """Whether what is new of messages and calls is stored as it is here: by a save whose answer was lost."""
    changes = _changes(checkpoint, {}, {})
    rows = MessageRow.objects.using(alias).filter(run_id=changes.run_pk)
    messages = {row["seq"]: row["content"] for row in changes.messages}
    if dict(rows.filter(seq__in=messages).values_list("seq", "content")) != messages:
        return False
    for call in _new_or_changed(checkpoint):
        values = call_values(call, checkpoint.revision + 1, None)
        names = [name for name in values if not name.endswith("_at")]
        calls = ToolCallRow.objects.using(alias).filter(run_id=changes.run_pk, call_id=call.call_id)
        if calls.values(*names).first() != {name: values[name] for name in names}:
            return False
    return True


def mark_saved(checkpoint: AgentCheckpoint, asked: Asked) -> None:
    """Note that all is stored, once the transaction is over: a failed save is tried again as it was."""
    for call, approval_pk in asked:
        call.approval_id = approval_pk
    for call in (*checkpoint.unsaved_calls.values(), *checkpoint.questions):
        call.consuming, call.stored = False, True
    checkpoint.mark_saved(get_clock().now())


def _takes_all_at_once(connection: Any) -> bool:
    return connection.vendor == "postgresql" and get_settings().save_in_one_statement


def _new_or_changed(checkpoint: AgentCheckpoint) -> list[ToolCall]:
    new = {c.call_id: c for c in checkpoint.questions if not c.stored}
    return list({**new, **checkpoint.unsaved_calls}.values())


def _changes(checkpoint: AgentCheckpoint, held: Values, run: Values) -> Changes:
    now, revision, key = get_clock().now(), checkpoint.revision + 1, checkpoint.store_key
    calls = _new_or_changed(checkpoint)
    return Changes(
        run_pk=key,
        held=held,
        run=run,
        messages=[
            message_values(key, seq, message, meta, revision, now)
            for seq, message, meta in checkpoint.unsaved_messages()
            if not meta.derived
        ],
        calls=[new_call_values(key, call, revision, now) for call in calls if not call.stored],
        changed={call.call_id: call_values(call, revision, Now()) for call in calls if call.stored},
    )


# Calls that people are or were asked about.


def _concerns_people(call: ToolCall) -> bool:
    return call.consuming or _is_to_be_asked(call) or _is_void(call)


def _is_to_be_asked(call: ToolCall) -> bool:
    return call.undecided and call.approval_id is None


def _is_void(call: ToolCall) -> bool:
    """Whether it has its result, and nobody has to decide about it any more."""
    return call.status is CallStatus.DONE and call.approval_id is not None and call.decision is None


def _tell_people(calls: list[ToolCall], checkpoint: AgentCheckpoint, alias: str) -> Asked:
    asked: Asked = []
    for call in calls:
        if call.consuming and not decisions.use(call, alias):
            raise ApprovalUnusableError(call.call_id)
        if _is_void(call):
            decisions.void(call.approval_id, alias)
        if _is_to_be_asked(call):
            asked.append(_ask(call, checkpoint, alias))
    return asked


def _ask(call: ToolCall, checkpoint: AgentCheckpoint, alias: str) -> tuple[ToolCall, int]:
    revision = checkpoint.revision + 1
    return call, decisions.ask(checkpoint.store_key, call, checkpoint.run_id, revision, alias)
