"""A slice: one worker's stretch on a run, from its claim until it let go of it or was lost."""

from __future__ import annotations

from django.db import models
from django.utils.translation import gettext_lazy as _

from ..states import SliceEnd
from .run import STATUS_LABELS, Run

END_LABELS = {
    **{str(status): label for status, label in STATUS_LABELS.items()},
    str(SliceEnd.LOST): _("worker lost"),
    str(SliceEnd.GIVEN_UP): _("given up by its worker"),
}


class Slice(models.Model):
    """When a worker had the run, and how that ended; for people to read, nothing is decided by it.

    All times are the database's.
    """

    # The unique constraint below begins with the run and serves as its index.
    run = models.ForeignKey(
        Run, verbose_name=_("run"), on_delete=models.CASCADE, related_name="slices", db_index=False
    )
    token = models.PositiveBigIntegerField(_("fencing token"))
    owner = models.CharField(_("lease owner"), max_length=200)
    waited_since = models.DateTimeField(
        _("waited since"), help_text=_("When it became due: queued, backed off for long enough, or lost.")
    )
    claimed_at = models.DateTimeField(_("claimed at"))
    ended_at = models.DateTimeField(
        _("ended at"), null=True, blank=True, help_text=_("Of a lost worker: its last sign of life.")
    )
    ended_as = models.CharField(
        _("ended as"),
        max_length=16,
        blank=True,
        choices=list(END_LABELS.items()),
        help_text=_("The status in which it left the run, or what became of the worker."),
    )
    error_code = models.CharField(_("error code"), max_length=64, blank=True)
    error = models.TextField(_("why"), blank=True, help_text=_("What went wrong: a sentence."))
    recovered = models.BooleanField(
        _("recovered"), default=False, help_text=_("It took over an interrupted run.")
    )

    class Meta:
        verbose_name = _("slice")
        verbose_name_plural = _("slices")
        constraints = [models.UniqueConstraint(fields=["run", "token"], name="anvil_slice_once")]

    def __str__(self) -> str:
        return f"{self.run_id} ({self.token})"
