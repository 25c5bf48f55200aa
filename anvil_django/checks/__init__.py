"""System checks: each names the problem in its message and the fix in its hint.

All ids stand in ``docs/checks.md``. Those that ask the database are left alone where its tables are not there
yet, and all but one where ``ANVIL`` itself cannot be read.
"""

from __future__ import annotations

from . import databases, people, queue, runs, settings, web
from .runs import IN_FLIGHT

__all__ = ["IN_FLIGHT", "databases", "people", "queue", "runs", "settings", "web"]
