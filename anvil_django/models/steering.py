"""A message that a person sends to a live run, until there is a place for it in the history."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from .fields import ExactCharField
from .run import Run


class Steering(models.Model):
    """One user message that waits: the API takes it only between an answered turn and the next model call."""

    run = models.ForeignKey(Run, verbose_name=_("run"), on_delete=models.CASCADE, related_name="steering")
    content = models.TextField(
        _("content"), blank=True, help_text=_("Exact JSON text; empty where it was placed at once.")
    )
    sender = models.CharField(_("sender"), max_length=200, blank=True)
    created_at = models.DateTimeField(_("created at"))
    idempotency_key = ExactCharField(_("idempotency key"), max_length=200, null=True, blank=True)
    content_digest = models.CharField(_("digest of the content"), max_length=64, blank=True)
    placed_seq = models.PositiveIntegerField(_("number of the message"), null=True, blank=True)

    class Meta:
        verbose_name = _("steering message")
        verbose_name_plural = _("steering messages")
        ordering = ("id",)
        constraints = [
            models.UniqueConstraint(fields=["run", "idempotency_key"], name="anvil_steering_key"),
        ]

    def __str__(self) -> str:
        return f"{self.run_id} {self.sender}"
