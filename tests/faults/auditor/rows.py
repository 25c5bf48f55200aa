"""The tables as the auditor reads them: plain SQL over a DB-API connection, and nothing of the runtime."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property
from typing import Any, TypeVar

from ..facts import Vendor

PLACES = Decimal("1e-10")
"""Money is stored with ten places; SQLite keeps it as a float."""
LIMIT = "limit"
"""``effect`` of a question about a limit, which is kept among the calls and is none."""


@dataclass(frozen=True, slots=True)
class Run:
    """A row of ``anvil_django_run``; the columns are those of its model, here and below."""

    id: int
    run_id: str
    version_id: int
    status: str
    stop_reason: str
    error_code: str
    error: str
    iterations: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    cost_usd: Decimal | None
    message_count: int
    next_attempt_at: datetime | None
    ticket_at: datetime | None
    cancel_requested: bool
    steering_waits: bool
    token: int
    revision: int
    recoveries: int
    lease_owner: str
    lease_until: datetime | None
    finished_at: datetime | None

    @property
    def is_over(self) -> bool:
        return self.status in {"done", "cancelled"}


@dataclass(frozen=True, slots=True)
class Message:
    id: int
    run_id: int
    seq: int
    role: str
    content: str
    stop_reason: str
    model: str
    usage: str
    cost_usd: Decimal | None
    message_id: str
    revision: int
    created_at: datetime | None

    @property
    def is_answer(self) -> bool:
        """Whether the model gave it in this run: what a fork or a caller brought along has no stop reason."""
        return self.role == "assistant" and self.stop_reason != ""


@dataclass(frozen=True, slots=True)
class Call:
    id: int
    run_id: int
    seq: int
    index: int
    call_id: str
    name: str
    input: str
    effect: str
    on_interrupt: str
    status: str
    outcome: str
    attempts: int
    started_token: int
    result: str | None
    is_error: bool
    created_revision: int
    started_revision: int | None
    finished_revision: int | None


@dataclass(frozen=True, slots=True)
class Approval:
    id: int
    run_id: int
    call_id: int
    kind: str
    status: str
    tool: str
    digest: str
    needed: int
    revision: int
    decided_at: datetime | None
    used_at: datetime | None


@dataclass(frozen=True, slots=True)
class Decision:
    id: int
    approval_id: int
    reviewer: str
    reviewer_key: str
    channel: str
    verdict: str
    edited_input: str
    answer: str
    digest: str
    revision: int
    created_at: datetime | None

    @property
    def says_yes(self) -> bool:
        return self.verdict in {"approved", "edited", "answered", "happened", "not_happened"}


@dataclass(frozen=True, slots=True)
class Steering:
    id: int
    run_id: int
    content: str
    created_at: datetime | None
    placed_seq: int | None


@dataclass(frozen=True, slots=True)
class Version:
    id: int
    agent: str
    digest: str
    prefix: str


@dataclass(frozen=True, slots=True)
class Refund:
    """A row of the example shop, which the campaign's atomic tools write."""

    id: int
    reason: str
    idempotency_key: str


T = TypeVar("T")
Key = TypeVar("Key")


