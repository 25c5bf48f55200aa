"""A tool call: the fence around what a tool does."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from ..states import CallStatus, Outcome
from .fields import ExactCharField
from .run import Run

CALL_STATUS_LABELS = {
    CallStatus.READY: _("ready"),
    CallStatus.WAITING: _("waiting for a decision"),
    CallStatus.STARTED: _("started"),
    CallStatus.IN_DOUBT: _("in doubt"),
    CallStatus.DONE: _("done"),
}
OUTCOME_LABELS = {
    Outcome.RETURNED: _("returned"),
    Outcome.FAILED: _("failed"),
    Outcome.REFUSED: _("refused"),
    Outcome.REJECTED: _("rejected"),
    Outcome.EXPIRED: _("expired"),
    Outcome.DECLINED: _("declined without asking again"),
    Outcome.ANSWERED: _("answered by a person"),
    Outcome.UNKNOWN: _("outcome unknown"),
    Outcome.CANCELLED: _("cancelled"),
}


class ToolCall(models.Model):
    """One ``tool_use`` block and what became of it."""

    # The unique constraint below begins with the run and serves as its index.
    run = models.ForeignKey(
        Run, verbose_name=_("run"), on_delete=models.CASCADE, related_name="tool_calls", db_index=False
    )
    seq = models.PositiveIntegerField(_("message number"))
    index = models.PositiveIntegerField(_("place in the turn"))
    call_id = ExactCharField(_("call id"), max_length=200)
    name = models.CharField(_("tool"), max_length=128)
    input = models.TextField(_("input"), help_text=_("Exact JSON text."))
    effect = models.CharField(_("effect"), max_length=16)
    on_interrupt = models.CharField(_("on interrupt"), max_length=16, blank=True)
    status = models.CharField(
        _("status"), max_length=16, choices=[(str(s), label) for s, label in CALL_STATUS_LABELS.items()]
    )
    outcome = models.CharField(
        _("outcome"),
        max_length=16,
        blank=True,
        choices=[(str(o), label) for o, label in OUTCOME_LABELS.items()],
    )
    attempts = models.PositiveIntegerField(_("attempts"), default=0)
    started_token = models.PositiveBigIntegerField(_("fencing token of the start"), default=0)
    result = models.TextField(_("result"), null=True, blank=True, help_text=_("Exact JSON text."))
    is_error = models.BooleanField(_("is an error"), default=False)
    created_revision = models.PositiveBigIntegerField(_("revision when asked for"), default=0)
    started_revision = models.PositiveBigIntegerField(_("revision when started"), null=True, blank=True)
    finished_revision = models.PositiveBigIntegerField(_("revision when finished"), null=True, blank=True)
    created_at = models.DateTimeField(_("created at"))
    started_at = models.DateTimeField(_("started at"), null=True, blank=True)
    finished_at = models.DateTimeField(_("finished at"), null=True, blank=True)

    class Meta:
        verbose_name = _("tool call")
        verbose_name_plural = _("tool calls")
        constraints = [
            models.UniqueConstraint(fields=["run", "call_id"], name="anvil_call_once"),
            models.CheckConstraint(
                condition=Q(status__in=[str(s) for s in CallStatus]), name="anvil_call_status_known"
            ),
            models.CheckConstraint(
                condition=Q(status=str(CallStatus.DONE), result__isnull=False)
                | (~Q(status=str(CallStatus.DONE)) & Q(result__isnull=True)),
                name="anvil_call_result_if_done",
            ),
            models.CheckConstraint(
                condition=~Q(status=str(CallStatus.STARTED)) | Q(started_token__gt=0),
                name="anvil_call_started_by_token",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.call_id})"
