"""The one place where questions and decisions are written: conditional updates and appended rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from django.db import router, transaction
from django.db.models import Case, Exists, F, OuterRef, Q, When
from django.db.models.functions import Least
from django.utils.translation import gettext as _

from .. import exactjson, signals
from ..calls import Decision, ToolCall
from ..clock import get_clock
from ..conf import get_settings
from ..errors import (
    AlreadyDecidedError,
    ApprovalExpiredError,
    ChangedSinceReadError,
    ClaimedError,
    DecisionError,
    call_of,
)
from ..models import Approval, Run
from ..models import Decision as DecisionRow
from ..models import ToolCall as ToolCallRow
from ..states import ApprovalKind, ApprovalStatus, Channel, RunStatus
from .database_time import database_now
from .rows import approval_row, read_decision


def ask(run_pk: int, call: ToolCall, run_id: str, revision: int, alias: str) -> int:
    """Store the question about a call; the key of the approval."""
    rows = ToolCallRow.objects.using(alias).filter(run_id=run_pk, call_id=call.call_id)
    call_pk, agent = rows.values_list("pk", "run__agent").get()
    approval = approval_row(run_pk, call_pk, call, run_id, revision, get_clock().now())
    approval.agent = agent
    approval.save(using=alias, force_insert=True)
    signals.send_after_commit(signals.approval_requested, using=alias, sender=Approval, approval=approval)
    return approval.pk


def use(call: ToolCall, alias: str) -> bool:
    """Use up the approval under which a call starts; False if it does not stand, or was used before."""
    decision = call.decision
    if decision is None:
        return False
    usable = Approval.objects.using(alias).filter(
        pk=call.approval_id, status=str(ApprovalStatus.APPROVED), used_at=None, digest=decision.digest
    )
    return bool(usable.update(used_at=database_now()))


def void(approval_pk: int, alias: str) -> None:
    """Nobody has to decide any more: the run ended."""
    pending = Approval.objects.using(alias).filter(pk=approval_pk, status=str(ApprovalStatus.PENDING))
    pending.update(status=str(ApprovalStatus.VOID), open_key=None, decided_at=database_now())


@dataclass(frozen=True)
class Recorded:
    """What became of a decision."""

    row: DecisionRow
    stands: bool
    """Whether the case is decided now; False while others have to agree too."""
    queued: bool
    """Whether that queued the run."""


def record(
    approval: Approval, call: ToolCall, decision: Decision, *, user: Any = None, user_key: str = ""
) -> Recorded:
    """Write one person's decision on a pending approval.

    With a quorum the case stays pending until enough different people agree to the same arguments and the
    same answer; whoever changes them begins a new round.

    Raises:
        NewerCheckpointError: A later version of this package has saved the run.
        AlreadyDecidedError: Somebody was faster, or this person has agreed already.
        ApprovalExpiredError: Its time is over.
        ClaimedError: Somebody else than ``user`` is reading it.
        ChangedSinceReadError: Somebody changed the arguments since ``approval`` was read.
    """
    alias = router.db_for_write(Approval)
    with transaction.atomic(using=alias):
        # The run's row is locked first, here as in every save: two people who decide the last two calls of a
        # turn at once must not each see the other's still open.
        run = Run.objects.using(alias).select_for_update().get(pk=approval.run_id)
        run.check_readable()
        now = Approval.objects.using(alias).get(pk=approval.pk)
        if decision.approved and now.digest != approval.digest and _is_pending(now):
            raise ChangedSinceReadError(now.tool)
        decision = _in_force(now, decision.storable())
        digest = call.digest(run.run_id, decision.edited_input, decision.answer)
        agreed = [row for row in now.agreeing() if row.digest == digest] if decision.approved else []
        if any(_same_person(row, decision, user_key) for row in agreed) and _is_pending(now):
            raise AlreadyDecidedError(call_of(now.tool), "approved", decision.reviewer)
        stands = not decision.approved or len(agreed) + 1 >= now.needed
        _move(now, decision, digest, stands, user, alias)
        row = DecisionRow.objects.using(alias).create(
            approval_id=approval.pk,
            user=user,
            reviewer=decision.reviewer[:200],
            reviewer_key=user_key[:100],
            channel=decision.channel,
            verdict=str(decision.verdict(ApprovalKind(now.kind))),
            reason=decision.reason,
            edited_input="" if decision.edited_input is None else exactjson.dumps(decision.edited_input),
            answer="" if decision.answer is None else exactjson.dumps(decision.answer),
            digest=digest,
            revision=run.revision,
            created_at=database_now(),
        )
        queued = stands and queue_if_decided(run.pk, alias, sources=[RunStatus.SUSPENDED])
        row.refresh_from_db()
        decided = Approval.objects.using(alias).select_related("run", "call").get(pk=approval.pk)
        signals.send_after_commit(
            signals.approval_decided, using=alias, sender=Approval, approval=decided, decision=row
        )
        return Recorded(row, stands, queued)


def _in_force(approval: Approval, decision: Decision) -> Decision:
    """The decision with what it agrees to: a plain yes means what the last person made of the case."""
    if not decision.is_plain_yes or approval.needed < 2:
        return decision
    agreed = approval.agreeing()
    # About a doubt a plain yes says that it did not happen, whatever others said.
    if not agreed or approval.kind == str(ApprovalKind.IN_DOUBT):
        return decision
    stored = read_decision(agreed[-1])
    return replace(decision, edited_input=stored.edited_input, answer=stored.answer)


def _same_person(row: DecisionRow, decision: Decision, user_key: str) -> bool:
    return row.reviewer_key == user_key if user_key else row.reviewer == decision.reviewer[:200]


def _is_pending(approval: Approval) -> bool:
    return approval.status == str(ApprovalStatus.PENDING)


def _move(approval: Approval, decision: Decision, digest: str, stands: bool, user: Any, alias: str) -> None:
    """Change the approval's own row, if it is still pending, in time and claimed by nobody else."""
    pending = Approval.objects.using(alias).filter(pk=approval.pk, status=str(ApprovalStatus.PENDING))
    values: dict[str, Any] = {"claimed_by": None, "claimed_name": "", "claimed_at": None}
    if decision.approved:
        edited = decision.edited_input
        values.update(digest=digest, proposal="" if edited is None else exactjson.dumps(edited))
    if stands:
        verdict = ApprovalStatus.APPROVED if decision.approved else ApprovalStatus.REJECTED
        if decision.channel == Channel.EXPIRY:
            verdict = ApprovalStatus.EXPIRED
        values.update(status=str(verdict), open_key=None, decided_at=database_now())
    if decision.channel == Channel.EXPIRY:
        pending = pending.filter(expires_at__lte=database_now())
    else:
        pending = pending.filter(Q(expires_at=None) | Q(expires_at__gt=database_now()))
    if user is not None:
        pending = pending.filter(free_for(user))
    if not pending.update(**values):
        raise _why_not(approval, alias)


