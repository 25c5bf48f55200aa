"""One approval, told to the person who decides."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.utils.formats import date_format, number_format
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.timezone import is_aware, localtime
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext_lazy

from .. import exactjson, history, redaction, reviewers
from ..calls import NOBODY
from ..clock import get_clock
from ..limits import Limits
from ..models import Approval, Message, Run
from ..states import ApprovalKind, ApprovalStatus, Channel, Verdict
from .diffs import diff
from .rendering import CASE_LIMIT, block, dollars, pretty, pretty_json, summary, visible

LIMIT_LABELS = {
    "max_iterations": pgettext_lazy("run", "iterations"),
    "max_cost": gettext_lazy("cost in dollars"),
    "max_tokens_total": gettext_lazy("tokens"),
    "max_seconds": gettext_lazy("active seconds"),
}


def sentence(approval: Approval) -> SafeString:
    """What is asked, in one sentence."""
    if approval.kind == str(ApprovalKind.LIMIT):
        return _limit_sentence(approval)
    values = {
        "agent": visible(approval.run.agent),
        "tool": visible(approval.tool),
        "arguments": summary(redaction.shown_json(approval.tool, approval.call.input)),
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


def _limit_sentence(approval: Approval) -> SafeString:
    question = exactjson.loads(approval.call.input)
    label = LIMIT_LABELS.get(approval.tool)
    return format_html(
        _("{agent} has used {used} of {allowed} {limit}: may it use {more} more?"),
        agent=visible(approval.run.agent),
        limit=visible(approval.tool) if label is None else label,
        used=visible(str(question.get("used"))),
        allowed=visible(str(question.get("allowed"))),
        more=visible(str(raise_in_force(approval))),
    )


def is_open(approval: Approval) -> bool:
    """Whether it still waits for somebody, and in time."""
    return approval.status == str(ApprovalStatus.PENDING) and not is_late(approval)


def is_late(approval: Approval) -> bool:
    """Whether it waits although its time is over."""
    pending = approval.status == str(ApprovalStatus.PENDING)
    return pending and approval.expires_at is not None and approval.expires_at <= get_clock().now()


def arguments_in_force(approval: Approval) -> dict[str, Any]:
    """What the tool will be run with: the model's arguments, or what a reviewer has made of them."""
    text = approval.proposal if approval.proposal and not is_limit(approval) else approval.call.input
    arguments: dict[str, Any] = exactjson.loads(text)
    return arguments


def model_arguments(approval: Approval) -> dict[str, Any]:
    """What the model wrote."""
    arguments: dict[str, Any] = exactjson.loads(approval.call.input)
    return arguments


def is_limit(approval: Approval) -> bool:
    """Whether it is about a limit; its call is the question itself."""
    return approval.kind == str(ApprovalKind.LIMIT)


def raise_in_force(approval: Approval) -> str:
    """By how much a limit is raised if nothing else is said."""
    source = approval.proposal or approval.call.input
    return str(exactjson.loads(source).get("raise_by", ""))


def answer_in_force(approval: Approval) -> str:
    """The answer that others have agreed to, as exact JSON text; "" if it is not about one."""
    agreed = reviewers.agreed(approval)
    return agreed[-1].answer if agreed else ""


def arguments(approval: Approval) -> SafeString:
    """What the tool will be run with, and what of it is hidden."""
    in_force = arguments_in_force(approval)
    shown = pretty(shown_arguments(approval, in_force), CASE_LIMIT)
    hidden = redaction.hidden(approval.tool, in_force)
    if not hidden:
        return shown
    # Told apart from the arguments, in which the model may write whatever looks like a mark.
    where = visible(", ".join(hidden))
    return format_html('{}<p class="help">{} {}</p>', shown, _("Hidden here, but run as it is:"), where)


