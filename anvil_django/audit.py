"""The mirror of decisions in Django's admin log, so that a case's History page tells its story.

Our own ``Decision`` rows are the record: the admin log goes with the user's account.
"""

from __future__ import annotations

from typing import Any

from django.apps import apps

from .models import Approval, Decision


def log_decision(approval: Approval, decision: Decision, user: Any) -> None:
    """Write one ``LogEntry``, where the site has the admin."""
    if not apps.is_installed("django.contrib.admin"):
        return
    from django.contrib.admin.models import CHANGE, LogEntry
    from django.contrib.contenttypes.models import ContentType

    said = f"{decision.get_verdict_display()} ({decision.channel})"
    LogEntry.objects.create(
        user_id=user.pk,
        content_type=ContentType.objects.get_for_model(Approval),
        object_id=str(approval.pk),
        object_repr=str(approval)[:200],
        action_flag=CHANGE,
        change_message=f"{said}: {decision.reason}" if decision.reason else said,
    )
