"""A request for a person's decision, and the decisions taken."""

from __future__ import annotations

from typing import Any, NoReturn

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from ..states import AGREEING, ApprovalKind, ApprovalStatus, Verdict
from .fields import ExactCharField
from .lists import ListQuerySet
from .run import Run
from .tool_call import ToolCall

KIND_LABELS = {
    ApprovalKind.TOOL: _("permission to run a tool"),
    ApprovalKind.IN_DOUBT: _("outcome in doubt"),
    ApprovalKind.LIMIT: _("limit reached"),
}
VERDICT_LABELS = {
    Verdict.APPROVED: _("approved"),
    Verdict.EDITED: _("approved with edited arguments"),
    Verdict.ANSWERED: _("answered in the tool's place"),
    Verdict.REJECTED: _("rejected"),
    Verdict.EXPIRED: _("expired"),
    Verdict.HAPPENED: _("it happened"),
    Verdict.NOT_HAPPENED: _("it did not happen"),
    Verdict.UNKNOWN: _("outcome unknown"),
}
APPROVAL_STATUS_LABELS = {
    ApprovalStatus.PENDING: _("pending"),
    ApprovalStatus.APPROVED: _("approved"),
    ApprovalStatus.REJECTED: _("rejected"),
    ApprovalStatus.EXPIRED: _("expired"),
    ApprovalStatus.VOID: _("void"),
}


APPEND_ONLY = "Decisions are append-only: record another one instead."


class ApprovalQuerySet(ListQuerySet["Approval"]):
    """Approvals by where they stand."""

    def pending(self) -> ApprovalQuerySet:
        """Approvals that nobody has decided yet."""
        return self.having("status", str(ApprovalStatus.PENDING), few=True)


class Approval(models.Model):
    """A question about one tool call, bound to a digest of tool and arguments, decided and used once."""

    run = models.ForeignKey(Run, verbose_name=_("run"), on_delete=models.CASCADE, related_name="approvals")
    call = models.ForeignKey(
        ToolCall, verbose_name=_("tool call"), on_delete=models.CASCADE, related_name="approvals"
    )
    # Set while the approval is pending, NULL afterwards: at most one pending approval per call, on every
    # database (MariaDB ignores conditional unique constraints).
    open_key = models.CharField(_("open key"), max_length=64, null=True, blank=True, unique=True)
    # The run's, which never changes, so that a list by agent does not read through other agents' cases.
    agent = ExactCharField(_("agent"), max_length=100)
    kind = models.CharField(
        _("kind"), max_length=16, choices=[(str(k), label) for k, label in KIND_LABELS.items()]
    )
    status = models.CharField(
        _("status"),
        max_length=16,
        choices=[(str(s), label) for s, label in APPROVAL_STATUS_LABELS.items()],
        default=str(ApprovalStatus.PENDING),
    )
    tool = models.CharField(_("tool"), max_length=128)
    payload = models.TextField(_("payload"), blank=True, help_text=_("Exact JSON text."))
    digest = models.CharField(
        _("digest"), max_length=64, help_text=_("Of the run, the call, the tool and the arguments in force.")
    )
    proposal = models.TextField(
        _("edited arguments in force"),
        blank=True,
        help_text=_("Exact JSON text; what a reviewer made of the arguments, for the others to agree to."),
    )
    reviewers = models.CharField(_("reviewers"), max_length=200, blank=True)
    needed = models.PositiveSmallIntegerField(_("people needed"), default=1)
    escalate_to = models.CharField(_("escalated to"), max_length=200, blank=True)
    escalate_at = models.DateTimeField(_("escalated at"), null=True, blank=True)
    escalation_told_at = models.DateTimeField(_("escalation told at"), null=True, blank=True)
    claimed_by = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        verbose_name=_("claimed by"),
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
    )
    claimed_name = models.CharField(_("name of the claimant"), max_length=200, blank=True)
    claimed_at = models.DateTimeField(_("claimed at"), null=True, blank=True)
    revision = models.PositiveBigIntegerField(_("revision of the run"), default=0)
    requested_at = models.DateTimeField(_("requested at"))
    expires_at = models.DateTimeField(_("expires at"), null=True, blank=True)
    decided_at = models.DateTimeField(_("decided at"), null=True, blank=True)
    used_at = models.DateTimeField(_("used at"), null=True, blank=True)

    objects = ApprovalQuerySet.as_manager()

    class Meta:
        verbose_name = _("approval")
        verbose_name_plural = _("approvals")
        ordering = ("-id",)
        # One for each filter of the lists, in the order of a page. A case is written a few times in its life,
        # at the pace of people.
        indexes = [
            # What waits is found by it, however much was decided before.
            models.Index(fields=["status", "id"], name="anvil_approval_status"),
            # The next three are for the history of decided cases.
            models.Index(fields=["agent", "id"], name="anvil_approval_agent"),
            models.Index(fields=["kind", "id"], name="anvil_approval_kind"),
            # Also the tools that there are to choose from, one look-up each.
            models.Index(fields=["tool", "id"], name="anvil_approval_tool"),
        ]
        constraints = [
            models.CheckConstraint(
                condition=Q(status__in=[str(s) for s in ApprovalStatus]), name="anvil_approval_status_known"
            ),
            models.CheckConstraint(
                condition=Q(status=str(ApprovalStatus.PENDING), open_key__isnull=False)
                | (~Q(status=str(ApprovalStatus.PENDING)) & Q(open_key__isnull=True)),
                name="anvil_approval_open_if_pending",
            ),
            models.CheckConstraint(
                condition=Q(used_at__isnull=True) | Q(status=str(ApprovalStatus.APPROVED)),
                name="anvil_approval_used_if_approved",
            ),
        ]
        permissions = [("decide_approval", _("Can decide approvals"))]

    def __str__(self) -> str:
        return f"{self.tool} ({self.get_status_display()})"

    def agreeing(self) -> list[Decision]:
        """The last yes and those before it to the same: an edit or another answer begins a new round."""
        found: list[Decision] = []
        for row in reversed(self.decisions.all()):
            if row.approved and found and row.digest != found[0].digest:
                break
            if row.approved:
                found.insert(0, row)
        return found


