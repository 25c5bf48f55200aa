"""What a plain Django loop would store: the rows of the contestant ``django-rows``."""

from __future__ import annotations

from django.db import models


class LoopRun(models.Model):
    """One run and how far it is."""

    key = models.CharField(max_length=64, unique=True)
    status = models.CharField(max_length=16, default="running")
    iteration = models.IntegerField(default=0)
    updated_at = models.DateTimeField()

    def __str__(self) -> str:
        return self.key


class LoopMessage(models.Model):
    """One message, never changed."""

    run = models.ForeignKey(LoopRun, on_delete=models.CASCADE)
    seq = models.IntegerField()
    body = models.JSONField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["run", "seq"], name="overhead_message_seq")]

    def __str__(self) -> str:
        return f"{self.run_id}/{self.seq}"


class Booking(models.Model):
    """What the atomic tool writes into the site's own database."""

    seq = models.IntegerField()

    def __str__(self) -> str:
        return str(self.seq)
