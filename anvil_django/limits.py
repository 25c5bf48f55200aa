"""What a run may use over its whole life."""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Any, Self

from django.utils.translation import gettext as _

from .errors import AgentDefinitionError, UnfitDecisionError

FIELDS = {
    "max_iterations": "max_iterations",
    "max_cost": "max_cost_usd",
    "max_tokens_total": "max_tokens_total",
    "max_seconds": "max_seconds",
}
"""The field behind each stop reason that a limit gives."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Cumulative limits of one run, resumes included; None means no limit."""

    max_iterations: int = 50
    max_cost_usd: Decimal | None = None
    max_tokens_total: int | None = None
    max_seconds: float | None = None
    max_pauses: int = 10
    on_limit: str = "stop"
    """"stop" ends the run at a limit, "ask" has a person decide whether it may use more."""

    def check(self, agent: str) -> None:
        """Raise AgentDefinitionError if a limit could never let a run start."""
        if self.max_cost_usd is not None and not isinstance(self.max_cost_usd, (Decimal, int)):
            raise AgentDefinitionError(
                f"Agent {agent!r}: max_cost_usd must be a Decimal such as Decimal('0.50'), "
                f"not {self.max_cost_usd!r}."
            )
        if self.on_limit not in {"stop", "ask"}:
            raise AgentDefinitionError(f'Agent {agent!r}: on_limit must be "stop" or "ask".')
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
            "on_limit": self.on_limit,
        }

    def raised(self, reached: str, by: Any) -> Self:
        """These limits, with the one that ``reached`` names raised by an amount.

        Raises:
            UnfitDecisionError: The amount is not one.
        """
        name = FIELDS[reached]
        return replace(self, **{name: getattr(self, name) + check_raise(reached, by)})

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The reverse of ``to_dict``; missing keys get their defaults."""
        known = {key: data[key] for key in cls.__dataclass_fields__ if key in data}
        if known.get("max_cost_usd") is not None:
            known["max_cost_usd"] = Decimal(known["max_cost_usd"])
        return cls(**known)


LEAST_RAISE, MOST_RAISE = Decimal("1e-9"), 10**15
"""Outside of these a number is a mistake, and may be one that cannot be stored."""


def _shortened(by: Any) -> str:
    text = repr(by)
    return text if len(text) <= 50 else f"{text[:47]}..."


def check_decision(reached: str, *, edited_input: Any, answer: Any) -> None:
    """What a person may say about a limit that was reached.

    Raises:
        UnfitDecisionError: It is something else.
    """
    if answer is not None:
        raise UnfitDecisionError(_("A limit is raised or it is not; it cannot be answered."), field="answer")
    if edited_input is not None:
        if set(edited_input) != {"raise_by"}:
            raise UnfitDecisionError(
                _('For a limit, give {"raise_by": amount} and nothing else.'), field="edited_input"
            )
        check_raise(reached, edited_input["raise_by"])


def check_raise(reached: str, by: Any) -> Any:
    """The amount by which a limit is to be raised, in the type of the limit.

    Raises:
        UnfitDecisionError: It is not a number above zero, or not a whole one where things are counted.
    """
    try:
        amount = Decimal(str(by)) if not isinstance(by, bool) else Decimal(0)
    except InvalidOperation:
        amount = Decimal(0)
    counted = reached in {"max_iterations", "max_tokens_total"}
    fits = amount.is_finite() and LEAST_RAISE <= amount <= MOST_RAISE
    if not fits or (counted and amount != amount.to_integral_value()):
        if counted:
            sentence = _(
                "raise_by must be a whole number above zero and at most %(most)s, not %(given)s; "
                "nothing was decided."
            )
        else:
            sentence = _(
                "raise_by must be an amount above zero and at most %(most)s, not %(given)s; "
                "nothing was decided."
            )
        raise UnfitDecisionError(
            sentence % {"most": f"{MOST_RAISE:,}", "given": _shortened(by)}, field="edited_input.raise_by"
        )
    if counted:
        return int(amount)
    return float(amount) if reached == "max_seconds" else amount
