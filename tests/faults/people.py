"""The people of the campaign: whoever decides, and the careful one who settles what is in doubt."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from . import effect_log
from .background import Background

if TYPE_CHECKING:
    from .campaign import Campaign

QUIET_SECONDS = 2.0
"""How long nobody must have been stopped before a call that left no trace counts as not happened."""
GROUP, PERSONS = "reviewers", 4


def make_persons() -> list[int]:
    """Superusers, who may decide each case; their keys."""
    from django.contrib.auth import get_user_model

    users = get_user_model()
    return [
        users.objects.create_superuser(f"person{number}", f"p{number}@example.com", "x").pk
        for number in range(PERSONS)
    ]


class Clerk(Background):
    """Decides as the scenario says, and settles as the effect log says."""

    every = 0.2

    def __init__(self, campaign: Campaign) -> None:
        super().__init__("clerk")
        self._campaign = campaign
        self._seen: dict[int, float] = {}
        self.decided: Counter[str] = Counter()
        self.race_seconds = 6.0
        """A case that is kept for a race is decided by one person after so long."""

    def work(self) -> None:
        from anvil_django.models import Approval
        from anvil_django.states import ApprovalKind

        pending = Approval.objects.pending().select_related("run", "call").order_by("id")
        for approval in list(pending[:200]):
            waited = self._campaign.now() - self._seen.setdefault(approval.pk, self._campaign.now())
            if approval.kind == str(ApprovalKind.IN_DOUBT):
                self._settle(approval, waited)
            elif approval.kind == str(ApprovalKind.TOOL):
                plan = self._campaign.plan_of(approval)
                if plan != "race":
                    self._decide(approval, approve=plan == "approve")
                elif waited > self.race_seconds:
                    self._decide(approval, approve=True)

    def _decide(self, approval: Any, *, approve: bool) -> None:
        from anvil_django import approvals
        from anvil_django.errors import AlreadyDecidedError

        try:
            if approve:
                approvals.approve(approval, user=self._user(approval), reason="It is all right.")
            else:
                approvals.reject(approval, user=self._user(approval), reason="It is not.")
        except AlreadyDecidedError:
            return
        self.decided["approved" if approve else "rejected"] += 1

    def _settle(self, approval: Any, waited: float) -> None:
        from anvil_django import approvals
        from anvil_django.errors import AlreadyDecidedError
        from anvil_django.states import Verdict

        key = f"{approval.run.run_id}:{approval.call.call_id}"
        lines = effect_log.by_key(self._campaign.effect_log).get(key, [])
        result = None
        if any(line["event"] == "ended" for line in lines):
            verdict, result = Verdict.HAPPENED, f"{lines[-1]['effect']} is done"
        elif approval.tool == "fail":
            verdict = Verdict.NOT_HAPPENED
        elif waited < QUIET_SECONDS or self._campaign.stops.are_recent(QUIET_SECONDS):
            return  # Whoever was about to begin it may only be stopped.
        elif any(effect_log.is_alive(line) for line in lines):
            return  # Somebody is still at it.
        else:
            verdict = Verdict.NOT_HAPPENED
        try:
            approvals.settle(
                approval, user=self._user(approval), verdict=verdict, result=result, reason="As the log says."
            )
        except AlreadyDecidedError:
            return
        self.decided[f"in doubt: {str(verdict).replace('_', ' ')}"] += 1

    def _user(self, approval: Any) -> Any:
        from django.contrib.auth import get_user_model

        persons = self._campaign.persons
        return get_user_model().objects.get(pk=persons[approval.pk % len(persons)])