class DecisionQuerySet(models.QuerySet["Decision"]):
    """Decisions, which are only added; they go with their run."""

    def update(self, **kwargs: Any) -> NoReturn:
        """Refused."""
        raise TypeError(APPEND_ONLY)

    def delete(self) -> NoReturn:
        """Refused."""
        raise TypeError(APPEND_ONLY)


class Decision(models.Model):
    """One person's verdict; appended and never changed, also when the person's account goes."""

    approval = models.ForeignKey(
        Approval, verbose_name=_("approval"), on_delete=models.CASCADE, related_name="decisions"
    )
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        verbose_name=_("user"),
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
    )
    reviewer = models.CharField(_("reviewer"), max_length=200)
    reviewer_key = models.CharField(_("key of the reviewer"), max_length=100, blank=True)
    channel = models.CharField(_("channel"), max_length=16)
    verdict = models.CharField(
        _("verdict"), max_length=16, choices=[(str(v), label) for v, label in VERDICT_LABELS.items()]
    )
    reason = models.TextField(_("reason"), blank=True)
    edited_input = models.TextField(_("edited arguments"), blank=True, help_text=_("Exact JSON text."))
    answer = models.TextField(_("answer"), blank=True, help_text=_("Exact JSON text."))
    digest = models.CharField(_("digest"), max_length=64)
    revision = models.PositiveBigIntegerField(_("revision of the run"), default=0)
    created_at = models.DateTimeField(_("created at"))

    objects = DecisionQuerySet.as_manager()

    class Meta:
        verbose_name = _("decision")
        verbose_name_plural = _("decisions")
        ordering = ("id",)
        constraints = [
            models.CheckConstraint(condition=~Q(reviewer=""), name="anvil_decision_names_somebody"),
            models.CheckConstraint(
                condition=Q(verdict__in=[str(v) for v in Verdict]), name="anvil_decision_verdict_known"
            ),
        ]

    def __str__(self) -> str:
        return f"{self.reviewer}: {self.get_verdict_display()}"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Insert the decision; a stored one is never changed."""
        if not self._state.adding:
            self._refuse()
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Decisions go only together with their run."""
        self._refuse()

    @property
    def approved(self) -> bool:
        """Whether it says yes to something."""
        return self.verdict in AGREEING

    def _refuse(self) -> NoReturn:
        raise TypeError(APPEND_ONLY)
