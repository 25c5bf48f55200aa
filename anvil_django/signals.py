"""Signals for the host site, sent after the commit; a receiver that raises is logged and hurts nobody.

- ``approval_requested(sender=Approval, approval)``: a case waits for a person.
- ``approval_decided(sender=Approval, approval, decision)``: a person decided (or the time ran out); with a
  quorum, each person's decision.
- ``run_ended(sender=Run, run)``: a run is done, has failed or was cancelled.

Nothing inside this package depends on them.
"""

from __future__ import annotations

from typing import Any

from django.db import transaction
from django.dispatch import Signal

approval_requested = Signal()
approval_decided = Signal()
run_ended = Signal()


def send_after_commit(signal: Signal, *, using: str, sender: type[Any], **kwargs: Any) -> None:
    """Send ``signal`` once the current transaction on ``using`` is committed; now, if there is none."""

    def send() -> None:
        # Django logs what a receiver raises, as "django.dispatch".
        signal.send_robust(sender=sender, **kwargs)

    transaction.on_commit(send, using=using, robust=True)
