"""How much waits for a person, for the top of the queue and the admin's front page."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, Min
from django.urls import NoReverseMatch, reverse

from .. import approvals, reviewers
from ..models import Approval


@dataclass(frozen=True)
class Waiting:
    """What waits, as one person sees it."""

    count: int
    """All cases that wait."""
    oldest: datetime | None
    """Since when the oldest of them waits."""
    mine: int
    """How many of them this person may decide now."""
    my_oldest: datetime | None
    url: str
    """The queue with only those."""


def waiting(user: Any, site: str = "admin") -> Waiting | None:
    """What waits; None for people who may not decide and may not look on."""
    if not approvals.may_see(user):
        return None
    try:
        url = reverse("admin:anvil_django_approval_changelist", current_app=site)
    except NoReverseMatch:
        return None  # The site has its admin under another name, or without the approvals.
    numbers = {"count": Count("pk"), "oldest": Min("requested_at")}
    everything = Approval.objects.pending().order_by().aggregate(**numbers)
    mine = reviewers.decidable(user).order_by().aggregate(**numbers)
    return Waiting(everything["count"], everything["oldest"], mine["count"], mine["oldest"], f"{url}?for=me")
