"""What a running agent says while it runs: small frozen values, never stored.

An event is for whoever watches. The history of a run is made of complete answers only; a delta that was
shown and whose call then failed never happened.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .calls import PendingCall
    from .checkpoint import AgentResult
    from .cost import Usage


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer's text, in the order in which it was generated."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """A piece of the model's visible thinking (models that omit their thinking send none)."""

    text: str


#: What one model call yields while its answer arrives.
Delta = TextDelta | ThinkingDelta


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool is about to run; for a side effect the intent is stored already."""

    call_id: str
    name: str
    input: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A tool has run. The result of a side effect is stored by now, that of a read-only tool soon: if the
    process dies before, the tool is run again."""

    call_id: str
    name: str
    content: str | list[dict[str, Any]] | None
    is_error: bool


@dataclass(frozen=True, slots=True)
class IterationFinished:
    """The model answered; tokens and price are those of the whole run so far."""

    iteration: int
    total_usage: Usage
    total_cost_usd: Decimal | None


@dataclass(frozen=True, slots=True)
class Retrying:
    """A model call failed for a passing reason and is tried again after ``seconds``."""

    code: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Suspended:
    """The run waits for a person; these calls are undecided."""

    pending: list[PendingCall]


@dataclass(frozen=True, slots=True)
class Done:
    """The last event of every stream: where the run stands now."""

    result: AgentResult


#: What a run yields while it is advanced.
Event = Delta | ToolStarted | ToolFinished | IterationFinished | Retrying | Suspended | Done
