"""E-mails to reviewers, for sites that set ``ANVIL["NOTIFY_REVIEWERS"]``; none of them carries arguments."""

from __future__ import annotations

import logging
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.mail import send_mass_mail
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext as _
from django.utils.translation import override

from . import approvals, signals
from .conf import get_settings
from .models import Approval
from .reviewers import PERMISSION, holders, is_permission

logger = logging.getLogger(__name__)

MOST_RECIPIENTS = 50


def connect() -> None:
    """Have each new case announced; whether it is, the settings say at that time."""
    signals.approval_requested.connect(_requested, dispatch_uid="anvil_django.notify")


def _requested(*, approval: Approval, **kwargs: Any) -> None:
    if get_settings().notify_reviewers:
        tell(approval, approval.reviewers)


def escalate_overdue() -> list[Approval]:
    """Tell the second group of each case that its first reviewers left alone, once; the cases."""
    cases = list(approvals.overdue_escalations())
    if get_settings().notify_reviewers:
        for approval in cases:
            tell(approval, approval.escalate_to)
    return cases


def tell(approval: Approval, reviewers: str) -> int:
    """Send one e-mail to each of the reviewers who have an address; how many were sent.

    What the model wrote stays out of mailboxes: the e-mail names agent, tool and run, and links to the case.
    It is in the language of the site.
    """
    # Not that of whoever's request has led here.
    with override(settings.LANGUAGE_CODE):
        subject, body = _text(approval)
    recipients = people(reviewers, approval.run.user_key)
    # One each: reviewers need not learn each other's addresses.
    return send_mass_mail([(subject, body, None, [address]) for address in recipients]) or 0


def _text(approval: Approval) -> tuple[str, str]:
    subject = _("Approval needed: %(tool)s") % {"tool": approval.tool}
    lines = [
        _("The agent %(agent)s waits for a decision.") % {"agent": approval.run.agent},
        _("Kind: %(kind)s") % {"kind": approval.get_kind_display()},
        _("Tool: %(tool)s") % {"tool": approval.tool},
        _("Run: %(run)s") % {"run": approval.run.run_id},
    ]
    if link := link_to(approval):
        lines += ["", link]
    return subject, "\n".join(lines)


def people(reviewers: str, requester: str) -> list[str]:
    """The addresses of active people who may decide such a case, without whoever started the run."""
    email = get_user_model().get_email_field_name()
    found = holders(PERMISSION)
    if is_permission(reviewers):
        found = found.filter(pk__in=holders(reviewers).values("pk"))
    elif reviewers:
        found = found.filter(groups__name=reviewers)
    if get_settings().four_eyes and requester:
        found = found.exclude(pk=requester)
    addresses = found.exclude(**{email: ""}).values_list(email, flat=True).distinct().order_by(email)
    return list(addresses[:MOST_RECIPIENTS])


def link_to(approval: Approval) -> str:
    """The address of the case in the admin; "" without ``base_url`` or without the admin."""
    base = get_settings().base_url.rstrip("/")
    if not base:
        return ""
    try:
        return base + reverse("admin:anvil_django_approval_change", args=[approval.pk])
    except NoReverseMatch:
        return ""
