"""The one door to decide: who may, what the decision is bound to, and waking the run."""

from __future__ import annotations

from typing import Any

from django.db import router, transaction

from . import queue
from .agents import get_agent
from .calls import Decision
from .errors import DecisionError, NotAllowedError, UnknownAgentError
from .models import Approval, Run
from .states import ApprovalKind
from .stores.decisions import record
from .stores.rows import read_call
from .tools import InvalidToolInput

PERMISSION = "anvil_django.decide_approval"
VIEW_PERMISSION = "anvil_django.view_approval"


def approve(
    approval: Approval,
    *,
    user: Any,
    reason: str = "",
    edited_input: dict[str, Any] | None = None,
    answer: Any = None,
    channel: str = "code",
) -> Approval:
    """Say yes: run the call, with the given arguments if any; or answer in the tool's place.

    For a call in doubt: it did not happen, so run it; with an answer, it happened and this is its result.

    Args:
        approval: What is decided.
        user: The authenticated person; never taken from a request's body.
        reason: Why.
        edited_input: Other arguments for the same tool, checked against its schema.
        answer: A result in the tool's place.
        channel: Where the decision was taken: admin, api, command or code.

    Raises:
        NotAllowedError: This person may not decide.
        AlreadyDecidedError: Somebody was faster; the message says who.
        ApprovalExpiredError: Its time is over.
        DecisionError: The arguments do not fit the tool.
    """
    if edited_input is not None:
        _check_edited(approval, edited_input)
    return _decide(
        approval, user, channel, approved=True, reason=reason, edited_input=edited_input, answer=answer
    )


def reject(approval: Approval, *, user: Any, reason: str, channel: str = "code") -> Approval:
    """Say no: the call does not run and the model is told so, with the reason.

    For a call in doubt: tell the agent that its outcome is unknown.

    Raises:
        As ``approve``, and DecisionError without a reason.
    """
    if not reason.strip():
        raise DecisionError("Give a reason for the rejection; it is told to the agent.")
    return _decide(approval, user, channel, approved=False, reason=reason)


def may_decide(user: Any) -> bool:
    """Whether this person may decide approvals at all."""
    return bool(user.is_authenticated and user.is_active and user.has_perm(PERMISSION))


def may_see(user: Any) -> bool:
    """Whether this person may see approvals apart from their own runs: those who decide, and onlookers."""
    return may_decide(user) or bool(user.has_perm(VIEW_PERMISSION))


def _decide(approval: Approval, user: Any, channel: str, **verdict: Any) -> Approval:
    if not may_decide(user):
        raise NotAllowedError(f"You need the permission {PERMISSION} to decide approvals.")
    decision = Decision(reviewer=_name(user), channel=channel, **verdict)
    decision.check()
    alias = router.db_for_write(Run)
    call = read_call(approval.call)
    if call.digest(approval.run.run_id) != approval.digest:
        raise DecisionError("The stored arguments of this call are not those that were asked about.")
    with transaction.atomic(using=alias):
        if record(approval, call, decision, user=user, user_key=str(user.pk)):
            queue.ring(approval.run.run_id, using=alias)
    approval.refresh_from_db()
    return approval


def _name(user: Any) -> str:
    full = user.get_full_name() if hasattr(user, "get_full_name") else ""
    name = str(user.get_username()) if hasattr(user, "get_username") else str(user)
    return f"{full} ({name})" if full and full != name else name or f"user {user.pk}"


def _check_edited(approval: Approval, edited_input: dict[str, Any]) -> None:
    if approval.kind != str(ApprovalKind.TOOL):
        raise DecisionError(
            "The arguments of a call in doubt cannot be edited: it may have happened with them."
        )
    try:
        tool = get_agent(approval.run.agent).callable_tools[approval.tool]
        tool.validate(edited_input)
    except (UnknownAgentError, KeyError):
        raise DecisionError(
            f"The tool {approval.tool!r} is not available here, so edits cannot be checked."
        ) from None
    except InvalidToolInput as exc:
        raise DecisionError(f"The edited arguments do not fit the tool: {exc.message}") from exc
