"""What differs between the supported versions of Django, in one place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import django

CHANGE_FORM_ACTIONS = django.VERSION >= (6, 1)
"""Whether the admin offers actions on the change form by itself."""

F = TypeVar("F", bound=Callable[..., Any])


def on_change_form(action: F) -> F:
    """Offer an admin action on the change form as well as on the list, where Django can."""
    if CHANGE_FORM_ACTIONS:
        from django.contrib.admin import ActionLocation

        # The decorator's own keyword would be a TypeError before 6.1; the attribute is what it sets.
        locations = [ActionLocation.CHANGE_LIST, ActionLocation.CHANGE_FORM]
        action.locations = locations  # type: ignore[attr-defined]
    return action
