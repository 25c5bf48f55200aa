"""The one place where a decision is written: a conditional update, an appended row, and the wake-up."""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q
from django.db.models.functions import Least

from .. import exactjson
from ..calls import Decision, ToolCall
from ..errors import AlreadyDecidedError, ApprovalExpiredError
from ..models import Approval, Run
from ..models import Decision as DecisionRow
from ..states import ApprovalStatus, RunStatus
from .database_time import database_now


def record(
    approval: Approval, call: ToolCall, decision: Decision, *, user: Any = None, user_key: str = ""
) -> bool:
    """Write the one decision on a pending approval; True if that queued the run.

    Raises:
        AlreadyDecidedError: Somebody was faster.
        ApprovalExpiredError: Its time is over.
    """
    decision = decision.storable()
    alias = approval._state.db or "default"
    verdict = ApprovalStatus.APPROVED if decision.approved else ApprovalStatus.REJECTED
    if decision.channel == "expiry":
        verdict = ApprovalStatus.EXPIRED
    with transaction.atomic(using=alias):
        # The run's row is locked first, here as in every save: two people who decide the last two calls of a
        # turn at once must not each see the other's still open.
        run = Run.objects.using(alias).select_for_update().get(pk=approval.run_id)
        pending = Approval.objects.using(alias).filter(pk=approval.pk, status=str(ApprovalStatus.PENDING))
        if decision.channel != "expiry":
            pending = pending.filter(Q(expires_at=None) | Q(expires_at__gt=database_now()))
        now = database_now()
        if not pending.update(status=str(verdict), open_key=None, decided_at=now):
            raise _why_not(approval, alias)
        DecisionRow.objects.using(alias).create(
            approval_id=approval.pk,
            user=user,
            reviewer=decision.reviewer[:200],
            reviewer_key=user_key[:100],
            channel=decision.channel,
            approved=decision.approved,
            reason=decision.reason,
            edited_input="" if decision.edited_input is None else exactjson.dumps(decision.edited_input),
            answer="" if decision.answer is None else exactjson.dumps(decision.answer),
            digest=call.digest(run.run_id, decision.edited_input),
            created_at=now,
        )
        return queue_if_decided(run.pk, alias, sources=[RunStatus.SUSPENDED])


def queue_if_decided(run_pk: int, alias: str, *, sources: Any) -> bool:
    """Queue the run if its status is one of ``sources`` and no approval of it is pending."""
    open_approvals = Approval.objects.filter(run_id=OuterRef("pk"), status=str(ApprovalStatus.PENDING))
    runs = Run.objects.using(alias).filter(pk=run_pk, status__in=[str(s) for s in sources])
    return bool(runs.filter(~Exists(open_approvals)).update(**queued_values()))


def queued_values() -> dict[str, Any]:
    """The columns of a run that has just been queued."""
    return {
        "status": str(RunStatus.QUEUED),
        "error": "",
        "error_code": "",
        "stop_reason": "",
        "attempt": 0,
        "next_attempt_at": None,
        "recoveries": 0,
        # A paused turn stays one, or the run would end with it; only the count begins anew.
        "pauses": Least(F("pauses"), 1),
        "lease_owner": "",
        "lease_until": None,
        "pause_requested": False,
        "finished_at": None,
        "ticket_at": database_now(),
    }


def _why_not(approval: Approval, alias: str) -> AlreadyDecidedError | ApprovalExpiredError:
    now = Approval.objects.using(alias).get(pk=approval.pk)
    if now.status == str(ApprovalStatus.PENDING):
        return ApprovalExpiredError(
            f"The time to decide about {now.tool!r} ended at {now.expires_at:%Y-%m-%d %H:%M} UTC; "
            "it counts as a no."
        )
    last = now.decisions.last()
    return AlreadyDecidedError(f"The call of {now.tool!r}", now.status, last.reviewer if last else "")
