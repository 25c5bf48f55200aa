"""Where a run stands, why, and what to do about it: the head of its page."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.urls import reverse
from django.utils.formats import date_format
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timezone import is_aware, localtime
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from .. import approvals
from ..clock import get_clock
from ..cost import Usage
from ..models import Approval, Run
from ..states import RunStatus
from . import cases
from .conversation import tokens
from .rendering import visible
from .steering import SENTENCE_LIMIT
from .stored import shown

MOST_QUESTIONS = 5
MOST_FORKS = 5

ADVICE = {
    RunStatus.QUEUED: gettext_lazy("Nothing to do: a worker takes it as soon as one is free."),
    RunStatus.RUNNING: gettext_lazy("A worker is advancing it."),
    RunStatus.SUSPENDED: gettext_lazy("It goes on once these decisions are taken:"),
    RunStatus.PAUSED: gettext_lazy("Mend what stopped it, if anything did; then resume it."),
    RunStatus.FAILED: gettext_lazy("Mend what stopped it; then retry it from its last stored step."),
}

ENDINGS = {
    "end_turn": gettext_lazy("The agent has finished."),
    "stop_sequence": gettext_lazy("The agent has finished."),
    "refusal": gettext_lazy("The model refused to go on."),
    "max_iterations": gettext_lazy("It has used all iterations that it may."),
    "max_cost": gettext_lazy("It has cost as much as it may."),
    "max_tokens_total": gettext_lazy("It has used all tokens that it may."),
    "max_seconds": gettext_lazy("It was active for as long as it may be."),
}
"""What the stop reasons mean; others are shown as they are."""


@dataclass(frozen=True)
class Question:
    """Something that a person has to decide before the run goes on."""

    sentence: SafeString
    url: str
    """Where it can be decided; "" for whoever may not see cases."""


@dataclass(frozen=True)
class Related:
    """Another run that this one has to do with."""

    run_id: str
    url: str
    after: int | None
    """After which iteration the one was forked from the other."""


@dataclass(frozen=True)
class Standing:
    """The head of the page."""

    status: str
    label: str
    agent: SafeString
    asked_for: str
    """What somebody has asked of whoever advances the run."""
    why: SafeString
    advice: str
    questions: list[Question]
    facts: list[tuple[Any, Any]]
    parent: Related | None
    forks: list[Related]


def read(run: Run, user: Any, site_name: str) -> Standing:
    """How the run stands for ``user``, in three queries."""
    return Standing(
        status=run.status,
        label=run.get_status_display(),
        agent=visible(run.agent),
        asked_for=_asked_for(run),
        why=visible(shown(run.why) or str(ENDINGS.get(run.stop_reason, run.stop_reason)), SENTENCE_LIMIT),
        advice=_advice(run),
        questions=_questions(run, user, site_name) if run.status == RunStatus.SUSPENDED else [],
        facts=_facts(run),
        parent=_parent(run, site_name),
        forks=[
            Related(fork.run_id, _url("run", fork.pk, site_name), fork.forked_at)
            for fork in run.forks.order_by("id").only("run_id", "forked_at")[:MOST_FORKS]
        ],
    )


def is_lost(run: Run) -> bool:
    """Whether it counts as running, but nobody has renewed the lease in time."""
    if run.status != RunStatus.RUNNING:
        return False
    return run.lease_until is None or run.lease_until < get_clock().now()


def _advice(run: Run) -> str:
    status = RunStatus(run.status)
    if is_lost(run):
        return _(
            "Its worker has not been heard of for too long. The next sweep hands it to another one, which "
            "goes on from the last stored step."
        )
    due = run.next_attempt_at
    if status is RunStatus.QUEUED and due is not None and due > get_clock().now():
        return _("Nothing to do: it tries again at %(when)s.") % {"when": _moment(due)}
    return str(ADVICE.get(status, ""))


def _asked_for(run: Run) -> str:
    by = visible(run.requested_by) or _("somebody")
    if run.cancel_requested:
        return format_html(_("{by} has asked to cancel it: it ends at its next step."), by=by)
    if run.pause_requested:
        return format_html(_("{by} has asked to pause it: it pauses at its next step."), by=by)
    return ""


def _questions(run: Run, user: Any, site_name: str) -> list[Question]:
    may_see = approvals.may_see(user)
    rows = Approval.objects.using(run._state.db).filter(run_id=run.pk, open_key__isnull=False)
    rows = rows.select_related("run", "call").order_by("id")
    return [
        Question(cases.sentence(row), _url("approval", row.pk, site_name) if may_see else "")
        for row in rows[:MOST_QUESTIONS]
    ]


def _facts(run: Run) -> list[tuple[Any, Any]]:
    usage = Usage(run.input_tokens, run.output_tokens, run.cache_read_tokens, run.cache_write_tokens)
    facts = [
        (_("Started by"), visible(run.user_name) or "–"),
        (_("Started"), _moment(run.created_at)),
        *cases.uses(run),
        (_("Tokens in and out"), tokens(usage)),
    ]
    if run.attempt:
        facts.append((_("Failed attempts in a row"), run.attempt))
    if run.recoveries:
        facts.append((_("Recoveries without progress"), run.recoveries))
    return facts


def _parent(run: Run, site_name: str) -> Related | None:
    if run.forked_from_id is None:
        return None
    parent = run.forked_from
    assert parent is not None
    return Related(parent.run_id, _url("run", parent.pk, site_name), run.forked_at)


def _url(model: str, pk: int, site_name: str) -> str:
    return reverse(f"admin:anvil_django_{model}_change", args=[pk], current_app=site_name)


def _moment(when: datetime) -> str:
    return date_format(localtime(when) if is_aware(when) else when, "DATETIME_FORMAT")
