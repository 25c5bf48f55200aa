"""A process that waits for jobs on its standard input and does each at the instant it names.

A job is a line ``[at, name, argument...]`` with ``at`` as Unix time; the answer is a line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import django


def main() -> None:
    django.setup()
    from anvil_django.errors import AnvilError

    jobs = _jobs()
    _say("ready")
    for line in sys.stdin:
        at, name, *arguments = json.loads(line)
        time.sleep(max(at - time.time(), 0))
        try:
            answer = jobs[name](*arguments)
        except AnvilError as exc:
            answer = f"{type(exc).__name__}: {exc}"
        _say(answer)


def _jobs() -> dict[str, Callable[..., Any]]:
    from django.contrib.auth import get_user_model

    from anvil_django import approvals, runs, tasks
    from anvil_django.models import Approval

    tasks.SWEEP_EVERY = float("inf")  # Here the test alone decides when there is a sweep.
    tasks._swept_at = 0.0

    def approve(approval_pk: int, user_pk: int) -> str:
        approval = Approval.objects.select_related("run", "call").get(pk=approval_pk)
        return approvals.approve(approval, user=get_user_model().objects.get(pk=user_pk)).status

    def approve_when_asked(run_id: str, user_pk: int) -> str:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            found = Approval.objects.filter(run__run_id=run_id, status="pending").first()
            if found is not None:
                return approve(found.pk, user_pk)
        return "never asked"

    return {
        "advance": tasks.advance,
        "approve": approve,
        "approve_when_asked": approve_when_asked,
        "recover": lambda: [found.run_id for found in runs.recover()],
    }


def _say(answer: Any) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
