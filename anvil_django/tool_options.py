"""What a tool promises about itself, and which promises contradict one another."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Self, TypeAlias

from .errors import AgentDefinitionError
from .tool_context import ToolContext

ApprovalRule: TypeAlias = bool | Callable[[dict[str, Any], ToolContext], bool]

ON_INTERRUPT = ("ask", "retry", "fail")

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")


@dataclass(frozen=True, kw_only=True)
class ToolOptions:
    """The keywords of ``tool`` after checking; see there."""

    side_effect: bool = False
    atomic: bool = False
    on_interrupt: str | None = None
    requires_approval: ApprovalRule = False
    reviewers: str | None = None
    approvals: int = 1
    approval_ttl: timedelta | None = None
    escalate_to: str | None = None
    escalate_after: timedelta | None = None
    timeout: float | None = None

    @classmethod
    def checked(
        cls,
        name: str,
        *,
        side_effect: bool,
        atomic: bool,
        on_interrupt: Any,
        requires_approval: Any,
        reviewers: Any,
        approvals: Any,
        approval_ttl: Any,
        escalate_to: Any,
        escalate_after: Any,
        timeout: Any,
    ) -> Self:
        """The options of the tool ``name``, the defaults that depend on one another filled in.

        Raises:
            AgentDefinitionError: They contradict one another; the message says what to change.
        """
        _check_name(name)
        _check_effect(name, side_effect, atomic, on_interrupt)
        _check_timeout(name, atomic, timeout)
        _check_approval(name, requires_approval, reviewers, approvals)
        _check_escalation(name, reviewers, escalate_to, escalate_after)
        return cls(
            side_effect=side_effect,
            atomic=atomic,
            on_interrupt=on_interrupt or ("ask" if side_effect and not atomic else None),
            requires_approval=requires_approval,
            reviewers=reviewers,
            approvals=approvals,
            approval_ttl=_duration(name, "approval_ttl", approval_ttl),
            escalate_to=escalate_to,
            escalate_after=_duration(name, "escalate_after", escalate_after),
            timeout=timeout,
        )


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise _wrong(name, "a name has 1 to 128 letters, digits, underscores and hyphens. Pass name=...")


def _check_effect(name: str, side_effect: Any, atomic: Any, on_interrupt: Any) -> None:
    if not isinstance(side_effect, bool) or not isinstance(atomic, bool):
        raise _wrong(name, "side_effect and atomic must be True or False.")
    if atomic and not side_effect:
        raise _wrong(name, "atomic=True is about a side effect. Add side_effect=True.")
    if on_interrupt is None:
        return
    if on_interrupt not in ON_INTERRUPT:
        raise _wrong(name, f'on_interrupt must be "ask", "retry" or "fail", not {on_interrupt!r}.')
    if not side_effect:
        raise _wrong(
            name, "on_interrupt is about a side effect; a read-only tool is simply run again. Remove it."
        )
    if atomic:
        raise _wrong(name, "an atomic tool is never in doubt. Remove on_interrupt.")


def _check_timeout(name: str, atomic: bool, timeout: Any) -> None:
    if timeout is None:
        return
    if atomic:
        raise _wrong(
            name, "an atomic tool works in the run's own transaction and cannot be abandoned. Remove timeout."
        )
    if not _is_positive(timeout):
        raise _wrong(name, "timeout must be a number of seconds above 0.")


def _check_approval(name: str, rule: Any, reviewers: Any, approvals: Any) -> None:
    if not isinstance(rule, bool) and (not callable(rule) or inspect.iscoroutinefunction(rule)):
        raise _wrong(
            name, "requires_approval must be True, False or a plain function of (arguments, context)."
        )
    if reviewers is not None and (not isinstance(reviewers, str) or not reviewers.strip()):
        raise _wrong(name, "reviewers must be the name of a group or a permission.")
    if isinstance(approvals, bool) or not isinstance(approvals, int) or not 1 <= approvals <= 20:
        raise _wrong(name, "approvals is how many different people must agree: a number from 1 to 20.")


def _check_escalation(name: str, reviewers: Any, escalate_to: Any, escalate_after: Any) -> None:
    if (escalate_to is None) is not (escalate_after is None):
        raise _wrong(name, "escalate_to and escalate_after go together: to whom, and after how long.")
    if escalate_to is None:
        return
    if not isinstance(escalate_to, str) or not escalate_to.strip():
        raise _wrong(name, "escalate_to must be the name of a group or a permission.")
    if reviewers is None:
        raise _wrong(name, "everybody may decide already. Give reviewers, or remove escalate_to.")


def _duration(name: str, option: str, value: Any) -> timedelta | None:
    if value is None:
        return None
    if _is_positive(value):
        value = timedelta(seconds=value)
    if not isinstance(value, timedelta) or value <= timedelta(0):
        raise _wrong(name, f"{option} must be a timedelta or a number of seconds, above 0.")
    return value


def _is_positive(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return value > 0 and math.isfinite(value)


def _wrong(name: str, sentence: str) -> AgentDefinitionError:
    return AgentDefinitionError(f"Tool {name!r}: {sentence}")
