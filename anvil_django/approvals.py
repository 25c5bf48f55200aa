"""The one door to decide: the verdicts, claiming a case, and what happens when nobody decides in time."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from django.db import router, transaction
from django.utils.translation import gettext as _

from . import audit, exactjson, queue, redaction, reviewers
from .agents import registered
from .calls import NOBODY, Decision, ToolCall
from .checkpoint import CHECKPOINT_VERSION
from .errors import (
    AlreadyDecidedError,
    ChangedSinceReadError,
    ClaimedError,
    DecisionError,
    NotAllowedError,
    UnfitDecisionError,
    call_of,
)
from .fitting import check_fit
from .identity import storable_name
from .models import Approval, Run
from .reviewers import PERMISSION, may_decide, name_of
from .states import ApprovalKind, ApprovalStatus, Channel, Verdict
from .stores.database_time import database_now
from .stores.decisions import free_for, record
from .stores.rows import read_call
from .tools import ToolContext

__all__ = [
    "PERMISSION",
    "answer",
    "approve",
    "check_edited",
    "claim",
    "expire_overdue",
    "may_decide",
    "may_see",
    "overdue_escalations",
    "reject",
    "release",
    "settle",
]

logger = logging.getLogger(__name__)

VIEW_PERMISSION = "anvil_django.view_approval"


# Verdicts.


def approve(
    approval: Approval,
    *,
    user: Any,
    reason: str = "",
    edited_input: dict[str, Any] | None = None,
    answer: Any = None,
    channel: str = Channel.CODE,
    digest: str | None = None,
) -> Approval:
    """Say yes: run the call, with the given arguments if any.

    For a call in doubt: it did not happen, so run it; with an answer, it happened and this is its result.
    For a limit: raise it, by ``edited_input["raise_by"]`` if given.

    Args:
        approval: What is decided.
        user: The authenticated person; never taken from a request's body.
        reason: Why.
        edited_input: Other arguments for the same tool. They are checked against its schema, and its approval
            rule is asked about them; with a quorum, the other people have to agree to them too.
        answer: A result in the tool's place.
        channel: Where the decision was taken (``Channel``).
        digest: That of the case as the person read it (``Approval.digest``); None: as it is in ``approval``.

    Raises:
        NotAllowedError: This person may not decide this case; the message says why.
        ClaimedError: Somebody else is reading it.
        AlreadyDecidedError: Somebody was faster; the message says who.
        ApprovalExpiredError: Its time is over.
        UnfitDecisionError: The arguments do not fit the tool.
        ChangedSinceReadError: Somebody changed the arguments since this person read them.
    """
    verdict = {"approved": True, "reason": reason, "edited_input": edited_input, "answer": answer}
    return _decide(approval, user, channel, digest, **verdict)


def reject(approval: Approval, *, user: Any, reason: str, channel: str = Channel.CODE) -> Approval:
    """Say no: the call does not run and the model is told so, with the reason.

    For a call in doubt: tell the agent that its outcome is unknown. For a limit: the run ends at it.

    Raises:
        As ``approve``, and UnfitDecisionError without a reason.
    """
    return _decide(approval, user, channel, None, approved=False, reason=reason)


def answer(
    approval: Approval,
    *,
    user: Any,
    answer: Any,
    reason: str = "",
    channel: str = Channel.CODE,
    digest: str | None = None,
) -> Approval:
    """Answer in the tool's place: the call does not run, and this is its result.

    Raises:
        As ``approve``, and UnfitDecisionError for a limit or an empty answer.
    """
    if answer is None:
        raise UnfitDecisionError(
            _("Give the answer that the agent is told as the result of the call."), field="answer"
        )
    return _decide(approval, user, channel, digest, approved=True, reason=reason, answer=answer)


def settle(
    approval: Approval,
    *,
    user: Any,
    verdict: str,
    result: Any = None,
    reason: str = "",
    channel: str = Channel.CODE,
    digest: str | None = None,
) -> Approval:
    """Settle a call in doubt.

    Args:
        verdict: ``"happened"`` (with the result), ``"not_happened"`` (run it) or ``"unknown"`` (tell the
            agent that nobody knows; needs a reason).
        result: What the tool would have returned.

    Raises:
        As ``approve``, and UnfitDecisionError if the case is not in doubt or the verdict is none of these.
    """
    _demand(approval, user, says_no=verdict == Verdict.UNKNOWN)
    if approval.kind != str(ApprovalKind.IN_DOUBT):
        raise UnfitDecisionError(_("Only a call in doubt can be settled; approve or reject this one."))
    if verdict == Verdict.HAPPENED:
        if result is None:
            raise UnfitDecisionError(
                _("Give the result of the call; the agent goes on from it."), field="result"
            )
        return approve(approval, user=user, answer=result, reason=reason, channel=channel, digest=digest)
    if result is not None:
        raise UnfitDecisionError(
            _('A result goes with the verdict "happened", not with %(verdict)r.') % {"verdict": verdict},
            field="result",
        )
    if verdict == Verdict.NOT_HAPPENED:
        return approve(approval, user=user, reason=reason, channel=channel, digest=digest)
    if verdict == Verdict.UNKNOWN:
        return reject(approval, user=user, reason=reason, channel=channel)
    raise UnfitDecisionError(
        _('verdict must be "happened", "not_happened" or "unknown", not %(verdict)r.') % {"verdict": verdict},
        field="verdict",
    )


def _decide(approval: Approval, user: Any, channel: str, digest: str | None, **verdict: Any) -> Approval:
    _demand(approval, user, says_no=verdict["approved"] is False)
    if digest is not None and digest != approval.digest and approval.status == str(ApprovalStatus.PENDING):
        raise ChangedSinceReadError(approval.tool)
    decision = Decision(reviewer=name_of(user), channel=str(channel), **verdict)
    decision.check()
    decision = decision.storable()
    if decision.edited_input is not None:
        decision = replace(decision, edited_input=with_originals(approval, decision.edited_input))
    _check_fit(approval, decision)
    alias = router.db_for_write(Run)
    call = read_call(approval.call)
    if decision.approved and not _is_as_asked(approval, call):
        raise DecisionError(_("The stored arguments of this call are not those that were asked about."))
    with transaction.atomic(using=alias):
        recorded = record(approval, call, decision, user=user, user_key=str(user.pk))
        audit.log_decision(approval, recorded.row, user)
        if recorded.queued:
            queue.ring(approval.run.run_id, using=alias)
    approval.refresh_from_db()
    return approval


def _is_as_asked(approval: Approval, call: ToolCall) -> bool:
    """Whether the stored call is still the one that the approval was bound to when it was asked for."""
    edited = exactjson.loads(approval.proposal) if approval.proposal else None
    agreed = approval.agreeing()
    given = exactjson.loads(agreed[-1].answer) if agreed and agreed[-1].answer else None
    return call.digest(approval.run.run_id, edited, given) == approval.digest


def with_originals(approval: Approval, edited: dict[str, Any]) -> dict[str, Any]:
    """Edited arguments with the originals of what was hidden from the reviewer; see ``redaction``.

    Raises:
        UnfitDecisionError: A mark in them stands for nothing that this case shows.
    """
    stored = [exactjson.loads(text) for text in (approval.proposal, approval.call.input) if text]
    arguments: dict[str, Any] = redaction.restored(approval.tool, edited, stored, approval.call_id)
    return arguments


def _demand(approval: Approval, user: Any, *, says_no: bool = False) -> None:
    if why := reviewers.why_not(user, approval, says_no=says_no):
        raise NotAllowedError(why)


def _check_fit(approval: Approval, decision: Decision) -> None:
    if not decision.approved and not decision.reason.strip():
        raise UnfitDecisionError(
            _("Give a reason for the rejection; it is told to the agent."), field="reason"
        )
    run, call_id = approval.run, approval.call.call_id
    agent = registered().get(run.agent)
    context = ToolContext(
        run.run_id,
        call_id,
        f"{run.run_id}:{call_id}",
        load_user=lambda: run.user,
        metadata=exactjson.loads(run.metadata),
        decision=decision,
    )
    tool = agent.callable_tools.get(approval.tool) if agent is not None else None
    check_fit(decision, approval.kind, approval.tool, tool, context)


def check_edited(approval: Approval, edited_input: dict[str, Any], *, user: Any) -> None:
    """Check edited arguments as ``approve`` does, without deciding anything: for a preview of them.

    Raises:
        DecisionError: They do not fit the tool, or cannot be checked.
    """
    decision = Decision(approved=True, reviewer=name_of(user), edited_input=edited_input)
    decision.check()
    _check_fit(approval, decision)


# Claims.


def claim(approval: Approval, *, user: Any) -> Approval:
    """Keep others from deciding the case while this person reads it, for ``claim_seconds``.

    Raises:
        NotAllowedError, AlreadyDecidedError: It is not this person's to decide, or not any more.
        ClaimedError: Somebody else claimed it first.
    """
    _demand(approval, user)
    pending = Approval.objects.filter(pk=approval.pk, status=str(ApprovalStatus.PENDING))
    claimed = pending.filter(free_for(user)).update(
        claimed_by=user.pk, claimed_name=storable_name(name_of(user)), claimed_at=database_now()
    )
    approval.refresh_from_db()
    if not claimed:
        _check_claim(approval, user)
        raise AlreadyDecidedError(call_of(approval.tool), approval.status)
    return approval


def release(approval: Approval, *, user: Any) -> Approval:
    """Give a claim back; nothing happens if there is none.

    Raises:
        NotAllowedError: This person may not decide the case.
        ClaimedError: The claim is somebody else's.
    """
    _demand(approval, user)
    mine = Approval.objects.filter(pk=approval.pk, claimed_by=user.pk)
    released = mine.update(claimed_by=None, claimed_name="", claimed_at=None)
    approval.refresh_from_db()
    if not released:
        _check_claim(approval, user)
    return approval


def _check_claim(approval: Approval, user: Any) -> None:
    pending = Approval.objects.filter(pk=approval.pk, status=str(ApprovalStatus.PENDING))
    other = pending.exclude(free_for(user)).values_list("claimed_name", flat=True).first()
    if other is not None:
        raise ClaimedError(call_of(approval.tool), other)


def may_see(user: Any) -> bool:
    """Whether this person may see approvals apart from their own runs: those who decide, and onlookers."""
    return may_decide(user) or bool(user.has_perm(VIEW_PERMISSION))


# Time.


def expire_overdue() -> list[Approval]:
    """Count every case whose time is over as a no, and have its run go on; the cases that were."""
    expired = []
    overdue = Approval.objects.filter(
        status=str(ApprovalStatus.PENDING),
        expires_at__lte=database_now(),
        run__checkpoint_version__lte=CHECKPOINT_VERSION,
    ).select_related("run", "call")
    for approval in list(overdue.order_by("id")[:500]):
        decision = Decision(approved=False, reviewer=NOBODY, channel=str(Channel.EXPIRY))
        alias = router.db_for_write(Run)
        try:
            with transaction.atomic(using=alias):
                if record(approval, read_call(approval.call), decision).queued:
                    queue.ring(approval.run.run_id, using=alias)
        except DecisionError:
            continue  # Somebody decided at the last moment.
        except Exception:
            # One bad case must not keep the others from expiring.
            logger.exception("a case could not expire", extra={"run_id": approval.run.run_id})
            continue
        expired.append(approval)
    return expired


def overdue_escalations() -> Iterator[Approval]:
    """The cases whose first reviewers have had their time, each once: the second group is to be told."""
    due = Approval.objects.filter(
        status=str(ApprovalStatus.PENDING), escalate_at__lte=database_now(), escalation_told_at=None
    ).select_related("run", "call")
    for approval in list(due.order_by("id")[:500]):
        mine = Approval.objects.filter(pk=approval.pk, escalation_told_at=None)
        if mine.update(escalation_told_at=database_now()):
            yield approval