def free_for(user: Any) -> Q:
    """Cases that nobody but ``user`` claims: never claimed, released, or claimed too long ago."""
    stale = database_now(-timedelta(seconds=get_settings().claim_seconds))
    return Q(claimed_by=None) | Q(claimed_by=user.pk) | Q(claimed_at__lt=stale)


def queue_if_decided(run_pk: int, alias: str, *, sources: Any) -> bool:
    """Queue the run if its status is one of ``sources`` and it does not wait for a decision.

    A paused or failed run is queued although approvals of it are pending: a worker finds that out and
    suspends it, so that the last decision wakes it up.
    """
    open_approvals = Approval.objects.filter(run_id=OuterRef("pk"), status=str(ApprovalStatus.PENDING))
    runs = Run.objects.using(alias).filter(pk=run_pk, status__in=[str(s) for s in sources])
    goes_on = ~Q(status=str(RunStatus.SUSPENDED)) | ~Exists(open_approvals)
    # A run that failed goes on at a new revision, or a second end without a save between would be the same
    # event as the first. First in the statement: MariaDB evaluates the rest with the new status.
    failed = Case(When(status=str(RunStatus.FAILED), then=1), default=0)
    return bool(runs.filter(goes_on).update(revision=F("revision") + failed, **queued_values()))


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
        # From now on it waits for a worker.
        "updated_at": database_now(),
        "ticket_at": database_now(),
    }


def _why_not(approval: Approval, alias: str) -> DecisionError:
    rows = Approval.objects.using(alias).filter(pk=approval.pk)
    now = rows.get()
    if now.status == str(ApprovalStatus.PENDING):
        if rows.filter(Q(expires_at=None) | Q(expires_at__gt=database_now())).exists():
            return ClaimedError(call_of(now.tool), now.claimed_name)
        return ApprovalExpiredError(
            _("The time to decide about %(tool)r ended at %(when)s UTC; it counts as a no.")
            % {"tool": now.tool, "when": f"{now.expires_at:%Y-%m-%d %H:%M}"}
        )
    last = now.decisions.last()
    return AlreadyDecidedError(call_of(now.tool), now.status, last.reviewer if last else "")
