"""Who may decide a case: the permission, the tool's reviewers, four eyes, and the escalation."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _

from .clock import get_clock
from .conf import get_settings
from .models import Approval
from .states import ApprovalStatus

PERMISSION = "anvil_django.decide_approval"


def may_decide(user: Any) -> bool:
    """Whether this person may decide approvals at all."""
    known = user is not None and user.is_authenticated and user.is_active
    return bool(known and user.has_perm(PERMISSION))


def why_not(user: Any, approval: Approval) -> str:
    """Why this person may not decide this case: a sentence, or "" if they may."""
    if not may_decide(user):
        return _("You need the permission “Can decide approvals”.")
    if _bypasses(user):
        return ""
    if get_settings().four_eyes and approval.run.user_key == str(user.pk):
        return _("You started this run, so somebody else has to decide.")
    if not is_reviewer(user, approval):
        return _("This case is for %(reviewers)s.") % {"reviewers": reviewers_of(approval)}
    if has_agreed(user, approval):
        return _("You have agreed to this already; it needs another person too.")
    return ""


def is_reviewer(user: Any, approval: Approval) -> bool:
    """Whether the case is meant for this person: the tool's reviewers, or those it was escalated to."""
    if not approval.reviewers or belongs(user, approval.reviewers):
        return True
    return is_escalated(approval) and belongs(user, approval.escalate_to)


def belongs(user: Any, reviewers: str) -> bool:
    """Whether a person is in a group, or has a permission (``app_label.codename``)."""
    if "." in reviewers:
        return bool(user.has_perm(reviewers))
    # By membership, for superusers too: a group of reviewers is a list of people.
    return bool(user.groups.filter(name=reviewers).exists())


def is_escalated(approval: Approval) -> bool:
    """Whether the time of the first reviewers alone is over."""
    return bool(approval.escalate_to and approval.escalate_at and approval.escalate_at <= get_clock().now())


def reviewers_of(approval: Approval) -> str:
    """Who the case is for, in words."""
    if not approval.reviewers:
        return _("everybody who may decide")
    if is_escalated(approval):
        return _("%(first)s or %(second)s") % {"first": approval.reviewers, "second": approval.escalate_to}
    return approval.reviewers


def has_agreed(user: Any, approval: Approval) -> bool:
    """Whether this person's yes to the arguments in force counts already towards the quorum."""
    if approval.needed < 2 or approval.status != str(ApprovalStatus.PENDING):
        return False
    return any(
        row.approved and row.digest == approval.digest and row.reviewer_key == str(user.pk)
        for row in approval.decisions.all()
    )


def name_of(user: Any) -> str:
    """The person as a decision names them: full name and login name, whatever the user model."""
    full = user.get_full_name() if hasattr(user, "get_full_name") else ""
    name = str(user.get_username()) if hasattr(user, "get_username") else str(user)
    return f"{full} ({name})" if full and full != name else name or f"user {user.pk}"


def _bypasses(user: Any) -> bool:
    return bool(user.is_superuser and get_settings().superuser_bypass)
