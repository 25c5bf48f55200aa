"""What the campaign hands to the auditor: where to look, what was billed, and what should have happened.

The effect log is a file outside the database, one JSON object a line, appended whole::

    {"event": "began", "effect": "r0007.2", "tool": "charge", "kind": "external", "key": "...", "run": "...",
     "call": "...", "pid": 4711, "started": "883211", "at": 1764590000.1}

``began`` says that the tool was entered. ``ended`` is the effect itself: the receiver's own record that it
happened, written just before the tool returns. The receiver of an ``idempotent`` tool does nothing for a key
it has seen: for such tools a second ``ended`` with the same key is no second effect, one with another key is.
``atomic`` effects are rows of the shop (``shop_refund.reason`` is the effect's name); what the log says of
them is only how often the tool was entered, since a rollback takes back the row and not the line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

Vendor = Literal["sqlite", "postgres", "mariadb"]
EffectKind = Literal["external", "idempotent", "atomic", "read"]


@dataclass(frozen=True, slots=True)
class Billed:
    """An answer that the scripted server wrote to its end."""

    response_id: str
    """``id`` of the message: ``anvil_django_message.message_id`` of the row that stores it."""
    conversation: str
    """The run id."""
    usage: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ExpectedEffect:
    """One call of a script that changes something, or looks something up (``kind == "read"``)."""

    name: str
    """Unique in the campaign: the tool's argument ``name``, and ``effect`` in the log."""
    tool: str
    kind: EffectKind
    asks: bool = False
    """A person is asked first: it happens exactly when the stored decision says yes to running it."""
    fails: bool = False
    """The tool raises before it does anything: it never ``ended``, and its result is an error."""


@dataclass(frozen=True, slots=True)
class ExpectedRun:
    """What one run comes to when nothing is lost and nobody cancels it."""

    effects: tuple[ExpectedEffect, ...]
    iterations: int
    """Answers of the model, a paused turn included."""
    final_text: str
    may_be_cancelled: bool = False
    """Somebody tried to cancel it: it may end ``cancelled``, with any of its effects at most once."""

    @property
    def atomic(self) -> tuple[ExpectedEffect, ...]:
        return tuple(effect for effect in self.effects if effect.kind == "atomic")


@dataclass(frozen=True, slots=True)
class Facts:
    """All that the auditor needs, and nothing of the runtime."""

    vendor: Vendor
    connect: Callable[[], Any]
    """Opens a DB-API connection (sqlite3, psycopg or MySQLdb)."""
    effect_log: Path
    billed: list[Billed]
    expected: Mapping[str, ExpectedRun] = field(default_factory=dict)
    """By run id (``anvil_django_run.run_id``); a run that is missing in the table is a loss."""
    prices: Mapping[str, Sequence[Decimal]] = field(default_factory=dict)
    """USD per million tokens by model: input, output, cache read, 5-minute write, 1-hour write. Without it
    costs are only added up."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be."""

    kind: str
    """A short name that findings are counted by, such as ``effect lost`` or ``effect twice``."""
    run_id: str
    """"" when it concerns no single run."""
    sentence: str