def shown_arguments(approval: Approval, arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments of this case as people see them; a mark that is sent back stands for its value."""
    shown: dict[str, Any] = redaction.shown_arguments(approval.tool, arguments, approval.call_id)
    return shown


def change(approval: Approval, arguments: dict[str, Any]) -> SafeString:
    """What somebody makes of the model's arguments, line by line."""
    before, after = model_arguments(approval), arguments
    return diff(shown_arguments(approval, before), shown_arguments(approval, after))


def proposal(approval: Approval) -> SafeString | None:
    """What reviewers have made of the model's arguments: what they changed, or their answer."""
    if answer := answer_in_force(approval):
        return pretty(redaction.shown_json(approval.tool, answer))
    if not approval.proposal:
        return None
    if is_limit(approval):
        return pretty_json(approval.proposal)
    return change(approval, exactjson.loads(approval.proposal))


def progress(approval: Approval) -> str:
    """How many of the people needed have agreed, as "1 of 2"."""
    counts = {"agreed": len(reviewers.agreed(approval)), "needed": approval.needed}
    return _("%(agreed)d of %(needed)d") % counts


def progress_sentence(approval: Approval) -> str:
    """The same as a sentence, with names; "" where one person is enough."""
    if approval.needed < 2:
        return ""
    agreed = reviewers.agreed(approval)
    if not agreed:
        return _("%(needed)d people have to agree; nobody has yet.") % {"needed": approval.needed}
    return _("%(needed)d people have to agree; these have: %(names)s.") % {
        "needed": approval.needed,
        "names": ", ".join(row.reviewer for row in agreed),
    }


def money(cost: Decimal | None) -> Any:
    """An amount of dollars; unknown where a price was not known."""
    return gettext_lazy("unknown") if cost is None else dollars(cost, 4)


def spent(run: Run) -> SafeString:
    """What the run has used of each of its limits, as a list."""
    return format_html('<ul class="anvil-spent">{}</ul>', format_html_join("", "<li>{}: {}</li>", uses(run)))


def uses(run: Run) -> list[tuple[Any, Any]]:
    """What the run has used of each of its limits, by name."""
    limits = Limits.from_dict(exactjson.loads(run.limits))
    tokens = run.input_tokens + run.output_tokens + run.cache_read_tokens + run.cache_write_tokens
    cost, iterations, most = limits.max_cost_usd, limits.max_iterations, limits.max_tokens_total
    seconds = limits.max_seconds
    return [
        (_("Cost"), _used(money(run.cost_usd), None if cost is None else money(cost))),
        (_("Iterations"), _used(number_format(run.iterations), number_format(iterations))),
        (_("Tokens"), _used(number_format(tokens), None if most is None else number_format(most))),
        (
            _("Active seconds"),
            _used(
                number_format(run.active_seconds, decimal_pos=1),
                None if seconds is None else number_format(seconds),
            ),
        ),
    ]


def _used(used: Any, most: Any) -> Any:
    return used if most is None else _("%(used)s of %(most)s") % {"used": used, "most": most}


def payload(approval: Approval) -> SafeString | None:
    """What the tool said about it."""
    shown = redaction.shown_json(approval.tool, approval.payload)
    return pretty(shown, CASE_LIMIT) if approval.payload else None


def asked(run_pk: int, using: str | None) -> SafeString | None:
    """What the agent was asked: the text of the first user message."""
    first = Message.objects.using(using).filter(run_id=run_pk, role="user").order_by("seq").first()
    if first is None:
        return None
    content = redaction.shown_content(exactjson.loads(first.content))
    text = history.text_of({"role": "user", "content": content})
    return block(text) if text else pretty(content)


def earlier_decisions(approval: Approval) -> list[Any]:
    """Every decision on this call, also on questions asked about it before."""
    questions = (
        Approval.objects.using(approval._state.db)
        .filter(call_id=approval.call_id)
        .order_by("id")
        .prefetch_related("decisions")
    )
    return [decision for question in questions for decision in question.decisions.all()]


def decisions(rows: list[Any], tool: str) -> SafeString | None:
    """Decisions on calls of a tool as a list: who, when, what, why."""
    return (
        format_html_join("", '<div class="anvil-decision">{}</div>', ((decision(row, tool),) for row in rows))
        or None
    )


CHANNEL_LABELS = {
    str(Channel.ADMIN): pgettext_lazy("channel", "admin"),
    str(Channel.API): pgettext_lazy("channel", "api"),
    str(Channel.COMMAND): pgettext_lazy("channel", "command"),
    str(Channel.CODE): pgettext_lazy("channel", "code"),
    str(Channel.EXPIRY): pgettext_lazy("channel", "expiry"),
}

_SAID = {
    str(Verdict.HAPPENED): gettext_lazy("Said to have happened"),
    str(Verdict.NOT_HAPPENED): gettext_lazy("Said not to have happened"),
    str(Verdict.UNKNOWN): gettext_lazy("Said to be unknown"),
}


def decision(row: Any, tool: str) -> SafeString:
    """One decision in a line, and what came with it."""
    when = localtime(row.created_at) if is_aware(row.created_at) else row.created_at
    line = format_html(
        _("{verdict} by {reviewer}, {when}, through {channel}."),
        verdict=_SAID.get(row.verdict) or capfirst(row.get_verdict_display()),
        reviewer=visible(_(NOBODY) if row.channel == str(Channel.EXPIRY) else row.reviewer),
        when=date_format(when, "DATETIME_FORMAT"),
        channel=CHANNEL_LABELS.get(row.channel) or visible(row.channel),
    )
    edited = redaction.shown_json(tool, row.edited_input)
    extras = [
        (_("Reason"), block(row.reason) if row.reason else None),
        (_("Edited arguments"), pretty(edited, CASE_LIMIT) if row.edited_input else None),
        (_("Answer"), pretty(redaction.shown_json(tool, row.answer)) if row.answer else None),
    ]
    shown = format_html_join("", "<p>{}</p>{}", ((label, body) for label, body in extras if body))
    return format_html("<p>{}</p>{}", line, shown)