@dataclass(frozen=True)
class Tables:
    """All rows, each table in the order of its keys, and the ways between them."""

    runs: list[Run]
    messages: list[Message]
    calls: list[Call]
    approvals: list[Approval]
    decisions: list[Decision]
    steering: list[Steering]
    versions: list[Version]
    refunds: list[Refund]

    @cached_property
    def run_by_name(self) -> dict[str, Run]:
        return {run.run_id: run for run in self.runs}

    @cached_property
    def names(self) -> dict[int, str]:
        """Run ids by the key of the run."""
        return {run.id: run.run_id for run in self.runs}

    @cached_property
    def messages_of(self) -> defaultdict[int, list[Message]]:
        return _grouped(sorted(self.messages, key=lambda row: row.seq), lambda row: row.run_id)

    @cached_property
    def calls_of(self) -> defaultdict[int, list[Call]]:
        """The calls of each run, without questions about limits."""
        rows = [row for row in self.calls if row.effect != LIMIT]
        return _grouped(sorted(rows, key=lambda row: (row.seq, row.index, row.id)), lambda row: row.run_id)

    @cached_property
    def calls_and_limits_of(self) -> defaultdict[int, list[Call]]:
        return _grouped(self.calls, lambda row: row.run_id)

    @cached_property
    def call_by_key(self) -> dict[int, Call]:
        return {row.id: row for row in self.calls}

    @cached_property
    def approvals_of_run(self) -> defaultdict[int, list[Approval]]:
        return _grouped(self.approvals, lambda row: row.run_id)

    @cached_property
    def approvals_of_call(self) -> defaultdict[int, list[Approval]]:
        return _grouped(self.approvals, lambda row: row.call_id)

    @cached_property
    def decisions_of(self) -> defaultdict[int, list[Decision]]:
        return _grouped(self.decisions, lambda row: row.approval_id)

    @cached_property
    def steering_of(self) -> defaultdict[int, list[Steering]]:
        return _grouped(self.steering, lambda row: row.run_id)

    def last_decision(self, approval: Approval) -> Decision | None:
        """The verdict by which a decided approval stands."""
        rows = self.decisions_of[approval.id]
        return rows[-1] if rows and approval.status in {"approved", "rejected", "expired"} else None


def read_tables(connection: Any, vendor: Vendor) -> Tables:
    """Read everything; the campaign is over, so nothing moves meanwhile."""
    is_shop = vendor != "sqlite" or _exists(connection, "shop_refund")
    return Tables(
        runs=_read(connection, "anvil_django_run", Run),
        messages=_read(connection, "anvil_django_message", Message),
        calls=_read(connection, "anvil_django_toolcall", Call),
        approvals=_read(connection, "anvil_django_approval", Approval),
        decisions=_read(connection, "anvil_django_decision", Decision),
        steering=_read(connection, "anvil_django_steering", Steering),
        versions=_read(connection, "anvil_django_agentversion", Version),
        refunds=_read(connection, "shop_refund", Refund) if is_shop else [],
    )


def digest(*parts: Any) -> str:
    """What decisions are bound to: SHA-256 of the parts as compact ASCII JSON with sorted keys."""
    text = json.dumps(list(parts), ensure_ascii=True, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _grouped(rows: Iterable[T], key: Callable[[T], Key]) -> defaultdict[Key, list[T]]:
    found: defaultdict[Key, list[T]] = defaultdict(list)
    for row in rows:
        found[key(row)].append(row)
    return found


def _exists(connection: Any, table: str) -> bool:
    """Whether an SQLite database has the table; a site need not be the example project."""
    cursor = connection.cursor()
    cursor.execute("SELECT name FROM sqlite_master WHERE name = ?", [table])
    return cursor.fetchone() is not None


def _read(connection: Any, table: str, into: Callable[..., T]) -> list[T]:
    cursor = connection.cursor()
    try:
        # All columns, by name: one of them is called "index", which each vendor quotes in its own way.
        cursor.execute(f"SELECT * FROM {table} ORDER BY id")
        names = [column[0] for column in cursor.description]
        rows = cursor.fetchall()
    finally:
        cursor.close()
    columns = [(names.index(f.name), _CONVERTERS[str(f.type)]) for f in fields(into)]  # type: ignore[arg-type]
    return [into(*(convert(row[place]) for place, convert in columns)) for row in rows]


def _time(value: Any) -> datetime | None:
    """SQLite gives text, MariaDB a naive datetime, PostgreSQL an aware one; all mean UTC."""
    if value is None:
        return None
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


_CONVERTERS: dict[str, Callable[[Any], Any]] = {
    "int": int,
    "int | None": lambda value: None if value is None else int(value),
    "str": str,
    "str | None": lambda value: None if value is None else str(value),
    "bool": bool,
    "datetime | None": _time,
    "Decimal | None": lambda value: None if value is None else Decimal(str(value)).quantize(PLACES),
}
