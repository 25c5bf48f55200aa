"""System checks: each names the problem in its message and the fix in its hint."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, Tags, register
from django.db import DatabaseError, connections, router, transaction
from django.utils.module_loading import import_string

from .agents import registered
from .conf import get_settings, problems


@register(Tags.compatibility)
def check_settings(**kwargs: Any) -> list[CheckMessage]:
    """``ANVIL`` has only known keys with values of the right type."""
    hint = "The keys, their units and defaults stand in anvil_django.conf.Settings and in the docs."
    return [
        Error(sentence, hint=hint, id="anvil_django.E001")
        for sentence in problems(getattr(settings, "ANVIL", {}))
    ]


@register(Tags.compatibility)
def check_queue(**kwargs: Any) -> list[CheckMessage]:
    """django-q2 is set up so that a slice is never cut off or run twice at once by the queue."""
    if problems(getattr(settings, "ANVIL", {})):
        return []
    if "django_q" not in settings.INSTALLED_APPS:
        return [
            Error(
                "django_q is not in INSTALLED_APPS, so no worker can advance a run.",
                hint='Add "django_q" to INSTALLED_APPS; the README of anvil_django shows its Q_CLUSTER.',
                id="anvil_django.E002",
            )
        ]
    from .models import Run

    cluster = _effective_cluster()
    found: list[CheckMessage] = []
    alias = router.db_for_write(Run)
    if cluster.get("orm") not in {None, alias}:
        found.append(
            Error(
                f"Q_CLUSTER['orm'] is {cluster['orm']!r}, but the runs are in the database {alias!r}: "
                "queueing a task inside a transaction would silently undo that transaction.",
                hint=f"Set Q_CLUSTER['orm'] = {alias!r}, or use the Redis broker.",
                id="anvil_django.E003",
            )
        )
    found += _check_times(cluster)
    return found


def _effective_cluster() -> dict[str, Any]:
    cluster = dict(getattr(settings, "Q_CLUSTER", {}))
    queue = get_settings().queue
    if queue and queue not in {cluster.get("name"), cluster.get("cluster_name")}:
        cluster.update(cluster.get("ALT_CLUSTERS", {}).get(queue, {}))
    return cluster


def _check_times(cluster: dict[str, Any]) -> list[CheckMessage]:
    if cluster.get("sync"):
        return []
    timeout, retry = cluster.get("timeout"), cluster.get("retry", 60)
    needed = int(get_settings().slice_seconds + get_settings().request_timeout)
    if not isinstance(timeout, int) or timeout < needed:
        return [
            Error(
                f"Q_CLUSTER['timeout'] is {timeout!r}: the queue would kill a worker in mid-slice.",
                hint=f"Set it to at least {needed} seconds (ANVIL slice_seconds + request_timeout), "
                "as a whole number.",
                id="anvil_django.E004",
            )
        ]
    if not isinstance(retry, int) or retry <= timeout:
        return [
            Error(
                f"Q_CLUSTER['retry'] is {retry!r} and the timeout {timeout}: the queue would deliver a run "
                "again while it is still being advanced.",
                hint=f"Set retry to more than twice the timeout, such as {2 * timeout + 60}.",
                id="anvil_django.E005",
            )
        ]
    return []


@register(Tags.database)
def check_sqlite(databases: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """SQLite begins its transactions as writers; otherwise several workers meet "database is locked"."""
    found: list[CheckMessage] = []
    for alias in databases or []:
        connection = connections[alias]
        options = connection.settings_dict.get("OPTIONS", {})
        if connection.vendor == "sqlite" and options.get("transaction_mode", "").upper() != "IMMEDIATE":
            found.append(
                checks.Warning(
                    f'Database {alias!r} is SQLite without transaction_mode "IMMEDIATE": several workers '
                    'will meet "database is locked".',
                    hint='Set OPTIONS = {"transaction_mode": "IMMEDIATE", "timeout": 20, "init_command": '
                    '"PRAGMA journal_mode=WAL;"}.',
                    id="anvil_django.W001",
                )
            )
    return found


@register(Tags.compatibility)
def check_time_zones(**kwargs: Any) -> list[CheckMessage]:
    """Leases compare times, which needs aware ones."""
    if settings.USE_TZ:
        return []
    return [
        Error(
            "USE_TZ is False: leases would be wrong for an hour at each change of the clocks.",
            hint="Set USE_TZ = True.",
            id="anvil_django.E006",
        )
    ]


@register(Tags.compatibility)
def check_redaction(**kwargs: Any) -> list[CheckMessage]:
    """What hides secrets can be called; otherwise no case could be shown."""
    if problems(getattr(settings, "ANVIL", {})) or not isinstance(path := get_settings().redact, str):
        return []
    try:
        if callable(import_string(path)):
            return []
        why = "is no function"
    except ImportError as exc:
        why = f"cannot be imported ({exc})"
    return [
        Error(
            f"ANVIL['REDACT'] is {path!r}, which {why}: nothing that it might hide could be shown.",
            hint="Name a function (tool, path, value) that answers with the value or a text to show instead.",
            id="anvil_django.E007",
        )
    ]


@register(Tags.compatibility)
def check_notifications(**kwargs: Any) -> list[CheckMessage]:
    """E-mails to reviewers lead somewhere."""
    if problems(getattr(settings, "ANVIL", {})):
        return []
    found = get_settings()
    if not found.notify_reviewers or found.base_url:
        return []
    return [
        checks.Warning(
            "ANVIL['NOTIFY_REVIEWERS'] is on without ANVIL['BASE_URL']: its e-mails lead to no case.",
            hint='Set ANVIL["BASE_URL"] to the scheme and host of the admin, such as "https://example.com".',
            id="anvil_django.W002",
        )
    ]


@register(Tags.database)
def check_deciders(databases: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Every case has somebody who may decide it: four eyes take two people."""
    from django.contrib.auth import get_user_model

    from .reviewers import PERMISSION, holders

    # Before ``migrate`` the tables that would be asked are not there.
    if _cannot_ask(databases, get_user_model()) or not get_settings().four_eyes or not registered():
        return []
    try:
        with transaction.atomic(using=router.db_for_read(get_user_model())):
            people = holders(PERMISSION)
            if get_settings().superuser_bypass and people.filter(is_superuser=True).exists():
                return []
            known = people.order_by("pk")[:2].count()
    except DatabaseError:
        return []
    if known >= 2:
        return []
    who = "nobody" if known == 0 else "only one active user"
    return [
        checks.Warning(
            f"Cases take four eyes, and {who} may decide approvals: "
            f"{'no case' if known == 0 else 'no case of a run that they started'} could be decided.",
            hint=f'Give the permission "{PERMISSION}" to at least two people, '
            'or set ANVIL["FOUR_EYES"] = False.',
            id="anvil_django.W003",
        )
    ]


