"""Where each run stands: finished, or waiting for something that can be read; and its counters and fences."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta

from ..facts import Finding
from .rows import Approval, Run, Steering, Tables, digest

PATIENCE = timedelta(seconds=90)
"""How old the ticket of a queued run may be, and how long overdue it; a sweep a minute looks after both."""


def check_states(tables: Tables, now: datetime) -> Iterator[Finding]:
    """Every run is finished, or waits with a reason that can be read, and nothing it waits for is over."""
    for run in tables.runs:
        pending = [row for row in tables.approvals_of_run[run.id] if row.status == "pending"]
        found = [*_status(run, pending, now), *_questions(run, pending, tables), *_messages(run, tables)]
        yield from (Finding(kind, run.run_id, sentence) for kind, sentence in found)


def _status(run: Run, pending: list[Approval], now: datetime) -> Iterator[tuple[str, str]]:
    match run.status:
        case "running":
            if not run.lease_owner or run.lease_until is None or run.lease_until < now:
                yield "running without a lease", f"its lease ended at {run.lease_until}"
        case "queued":
            due = run.next_attempt_at is None or run.next_attempt_at < now - PATIENCE
            if due and (run.ticket_at is None or run.ticket_at < now - PATIENCE):
                yield "lost wake-up", f"queued and due; the queue was last told at {run.ticket_at}"
        case "suspended":
            if not pending:
                yield "lost wake-up", "suspended, and no approval of it is pending"
        case "paused" | "failed":
            if not run.error.strip():
                yield "waits without a reason", f"{run.status}, and its error says nothing"
        case _:
            if not run.is_over or not run.stop_reason or run.finished_at is None:
                yield "ended without a reason", f"{run.status}, stop_reason {run.stop_reason!r}"
    if run.cancel_requested and run.status in {"suspended", "paused", "failed", "done"}:
        yield "request not heeded", f"its cancellation was asked for, and it is {run.status}"
    if run.status != "running" and (run.lease_owner or run.lease_until is not None):
        yield "lease left over", f"{run.status}, and leased until {run.lease_until}"


def _questions(run: Run, pending: list[Approval], tables: Tables) -> Iterator[tuple[str, str]]:
    """What waits for a person is waited for by a person, and nothing is asked after the end."""
    for approval in pending:
        call = tables.call_by_key[approval.call_id]
        if run.is_over:
            yield "asked after the end", f"{approval.tool} waits for a decision, and the run is {run.status}"
        elif call.status not in {"waiting", "in_doubt"}:
            yield (
                "question without a call",
                f"{approval.tool} is asked about, its call is {call.status}",
            )
    for call in tables.calls_and_limits_of[run.id]:
        if call.status not in {"waiting", "in_doubt"}:
            continue
        asked = tables.approvals_of_call[call.id]
        if not asked or asked[-1].status == "void":
            yield (
                "lost wake-up",
                f"{call.call_id} ({call.name}) is {call.status}, and nobody is asked",
            )


def _messages(run: Run, tables: Tables) -> Iterator[tuple[str, str]]:
    """A message sent to a run gets its one place as soon as there is one, or is known to wait."""
    rows = {row.seq: row for row in tables.messages_of[run.id]}
    places: set[int] = set()
    for sent in tables.steering_of[run.id]:
        if sent.placed_seq is None:
            yield from _waiting(run, sent, tables)
            continue
        row = rows.get(sent.placed_seq)
        if row is None or row.role != "user":
            yield "message undelivered", f"message {sent.placed_seq}, which was sent to it, is not there"
        elif sent.content and json.loads(sent.content) != json.loads(row.content):
            yield "message undelivered", f"message {sent.placed_seq} is not the one that was sent"
        if sent.placed_seq in places:
            yield "message undelivered", f"two messages share the place {sent.placed_seq}"
        places.add(sent.placed_seq)


def _waiting(run: Run, sent: Steering, tables: Tables) -> Iterator[tuple[str, str]]:
    answers = [row for row in tables.messages_of[run.id] if row.is_answer and row.stop_reason != "pause_turn"]
    later = [r for r in answers if r.created_at and sent.created_at and r.created_at > sent.created_at]
    if run.status == "done" and run.stop_reason in {"end_turn", "stop_sequence"}:
        yield "message undelivered", f"sent at {sent.created_at}, and the run is done without it"
    elif len(later) > 1:  # One may have been under way.
        yield "message undelivered", f"sent at {sent.created_at}, and {len(later)} answers came since"
    elif not run.steering_waits:
        yield "message undelivered", f"sent at {sent.created_at}, and the run does not know that it waits"


def check_fences(tables: Tables) -> Iterator[Finding]:
    """Numbers that only grow have grown, and no row is newer than its run."""
    for version in tables.versions:
        if digest(version.agent, version.prefix) != version.digest:
            yield Finding("agent version changed", "", f"the prefix of {version.agent} is not the one stored")
    for run in tables.runs:
        found = [*_revisions(run, tables), *_tokens(run, tables), *_counters(run, tables)]
        yield from (Finding(kind, run.run_id, sentence) for kind, sentence in found)


def _revisions(run: Run, tables: Tables) -> Iterator[tuple[str, str]]:
    kind, last = "revision out of order", 0
    made: dict[int, int] = {}
    for row in tables.messages_of[run.id]:
        made[row.seq] = row.revision
        if not last <= row.revision <= run.revision:
            yield kind, f"message {row.seq} has revision {row.revision}, after {last}, run {run.revision}"
        last = max(last, row.revision)
    for call in tables.calls_of[run.id]:
        steps = [call.created_revision, call.started_revision, call.finished_revision]
        known = [step for step in steps if step is not None]
        if known != sorted(known) or known[-1] > run.revision or known[0] < made.get(call.seq, 0):
            yield kind, f"{call.call_id} has revisions {steps}, the run has {run.revision}"
    for approval in tables.approvals_of_run[run.id]:
        decided = [row.revision for row in tables.decisions_of[approval.id]]
        if [approval.revision, *decided, run.revision] != sorted([approval.revision, *decided, run.revision]):
            yield kind, f"approval {approval.id} has revisions {approval.revision}, {decided}"


def _tokens(run: Run, tables: Tables) -> Iterator[tuple[str, str]]:
    kind = "token out of order"
    for call in tables.calls_of[run.id]:
        if call.started_token > run.token:
            yield kind, f"{call.call_id} was started under {call.started_token}, the run has {run.token}"
        if call.status == "started" and call.attempts < 1:
            yield kind, f"{call.call_id} is started and was never attempted"
    if run.token < 1 and (run.iterations or run.status in {"running", "done"}):
        yield kind, f"{run.status} after {run.iterations} iterations, and nobody ever held it"


def _counters(run: Run, tables: Tables) -> Iterator[tuple[str, str]]:
    answers = sum(row.is_answer for row in tables.messages_of[run.id])
    # Refused, cut and empty answers count and leave no row.
    if run.iterations < answers:
        yield "counters differ", f"{run.iterations} iterations, and {answers} answers are stored"
    # Each loss of a worker was preceded by a claim.
    if run.recoveries > run.token:
        yield "counters differ", f"{run.recoveries} recoveries, and it was claimed {run.token} times"
