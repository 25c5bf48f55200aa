"""One approval, told to the person who decides."""

from __future__ import annotations

from typing import Any

from django.utils.formats import date_format
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.timezone import is_aware, localtime
from django.utils.translation import gettext as _

from .. import exactjson, history
from ..clock import get_clock
from ..models import Approval, Message
from ..states import ApprovalKind, ApprovalStatus
from .rendering import CASE_LIMIT, block, pretty_json, summary, visible
from .verdicts import VERDICTS, Verdict


def sentence(approval: Approval) -> SafeString:
    """What is asked, in one sentence."""
    values = {
        "agent": visible(approval.run.agent),
        "tool": visible(approval.tool),
        "arguments": summary(exactjson.loads(approval.call.input)),
    }
    if approval.kind == str(ApprovalKind.IN_DOUBT):
        if not values["arguments"]:
            return format_html(_("{agent} started {tool} and was interrupted: did it happen?"), **values)
        return format_html(
            _("{agent} started {tool} and was interrupted: did it happen? ({arguments})"), **values
        )
    if not values["arguments"]:
        return format_html(_("{agent} wants to run {tool}"), **values)
    return format_html(_("{agent} wants to run {tool} ({arguments})"), **values)


def is_open(approval: Approval) -> bool:
    """Whether it still waits for somebody, and in time."""
    return approval.status == str(ApprovalStatus.PENDING) and not is_late(approval)


def is_late(approval: Approval) -> bool:
    """Whether it waits although its time is over."""
    pending = approval.status == str(ApprovalStatus.PENDING)
    return pending and approval.expires_at is not None and approval.expires_at <= get_clock().now()


def verdicts(approval: Approval) -> list[Verdict]:
    """How it can be decided now; in no way once it is decided or late."""
    return [verdict for verdict in VERDICTS if approval.kind in verdict.means] if is_open(approval) else []


def arguments(approval: Approval) -> SafeString:
    """What the tool will be run with."""
    return pretty_json(approval.call.input, CASE_LIMIT)


def payload(approval: Approval) -> SafeString | None:
    """What the tool said about it."""
    return pretty_json(approval.payload, CASE_LIMIT) if approval.payload else None


def asked(run_pk: int, using: str | None) -> SafeString | None:
    """What the agent was asked: the text of the first user message."""
    first = Message.objects.using(using).filter(run_id=run_pk, role="user").order_by("seq").first()
    if first is None:
        return None
    content = exactjson.loads(first.content)
    text = history.text_of({"role": "user", "content": content})
    return block(text) if text else pretty_json(first.content)


def earlier_decisions(approval: Approval) -> list[Any]:
    """Every decision on this call, also on questions asked about it before."""
    questions = (
        Approval.objects.using(approval._state.db)
        .filter(call_id=approval.call_id)
        .order_by("id")
        .prefetch_related("decisions")
    )
    return [decision for question in questions for decision in question.decisions.all()]


def decisions(rows: list[Any]) -> SafeString | None:
    """Decisions as a list: who, when, what, why."""
    return (
        format_html_join("", '<div class="anvil-decision">{}</div>', ((decision(row),) for row in rows))
        or None
    )


def decision(row: Any) -> SafeString:
    """One decision in a line, and what came with it."""
    if row.channel == "expiry":
        verdict = _("Expired")
    elif row.answer:
        verdict = _("Answered")
    else:
        verdict = _("Approved") if row.approved else _("Rejected")
    when = localtime(row.created_at) if is_aware(row.created_at) else row.created_at
    line = format_html(
        _("{verdict} by {reviewer}, {when}, through {channel}."),
        verdict=verdict,
        reviewer=visible(row.reviewer),
        when=date_format(when, "DATETIME_FORMAT"),
        channel=visible(row.channel),
    )
    extras = [
        (_("Reason"), block(row.reason) if row.reason else None),
        (_("Edited arguments"), pretty_json(row.edited_input, CASE_LIMIT) if row.edited_input else None),
        (_("Answer"), pretty_json(row.answer) if row.answer else None),
    ]
    shown = format_html_join("", "<p>{}</p>{}", ((label, body) for label, body in extras if body))
    return format_html("<p>{}</p>{}", line, shown)
