"""The lines that keep the promises, and what happens to each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Mutation:
    """One line changed.

    Args:
        breaks: What no longer holds.
        file: Where, below ``anvil_django``.
        line: The text as it is; it occurs once.
        broken: What stands there instead.
        tests: What has to fail.
    """

    breaks: str
    file: str
    line: str
    broken: str
    tests: str

    @property
    def source(self) -> Path:
        """The file itself."""
        return ROOT / "anvil_django" / self.file


PROMISES = "tests/test_promises.py"
BOUND = "tests/test_approvals_bound.py"
PEOPLE = "tests/test_approvals_people.py"

MUTATIONS = (
    Mutation(
        "1: the history is stored with the step",
        "stores/saving.py",
        "for seq, message, meta in checkpoint.unsaved_messages()",
        "for seq, message, meta in list(checkpoint.unsaved_messages())[:0]",
        PROMISES,
    ),
    Mutation(
        "2: a result is written once",
        "stores/statements.py",
        '_NOT_DONE: Statement = ("status <> %s", [str(CallStatus.DONE)])',
        '_NOT_DONE: Statement = ("status <> %s", ["x"])',
        "tests/test_stores.py",
    ),
    Mutation(
        "2, 3: the intent is stored before a side effect starts",
        "steps.py",
        'return call.effect == "external" or call.decision is not None',
        "return call.decision is not None",
        PROMISES,
    ),
    Mutation(
        "3: a side effect that was interrupted is not run again",
        "steps.py",
        'if call.effect != "external" or call.on_interrupt == "retry":',
        'if call.effect != "none" or call.on_interrupt == "retry":',
        "tests/test_next_step.py",
    ),
    Mutation(
        "4: an atomic tool's writes and its result are one transaction",
        "effects.py",
        "with self.store.transaction():",
        "if True:",
        PROMISES,
    ),
    Mutation(
        "5: every save carries the fencing token",
        "stores/django.py",
        'held = {"token": lease.token, "lease_owner": lease.owner, "revision": checkpoint.revision}',
        'held = {"id": checkpoint.store_key}',
        "tests/test_stores.py",
    ),
    Mutation(
        "5: a lease that is alive is not taken",
        "stores/claims.py",
        "(status = 'running' AND (lease_until IS NULL OR lease_until < {now}))",
        "(status = 'running' AND ({now} = {now}))",
        "tests/test_stores.py",
    ),
    Mutation(
        "5: every save renews the lease",
        "stores/django.py",
        "if isinstance(value, Now) or known.get(name, _UNKNOWN) != value",
        "if known.get(name, _UNKNOWN) != value",
        "tests/test_stores.py",
    ),
    Mutation(
        "5: a process looks at its own lease before each effect",
        "effects.py",
        "if self._heartbeat.lost or not self.lease.is_live:",
        "if self._heartbeat.lost:",
        PROMISES,
    ),
    Mutation(
        "6: a decision tells the queue",
        "approvals.py",
        "            queue.ring(approval.run.run_id, using=alias)\n    approval.refresh",
        "            pass\n    approval.refresh",
        f"{PEOPLE} tests/test_approvals.py",
    ),
    Mutation(
        "6: the queue is told when the transaction is committed, not before",
        "queue.py",
        "transaction.on_commit(lambda: _send(run_id), using=using, robust=True)",
        "_send(run_id)",
        "tests/test_queue.py",
    ),
    Mutation(
        "6: the sweep finds what the queue lost",
        "stores/sweep.py",
        "AND (r.ticket_at IS NULL OR r.ticket_at < {patience_ago})",
        "AND (r.ticket_at IS NULL AND r.ticket_at < {patience_ago})",
        PROMISES,
    ),
    Mutation(
        "6: the sweep finds runs whose lease has expired",
        "stores/sweep.py",
        "(r.lease_until IS NULL OR r.lease_until < {now})",
        "(r.lease_until IS NULL AND r.lease_until < {now})",
        "tests/test_kill_points.py tests/test_commands.py",
    ),
    Mutation(
        "6: what people ask of a run refuses the save that has not heeded it",
        "stores/django.py",
        "held.update({FLAGS[request]: False for request in sorted(heed)})",
        "pass",
        "tests/test_stores.py",
    ),
    Mutation(
        "7: the request prefix stays as it was when the run began",
        "effects.py",
        "                **checkpoint.prefix,\n",
        "                **self.agent.prefix,\n",
        PROMISES,
    ),
    Mutation(
        "7: keys keep their order in storage",
        "exactjson.py",
        '_DUMP = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode',
        '_DUMP = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), sort_keys=True).encode',
        f"{PROMISES} tests/test_exactjson.py",
    ),
    Mutation(
        "8: what a person agreed to is what runs",
        "steps.py",
        "return decision.digest == call.digest(checkpoint.run_id, decision.edited_input, decision.answer)",
        "return True",
        BOUND,
    ),
    Mutation(
        "8: a case is bound to what was asked about",
        "approvals.py",
        "    return call.digest(approval.run.run_id, edited, given) == approval.digest",
        "    return True",
        f"{PROMISES} {BOUND}",
    ),
    Mutation(
        "8: an approval is used once",
        "stores/decisions.py",
        "pk=call.approval_id, status=str(ApprovalStatus.APPROVED), used_at=None, digest=decision.digest",
        "pk=call.approval_id, status=str(ApprovalStatus.APPROVED), digest=decision.digest",
        BOUND,
    ),
    Mutation(
        "8: a case is decided once",
        "stores/decisions.py",
        "pending = Approval.objects.using(alias).filter(pk=approval.pk, status=str(ApprovalStatus.PENDING))",
        "pending = Approval.objects.using(alias).filter(pk=approval.pk)",
        f"{PROMISES} {PEOPLE}",
    ),
    Mutation(
        "8: whoever may not decide a case does not",
        "approvals.py",
        "    if why := reviewers.why_not(user, approval, says_no=says_no):\n",
        '    if why := "":\n',
        PEOPLE,
    ),
    Mutation(
        "9: limits are looked at before the model is asked",
        "steps.py",
        "        if allowed is not None and used >= allowed:\n",
        "        if False:\n",
        PROMISES,
    ),
    Mutation(
        "9: usage is added up over the whole life of a run",
        "answers.py",
        "checkpoint.total_usage = checkpoint.total_usage + Usage.from_api(answer.usage)",
        "checkpoint.total_usage = Usage.from_api(answer.usage)",
        PROMISES,
    ),
    Mutation(
        "10: a finished run is not resumed",
        "states.py",
        "RESUMABLE = frozenset({RunStatus.SUSPENDED, RunStatus.PAUSED, RunStatus.FAILED})",
        "RESUMABLE = frozenset({RunStatus.SUSPENDED, RunStatus.PAUSED, RunStatus.FAILED, RunStatus.DONE})",
        f"{PROMISES} tests/test_api.py",
    ),
)
