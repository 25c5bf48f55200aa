"""A message of a run's history, appended and never changed."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from .run import Run


class Message(models.Model):
    """One message as it is sent.

    The user turn that answers tool calls has no row: it is composed from the tool calls' results, which have
    no other home. Its number stays free.
    """

    # The unique constraint below begins with the run and serves as its index.
    run = models.ForeignKey(
        Run, verbose_name=_("run"), on_delete=models.CASCADE, related_name="messages", db_index=False
    )
    seq = models.PositiveIntegerField(_("number"))
    role = models.CharField(_("role"), max_length=16)
    content = models.TextField(_("content"), help_text=_("Exact JSON text."))
    stop_reason = models.CharField(_("stop reason"), max_length=64, blank=True)
    model = models.CharField(_("model"), max_length=100, blank=True)
    usage = models.TextField(_("usage"), blank=True, help_text=_("Exact JSON text."))
    cost_usd = models.DecimalField(_("cost (USD)"), max_digits=20, decimal_places=10, null=True, blank=True)
    message_id = models.CharField(_("message id"), max_length=100, blank=True)
    request_id = models.CharField(_("request id"), max_length=100, blank=True)
    revision = models.PositiveBigIntegerField(_("revision of the run"), default=0)
    created_at = models.DateTimeField(_("created at"))

    class Meta:
        verbose_name = _("message")
        verbose_name_plural = _("messages")
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="anvil_message_once")]

    def __str__(self) -> str:
        return f"{self.run_id}#{self.seq} {self.role}"
