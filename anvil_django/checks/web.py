"""That the REST API and the admin pages are as they are meant to be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, Tags, register
from django.urls import URLPattern, get_resolver


@register(Tags.urls)
def check_api(**kwargs: Any) -> list[CheckMessage]:
    """Nobody uses the REST API without saying who they are, and everybody can say so.

    Our views set their own permissions, so the ``AllowAny`` of a site does not reach them; who somebody is,
    the site's authentication classes say.
    """
    if not apps.is_installed("rest_framework") or not getattr(settings, "ROOT_URLCONF", None):
        return []
    from rest_framework.permissions import AllowAny

    found: list[CheckMessage] = []
    for view in _our_views():
        if not view.authentication_classes:
            found.append(
                checks.Warning(
                    f"{view.__module__}.{view.__qualname__} has no authentication classes, so nobody can "
                    "log in.",
                    hint='Name some in REST_FRAMEWORK["DEFAULT_AUTHENTICATION_CLASSES"].',
                    id="anvil_django.W007",
                )
            )
        if all(permission is AllowAny for permission in view.permission_classes):
            found.append(
                Error(
                    f"{view.__module__}.{view.__qualname__} lets anybody in.",
                    hint="Keep the permission_classes of the class that it inherits from, and add to them.",
                    id="anvil_django.E012",
                )
            )
    return found


def _our_views() -> list[Any]:
    from ..api.base import AnvilViewSet

    classes = (getattr(pattern.callback, "cls", None) for pattern in _patterns(get_resolver().url_patterns))
    ours = (found for found in classes if isinstance(found, type) and issubclass(found, AnvilViewSet))
    return list(dict.fromkeys(ours))


def _patterns(patterns: Any) -> Iterator[URLPattern]:
    for pattern in patterns:
        if isinstance(pattern, URLPattern):
            yield pattern
        else:
            yield from _patterns(pattern.url_patterns)


@register(Tags.admin)
def check_admin_theme(**kwargs: Any) -> list[CheckMessage]:
    """With unfold, our pages are built on its ``ModelAdmin``; otherwise they lack its styles and actions."""
    if not (apps.is_installed("unfold") and apps.is_installed("django.contrib.admin")):
        return []
    from django.contrib import admin
    from unfold.admin import ModelAdmin

    from ..models import Approval, Run

    return [
        checks.Warning(
            f"The admin of {model._meta.label} is not built on unfold.admin.ModelAdmin: its pages lack the "
            "styles and the buttons of unfold.",
            hint=f"Unregister it and register a class ({model.__name__}AdminMixin, unfold.admin.ModelAdmin) "
            "instead, with the mixin from anvil_django.admin.",
            id="anvil_django.W009",
        )
        for model in (Run, Approval)
        if admin.site.is_registered(model) and not isinstance(admin.site._registry[model], ModelAdmin)
    ]
