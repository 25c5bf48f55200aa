"""A process that waits for jobs and does each at a given instant; see ``tests/processes/racer.py``."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import django


def main() -> None:
    django.setup()
    from django.db import connections

    from anvil_django.errors import AlreadyDecidedError

    say("ready")
    for line in sys.stdin:
        at, name, *arguments = json.loads(line)
        time.sleep(max(at - time.time(), 0))
        try:
            answer = JOBS[name](*arguments)
        except AlreadyDecidedError:
            answer = "decided"
        except Exception as exc:
            answer = f"{type(exc).__name__}: {exc}"
        connections.close_all()
        say(answer)


def decide(approval_pk: int, verdict: str, user_pk: int) -> str:
    from django.contrib.auth import get_user_model

    from anvil_django import approvals
    from anvil_django.models import Approval

    approval = Approval.objects.select_related("run", "call").get(pk=approval_pk)
    user = get_user_model().objects.get(pk=user_pk)
    if verdict == "approve":
        approvals.approve(approval, user=user, reason="It is all right.")
    else:
        approvals.reject(approval, user=user, reason="It is not.")
    return "won"


def start(run_id: str, opening: str) -> str:
    from anvil_django import start_run

    from .agents import AGENT_NAME

    return str(start_run(AGENT_NAME, opening, run_id=run_id).run_id)


def advance(run_id: str) -> str:
    """Deliver a doorbell of the queue once more, beside the workers."""
    from anvil_django import tasks

    return tasks.advance(run_id)


JOBS: dict[str, Any] = {"decide": decide, "start": start, "advance": advance}


def say(answer: Any) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
