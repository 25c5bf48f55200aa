"""That this code can finish the runs that have not ended, and that somebody looks for those that are lost."""

from __future__ import annotations

from typing import Any

from django.core import checks
from django.core.checks import CheckMessage, Tags, register
from django.db import DatabaseError, router, transaction

from ..conf import get_settings
from .asking import may_ask

IN_FLIGHT = {
    "newer_checkpoint": "W010",
    "unknown_agent": "W011",
    "tool_gone": "W012",
    "arguments_unfit": "W013",
    "tool_offered": "W014",
}
"""The number of the warning, by the code of a finding."""


@register(Tags.database)
def check_runs_in_flight(databases: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """The runs that have not ended can be finished by this code: to be asked before its workers start."""
    from .. import inflight
    from ..models import Run

    if not may_ask(databases, Run):
        return []
    try:
        with transaction.atomic(using=router.db_for_read(Run)):
            found = list(inflight.find())
    except DatabaseError:
        return []
    return [
        checks.Warning(finding.problem, hint=finding.fix, id=f"anvil_django.{IN_FLIGHT[finding.code]}")
        for finding in found
    ]


@register(Tags.database)
def check_schedules(databases: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """What has to happen again and again is scheduled; once the workers' tables are there."""
    from django.apps import apps

    from .. import health, queue

    if not apps.is_installed("django_q") or not may_ask(databases, apps.get_model("django_q", "Schedule")):
        return []
    wanted = {queue.RECOVER: (queue.SCHEDULE_NAME, "runs that lost their worker are found late")}
    if get_settings().prune_after_days is not None:
        wanted[queue.PRUNE] = (queue.PRUNE_SCHEDULE_NAME, "no old run is deleted")
    try:
        with transaction.atomic(using=router.db_for_read(apps.get_model("django_q", "Schedule"))):
            missing = [function for function in wanted if health.late_schedule(function) is None]
    except DatabaseError:
        return []
    return [
        checks.Warning(
            f"The schedule {wanted[function][0]!r} is missing: {wanted[function][1]}.",
            hint="Run migrate, which creates it; with ANVIL['INSTALL_SCHEDULE'] = False, create one that "
            f"calls {function}.",
            id="anvil_django.W017",
        )
        for function in missing
    ]
