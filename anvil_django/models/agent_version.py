"""The frozen request prefix of an agent, stored once per content."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _


class AgentVersion(models.Model):
    """Model, system prompt, tools and parameters as they were when a run started; never changed."""

    agent = models.CharField(_("agent"), max_length=100)
    digest = models.CharField(_("digest"), max_length=64, unique=True)
    prefix = models.TextField(_("request prefix"), help_text=_("Exact JSON text."))
    created_at = models.DateTimeField(_("created at"), auto_now_add=True)

    class Meta:
        verbose_name = _("agent version")
        verbose_name_plural = _("agent versions")

    def __str__(self) -> str:
        return f"{self.agent} {self.digest[:8]}"
