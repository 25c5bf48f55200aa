"""The number of cases that a person may decide, for any page of an admin.

``{% load anvil_waiting %}{% anvil_waiting %}`` shows it, in a template that has ``request``; for whoever may
not decide it shows nothing. Our own front page of the admin (``admin/anvil_django/index.html``) has it.
"""

from __future__ import annotations

from typing import Any

from django import template
from django.template.context import Context

from ..admin.waiting import waiting
from ..approvals import may_decide

register = template.Library()


@register.inclusion_tag("admin/anvil_django/waiting.html", takes_context=True)
def anvil_waiting(context: Context) -> dict[str, Any]:
    """The number with the age of the oldest and a link to them."""
    request = context.get("request")
    user = getattr(request, "user", None)
    if user is None or not may_decide(user):
        return {}
    return {"waiting": waiting(user, getattr(request, "current_app", "") or "admin")}
