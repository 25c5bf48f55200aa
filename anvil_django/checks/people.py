"""That every case finds people who may decide it."""

from __future__ import annotations

from typing import Any

from django.core import checks
from django.core.checks import CheckMessage, Tags, register
from django.db import DatabaseError, router, transaction

from ..agents import registered
from ..conf import get_settings
from .asking import may_ask


@register(Tags.database)
def check_deciders(databases: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Every case has somebody who may decide it: four eyes take two people."""
    from django.contrib.auth import get_user_model

    from ..reviewers import PERMISSION, holders

    # Before ``migrate`` the tables that would be asked are not there.
    if not may_ask(databases, get_user_model()) or not get_settings().four_eyes or not registered():
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

    from ..reviewers import is_permission

    if not may_ask(databases, Group):
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
