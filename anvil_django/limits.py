"""What a run may use over its whole life."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Self

from .errors import AgentDefinitionError


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Cumulative limits of one run, resumes included; None means no limit."""

    max_iterations: int = 50
    max_cost_usd: Decimal | None = None
    max_tokens_total: int | None = None
    max_seconds: float | None = None
    max_pauses: int = 10

    def check(self, agent: str) -> None:
        """Raise AgentDefinitionError if a limit could never let a run start."""
        if self.max_cost_usd is not None and not isinstance(self.max_cost_usd, (Decimal, int)):
            raise AgentDefinitionError(
                f"Agent {agent!r}: max_cost_usd must be a Decimal such as Decimal('0.50'), "
                f"not {self.max_cost_usd!r}."
            )
        for name in ("max_iterations", "max_cost_usd", "max_tokens_total", "max_seconds", "max_pauses"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise AgentDefinitionError(f"Agent {agent!r}: {name} must be greater than zero.")

    def to_dict(self) -> dict[str, Any]:
        """As JSON values; money as a string."""
        cost = None if self.max_cost_usd is None else str(self.max_cost_usd)
        return {
            "max_iterations": self.max_iterations,
            "max_cost_usd": cost,
            "max_tokens_total": self.max_tokens_total,
            "max_seconds": self.max_seconds,
            "max_pauses": self.max_pauses,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The reverse of ``to_dict``; missing keys get their defaults."""
        known = {key: data[key] for key in cls.__dataclass_fields__ if key in data}
        if known.get("max_cost_usd") is not None:
            known["max_cost_usd"] = Decimal(known["max_cost_usd"])
        return cls(**known)
