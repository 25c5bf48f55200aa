"""The link to the dashboard, for any page of an admin.

``{% load anvil_dashboard %}{% anvil_dashboard %}`` shows it, in a template that has ``request``; for whoever
may not see the dashboard it shows nothing. The list of runs and our page of the app have it.
"""

from __future__ import annotations

from typing import Any

from django import template
from django.template.context import Context
from django.urls import NoReverseMatch, reverse

from ..admin.dashboard import SEE_ALL

register = template.Library()


@register.inclusion_tag("admin/anvil_django/dashboard/link.html", takes_context=True)
def anvil_dashboard(context: Context, style: str = "") -> dict[str, Any]:
    """The link.

    Args:
        style: "object-tools": as the buttons of a list.
    """
    request = context.get("request")
    user = getattr(request, "user", None)
    if user is None or not user.has_perm(SEE_ALL):
        return {}
    site = getattr(request, "current_app", "") or "admin"
    try:
        return {"url": reverse("admin:anvil_django_dashboard", current_app=site), "style": style}
    except NoReverseMatch:
        return {}  # The site has its admin under another name, or without the runs.
