"""Each decision names a person, is about what was stored, stands once and is used once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ..facts import Finding
from .rows import Approval, Call, Decision, Tables, digest

NOBODY = "nobody in time"
_WITH_A_SESSION = {"admin", "api"}
"""Channels on which a person has signed in."""
_OF_KIND = {
    "tool": {"approved", "edited", "answered", "rejected", "expired"},
    "in_doubt": {"happened", "not_happened", "unknown"},
    "limit": {"approved", "edited", "rejected", "expired"},
}
_USES_UP = {"approved", "edited", "not_happened"}
"""Verdicts by which a tool runs."""


def check_decisions(tables: Tables) -> Iterator[Finding]:
    """Every approval and every decision, by itself and against its call."""
    for approval in tables.approvals:
        call, run_id = tables.call_by_key[approval.call_id], tables.names[approval.run_id]
        rows = tables.decisions_of[approval.id]
        for row in rows:
            yield from (Finding(k, run_id, f"{approval.tool}: {s}") for k, s in _person(approval, row))
        found = [
            *_digests(approval, call, rows, run_id),
            *_standing(approval, rows),
            *_use(approval, call, rows),
        ]
        yield from (Finding(kind, run_id, f"{approval.tool}: {sentence}") for kind, sentence in found)


def _person(approval: Approval, row: Decision) -> Iterator[tuple[str, str]]:
    expired = row.verdict == "expired"
    if expired != (row.channel == "expiry") or expired != (row.reviewer == NOBODY):
        yield "decision without a person", f"{row.verdict} by {row.reviewer!r} through {row.channel}"
    elif not row.reviewer.strip() or (row.channel in _WITH_A_SESSION and not row.reviewer_key):
        yield "decision without a person", f"{row.verdict} by {row.reviewer!r}, whose account is not noted"
    if row.verdict not in _OF_KIND[approval.kind]:
        yield (
            "approval and decisions differ",
            f"{row.verdict} does not answer a question of kind {approval.kind}",
        )


def _digests(approval: Approval, call: Call, rows: list[Decision], run_id: str) -> Iterator[tuple[str, str]]:
    stored = json.loads(call.input)
    allowed = {digest(run_id, call.call_id, call.name, stored)}
    for row in rows:
        parts: list[Any] = [run_id, call.call_id, call.name]
        parts.append(json.loads(row.edited_input) if row.edited_input else stored)
        if row.answer and json.loads(row.answer) is not None:
            parts.append(json.loads(row.answer))
        if digest(*parts) != row.digest:
            yield "digest mismatch", f"what {row.reviewer} decided about is not what is stored"
        allowed.add(row.digest)
    stands = rows[-1].digest if approval.status == "approved" and rows else approval.digest
    if approval.digest not in allowed or approval.digest != stands or approval.tool != call.name:
        yield "digest mismatch", "the approval is bound to something else than is stored"


def _standing(approval: Approval, rows: list[Decision]) -> Iterator[tuple[str, str]]:
    """Follow the decisions one by one to where the approval must stand."""
    status, agreed = "pending", list[Decision]()
    for row in rows:
        if status != "pending":
            yield "decided twice", f"{row.reviewer} decided it when it was {status} already"
            return
        if not row.says_yes:
            status = "expired" if row.verdict == "expired" else "rejected"
            continue
        agreed = [*(other for other in agreed if other.digest == row.digest), row]
        people = {other.reviewer_key or other.reviewer for other in agreed}
        if len(people) < len(agreed):
            yield "decided twice", f"{row.reviewer} counts for two people"
        if len(people) >= approval.needed:
            status = "approved"
    if approval.status != status and not (approval.status == "void" and status == "pending"):
        yield "approval and decisions differ", f"it is {approval.status}, by its decisions {status}"
    elif approval.status != "pending" and approval.decided_at is None:
        yield "approval and decisions differ", f"it is {approval.status}, and nobody knows since when"


def _use(approval: Approval, call: Call, rows: list[Decision]) -> Iterator[tuple[str, str]]:
    """A yes is used up by the start it led to, and by nothing else."""
    if approval.kind == "limit":
        return
    runs_it = approval.status == "approved" and bool(rows) and rows[-1].verdict in _USES_UP
    if approval.used_at is not None and not runs_it:
        yield "approval misused", f"it was used, and it is {approval.status}"
    elif approval.used_at is not None and not call.attempts and call.outcome not in {"", "cancelled"}:
        yield "approval misused", f"it was used, and {call.call_id} was never started"
    elif runs_it and approval.used_at is None and call.outcome in {"returned", "failed"}:
        yield "approval misused", f"{call.call_id} ran and did not use it up"
