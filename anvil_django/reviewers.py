"""Who may decide a case: the permission, the tool's reviewers, four eyes, and the escalation."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from django.contrib.auth.backends import ModelBackend
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.utils.translation import gettext as _

from .clock import get_clock
from .conf import get_settings
from .models import Approval, Decision
from .states import AGREEING, ApprovalStatus

PERMISSION = "anvil_django.decide_approval"
AGREEING_VALUES = [str(verdict) for verdict in AGREEING]


def may_decide(user: Any) -> bool:
    """Whether this person may decide approvals at all."""
    known = user is not None and user.is_authenticated and user.is_active
    return bool(known and user.has_perm(PERMISSION))


def why_not(
    user: Any, approval: Approval, *, groups: frozenset[str] | None = None, says_no: bool = False
) -> str:
    """Why this person may not decide this case: a sentence, or "" if they may.

    ``groups`` are the person's, for who asks about many cases: ``groups_of`` fetched once. Whoever has agreed
    and waits for others may still say no (``says_no``).
    """
    if not may_decide(user):
        return _("You need the permission “Can decide approvals”.")
    if _bypasses(user):
        return ""
    if get_settings().four_eyes and approval.run.user_key == str(user.pk):
        return _("You started this run, so somebody else has to decide.")
    if not is_reviewer(user, approval, groups=groups):
        return _("This case is for %(reviewers)s.") % {"reviewers": reviewers_of(approval)}
    if not says_no and has_agreed(user, approval):
        return _("You have agreed to this already; it needs another person too.")
    return ""


def why_not_now(user: Any, approval: Approval, *, groups: frozenset[str] | None = None) -> str:
    """As ``why_not``, and also why nobody, or only somebody else, can decide it as it stands."""
    if why := why_not(user, approval, groups=groups):
        return why
    if approval.status != str(ApprovalStatus.PENDING):
        return _("It is already %(status)s.") % {"status": approval.get_status_display()}
    if approval.expires_at is not None and approval.expires_at <= get_clock().now():
        return _("Its time is over; it counts as a no.")
    if is_claimed(approval) and approval.claimed_by_id != user.pk:
        return _("It is claimed by %(name)s, who is reading it.") % {"name": approval.claimed_name}
    return ""


def decidable(user: Any) -> QuerySet[Approval]:
    """The cases that ``why_not_now`` has nothing against, in a number of queries that does not grow."""
    if not may_decide(user):
        return Approval.objects.none()
    now = get_clock().now()
    others = claimed().exclude(claimed_by=user.pk)
    cases = Approval.objects.pending().filter(Q(expires_at=None) | Q(expires_at__gt=now))
    cases = cases.exclude(pk__in=others.values("pk"))
    if _bypasses(user):
        return cases
    if get_settings().four_eyes:
        cases = cases.exclude(run__user_key=str(user.pk))
    # Few reviewers are named however many cases wait, and a permission may be any backend's to give.
    groups = groups_of(user)
    named = Approval.objects.pending().order_by().values_list("reviewers", "escalate_to").distinct()
    mine = [name for name in {n for pair in named for n in pair if n} if belongs(user, name, groups=groups)]
    cases = cases.filter(
        Q(reviewers="") | Q(reviewers__in=mine) | Q(escalate_to__in=mine, escalate_at__lte=now)
    )
    later = Decision.objects.filter(approval=OuterRef("approval"), pk__gt=OuterRef("pk"))
    agreed = Decision.objects.filter(
        ~Exists(later.exclude(digest=OuterRef("digest"))),
        approval=OuterRef("pk"),
        reviewer_key=str(user.pk),
        digest=OuterRef("digest"),
        verdict__in=AGREEING_VALUES,
    )
    return cases.exclude(Q(needed__gt=1) & Exists(agreed))


def is_reviewer(user: Any, approval: Approval, *, groups: frozenset[str] | None = None) -> bool:
    """Whether the case is meant for this person: the tool's reviewers, or those it was escalated to."""
    if not approval.reviewers or belongs(user, approval.reviewers, groups=groups):
        return True
    return is_escalated(approval) and belongs(user, approval.escalate_to, groups=groups)


def belongs(user: Any, reviewers: str, *, groups: frozenset[str] | None = None) -> bool:
    """Whether a person is in a group, or has a permission (``app_label.codename``)."""
    if is_permission(reviewers):
        return bool(user.has_perm(reviewers))
    # By membership, for superusers too: a group of reviewers is a list of people.
    return reviewers in (groups_of(user) if groups is None else groups)


def groups_of(user: Any) -> frozenset[str]:
    """The names of the groups that a person is in; a user model need not have any."""
    groups = getattr(user, "groups", None)
    return frozenset() if groups is None else frozenset(groups.values_list("name", flat=True))


def is_permission(reviewers: str) -> bool:
    """Whether reviewers are named by a permission (``app_label.codename``); otherwise it is a group."""
    return re.fullmatch(r"[^\s.]+\.[^\s.]+", reviewers) is not None


def holders(permission: str) -> QuerySet[Any]:
    """The active people who have a permission by Django's own tables, superusers included."""
    return ModelBackend().with_perm(permission)


def is_escalated(approval: Approval) -> bool:
    """Whether the time of the first reviewers alone is over."""
    return bool(approval.escalate_to and approval.escalate_at and approval.escalate_at <= get_clock().now())


def claimed() -> QuerySet[Approval]:
    """The pending cases that somebody claims now."""
    since = get_clock().now() - timedelta(seconds=get_settings().claim_seconds)
    return Approval.objects.pending().filter(claimed_at__gte=since).exclude(claimed_by=None)


def is_claimed(approval: Approval) -> bool:
    """Whether somebody claims it now; a claim ends with ``claim_seconds``, and when its account goes."""
    since = get_clock().now() - timedelta(seconds=get_settings().claim_seconds)
    pending = approval.status == str(ApprovalStatus.PENDING) and approval.claimed_by_id is not None
    return pending and approval.claimed_at is not None and approval.claimed_at >= since


def reviewers_of(approval: Approval) -> str:
    """Who the case is for, in words."""
    if not approval.reviewers:
        return _("everybody who may decide")
    if is_escalated(approval):
        return _("%(first)s or %(second)s") % {"first": approval.reviewers, "second": approval.escalate_to}
    return approval.reviewers


def agreed(approval: Approval) -> list[Decision]:
    """Who has agreed to the arguments in force."""
    return approval.agreeing()


def has_agreed(user: Any, approval: Approval) -> bool:
    """Whether this person's yes to the arguments in force counts already towards the quorum."""
    if approval.needed < 2 or approval.status != str(ApprovalStatus.PENDING):
        return False
    return any(row.reviewer_key == str(user.pk) for row in agreed(approval))


def name_of(user: Any) -> str:
    """The person as a decision names them: full name and login name, whatever the user model."""
    full = user.get_full_name() if hasattr(user, "get_full_name") else ""
    name = str(user.get_username()) if hasattr(user, "get_username") else str(user)
    return f"{full} ({name})" if full and full != name else name or f"user {user.pk}"


def _bypasses(user: Any) -> bool:
    return bool(user.is_superuser and get_settings().superuser_bypass)