@register(Tags.database)
def check_reviewers(databases: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """The groups and permissions that tools name exist; otherwise nobody could decide their calls."""
    from django.contrib.auth.models import Group, Permission

    from .reviewers import is_permission

    if _cannot_ask(databases, Group):
        return []
    named = [
        (agent.name, tool.name, option, getattr(tool, option))
        for agent in registered().values()
        for tool in agent.callable_tools.values()
        for option in ("reviewers", "escalate_to")
        if getattr(tool, option)
    ]
    try:
        with transaction.atomic(using=router.db_for_read(Group)):
            groups = set(Group.objects.values_list("name", flat=True)) if named else set()
            pairs = Permission.objects.values_list("content_type__app_label", "codename")
            permissions = {f"{app}.{codename}" for app, codename in pairs} if named else set()
    except DatabaseError:
        return []
    return [
        checks.Warning(
            f"Tool {tool!r} of agent {agent!r} has {option}={name!r}, "
            f"but there is no such {'permission' if is_permission(name) else 'group'}.",
            hint=f"Create it, or correct the name. Until then {_LEFT_OUT[option]}.",
            id="anvil_django.W004",
        )
        for agent, tool, option, name in named
        if name not in (permissions if is_permission(name) else groups)
    ]


_LEFT_OUT = {
    "reviewers": "nobody may decide its calls before they are escalated",
    "escalate_to": "an escalation reaches nobody",
}


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
    from . import inflight
    from .models import Run

    if _cannot_ask(databases, Run):
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


def _cannot_ask(databases: Any, model: Any) -> bool:
    """Whether a database check may not look at the table of ``model``, or has nothing to go by."""
    return router.db_for_read(model) not in (databases or []) or bool(
        problems(getattr(settings, "ANVIL", {}))
    )
