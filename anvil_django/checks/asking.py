"""Whether a check has something to go by."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import router

from ..conf import problems


def has_settings() -> bool:
    """Whether ``ANVIL`` can be read; if not, that is said by its own check, and once."""
    return not problems(getattr(settings, "ANVIL", {}))


def may_ask(databases: Any, model: Any) -> bool:
    """Whether a database check may look at the table of ``model``, and has settings to go by.

    Before ``migrate`` the table is not there: whoever asks has to bear a ``DatabaseError``.
    """
    return router.db_for_read(model) in (databases or []) and has_settings()
