"""A cluster of workers and its last sign of life, for whoever asks whether anybody is at work."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from .fields import ExactCharField


class Cluster(models.Model):
    """One django-q2 cluster. Nothing about a run depends on it: leases say who advances what.

    Rows are written by ``clusters.py``. The row of a cluster that has gone is deleted when another one
    starts: at once on the same host, else a day after its last sign of life.
    """

    name = ExactCharField(
        _("name"),
        max_length=200,
        unique=True,
        help_text=_("Host, pid namespace, process and its start time."),
    )
    queue = models.CharField(_("queue"), max_length=100)
    workers = models.PositiveIntegerField(_("workers"))
    started_at = models.DateTimeField(_("started at"))
    seen_at = models.DateTimeField(_("last sign of life"))

    class Meta:
        verbose_name = _("cluster")
        verbose_name_plural = _("clusters")
        ordering = ("-seen_at", "name")

    def __str__(self) -> str:
        return self.name
