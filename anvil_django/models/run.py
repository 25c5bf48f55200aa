"""A run: one execution of an agent on one input, and the lease on it."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _
from django.utils.translation import gettext_noop, pgettext_lazy

from ..checkpoint import CHECKPOINT_VERSION
from ..errors import NewerCheckpointError
from ..identity import RUN_ID_LENGTH
from ..states import RunStatus
from .agent_version import AgentVersion
from .fields import ExactCharField
from .lists import ListQuerySet

STATUS_LABELS = {
    RunStatus.QUEUED: _("queued"),
    RunStatus.RUNNING: _("running"),
    RunStatus.SUSPENDED: _("waiting for a decision"),
    RunStatus.PAUSED: _("paused"),
    RunStatus.DONE: _("done"),
    RunStatus.FAILED: _("failed"),
    RunStatus.CANCELLED: _("cancelled"),
}

WAITS_FOR = {
    RunStatus.QUEUED: gettext_noop("Waits for a worker."),
    RunStatus.SUSPENDED: gettext_noop("Waits for a person's decision."),
}
CONTROL_PERMISSION = "anvil_django.control_run"


class RunQuerySet(ListQuerySet["Run"]):
    """Runs by where they stand."""

    def unfinished(self) -> RunQuerySet:
        """Runs that something can still happen to by itself or by a decision."""
        waiting = (RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.SUSPENDED, RunStatus.PAUSED)
        return self.filter(status__in=waiting)

    def matching(
        self,
        *,
        user: Any = None,
        agent: str | None = None,
        stop_reason: str | None = None,
        statuses: Collection[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> RunQuerySet:
        """The runs that fit all that is given, by the index of the first of it.

        Args:
            user: Key of who started them.
            agent: Name of the agent.
            stop_reason: Why they ended.
            statuses: Any of these.
            since: Created then or later.
            until: Created before.
        """
        found = self
        for column, value in (("user", user), ("agent", agent), ("stop_reason", stop_reason)):
            if value is not None:
                found = found.having(column, value)
        if len(statuses) == 1:
            found = found.having("status", *statuses)
        elif statuses:
            found = found.filter(status__in=sorted(statuses))
        if since is not None:
            found = found.filter(created_at__gte=since)
        return found if until is None else found.filter(created_at__lt=until)

    def readable(self) -> RunQuerySet:
        """Runs whose checkpoints this process can read; all others are left to newer ones."""
        return self.filter(checkpoint_version__lte=CHECKPOINT_VERSION)

    def visible_to(self, user: Any) -> RunQuerySet:
        """Runs that ``user`` may see: their own, and all with the permission to view or to control runs."""
        # Whoever may steer any run has to see which: as in the admin, where changing implies viewing.
        if user.has_perm("anvil_django.view_run") or user.has_perm(CONTROL_PERMISSION):
            return self
        return self.having("user", user.pk) if user.is_authenticated else self.none()


class Run(models.Model):
    """One execution of an agent on one input.

    Rows change only through ``runs.py``, ``approvals.py`` and the store, by conditional updates.
    """

    run_id = ExactCharField(_("run id"), max_length=RUN_ID_LENGTH, unique=True)
    agent = ExactCharField(_("agent"), max_length=100)
    version = models.ForeignKey(
        AgentVersion, verbose_name=_("agent version"), on_delete=models.PROTECT, related_name="runs"
    )
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        verbose_name=_("started by"),
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        # An index below begins with it.
        db_index=False,
    )
    user_key = ExactCharField(_("key of the user"), max_length=100, blank=True)
    user_name = models.CharField(_("name of the user"), max_length=200, blank=True)
    idempotency_key = ExactCharField(_("idempotency key"), max_length=200, null=True, blank=True)
    request_digest = models.CharField(_("request digest"), max_length=64)
    metadata = models.TextField(_("metadata"), default="{}", help_text=_("Exact JSON text."))
    limits = models.TextField(_("limits"), default="{}", help_text=_("Exact JSON text."))

    status = models.CharField(
        _("status"),
        max_length=16,
        choices=[(str(status), label) for status, label in STATUS_LABELS.items()],
        default=str(RunStatus.QUEUED),
    )
    stop_reason = models.CharField(_("stop reason"), max_length=64, blank=True)
    error_code = models.CharField(_("error code"), max_length=64, blank=True)
    error = models.TextField(_("why"), blank=True, help_text=_("Why it waits or ended: a sentence."))

    iterations = models.PositiveIntegerField(pgettext_lazy("run", "iterations"), default=0)
    input_tokens = models.PositiveBigIntegerField(_("input tokens"), default=0)
    output_tokens = models.PositiveBigIntegerField(_("output tokens"), default=0)
    cache_read_tokens = models.PositiveBigIntegerField(_("cache read tokens"), default=0)
    cache_write_tokens = models.PositiveBigIntegerField(_("cache write tokens"), default=0)
    cost_usd = models.DecimalField(
        _("cost (USD)"), max_digits=20, decimal_places=10, null=True, blank=True, default=0
    )
    active_seconds = models.FloatField(_("active seconds"), default=0)
    pauses = models.PositiveIntegerField(_("pauses in a row"), default=0)
    container = models.TextField(_("container"), blank=True)
    message_count = models.PositiveIntegerField(_("messages"), default=0)

    attempt = models.PositiveIntegerField(_("failed attempts in a row"), default=0)
    next_attempt_at = models.DateTimeField(_("next attempt at"), null=True, blank=True)
    ticket_at = models.DateTimeField(_("queue told at"), null=True, blank=True)
    cancel_requested = models.BooleanField(_("cancel requested"), default=False)
    pause_requested = models.BooleanField(_("pause requested"), default=False)
    requested_by = models.CharField(_("asked by"), max_length=200, blank=True)
    steering_waits = models.BooleanField(_("a message waits"), default=False)
    forked_from = models.ForeignKey(
        "self",
        verbose_name=_("forked from"),
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="forks",
    )
    forked_at = models.PositiveIntegerField(_("forked after iteration"), null=True, blank=True)

    checkpoint_version = models.PositiveSmallIntegerField(
        _("checkpoint version"),
        default=1,
        help_text=_("The format in which the run was last saved."),
    )
    token = models.PositiveBigIntegerField(_("fencing token"), default=0)
    revision = models.PositiveBigIntegerField(_("revision"), default=0)
    recoveries = models.PositiveIntegerField(_("recoveries without progress"), default=0)
    lease_owner = models.CharField(_("lease owner"), max_length=200, blank=True)
    lease_until = models.DateTimeField(_("lease until"), null=True, blank=True)

    created_at = models.DateTimeField(_("created at"), auto_now_add=True)
    started_at = models.DateTimeField(_("started at"), null=True, blank=True)
    updated_at = models.DateTimeField(_("updated at"), null=True, blank=True)
    finished_at = models.DateTimeField(_("finished at"), null=True, blank=True)

    objects = RunQuerySet.as_manager()

    class Meta:
        verbose_name = _("run")
        verbose_name_plural = _("runs")
        ordering = ("-id",)
        # One for each filter of the lists, in the order of a page, so that it reads what it shows. None
        # holds a column that a step changes: on PostgreSQL a save that changes no indexed column writes none.
        indexes = [
            # Also what the sweep looks for.
            models.Index(fields=["status", "id"], name="anvil_run_status"),
            models.Index(fields=["agent", "id"], name="anvil_run_agent"),
            # What a person may see, if only their own.
            models.Index(fields=["user", "id"], name="anvil_run_user"),
            # Written when the status changes too. Without it, who looks for a rare reason reads all runs.
            models.Index(fields=["stop_reason", "id"], name="anvil_run_stop_reason"),
            # Where a page between two times begins; written once.
            models.Index(fields=["created_at", "id"], name="anvil_run_created"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["user_key", "idempotency_key"], name="anvil_run_idempotency"),
            models.CheckConstraint(
                condition=Q(status__in=[str(s) for s in RunStatus]), name="anvil_run_status_known"
            ),
            models.CheckConstraint(
                condition=~Q(status=str(RunStatus.FAILED)) | ~Q(error_code=""),
                name="anvil_run_failed_says_why",
            ),
            models.CheckConstraint(
                condition=~Q(status=str(RunStatus.DONE)) | ~Q(stop_reason=""), name="anvil_run_done_says_why"
            ),
            models.CheckConstraint(
                condition=Q(status=str(RunStatus.RUNNING)) | Q(lease_owner=""),
                name="anvil_run_lease_if_running",
            ),
        ]
        permissions = [("control_run", _("Can cancel, pause and resume any run"))]

    def __str__(self) -> str:
        return self.run_id

    @property
    def why(self) -> str:
        """Why it waits or how it ended: a sentence, or "" while it advances and where the status says all.

        In English, as it is stored; the admin shows it in the reader's language.
        """
        # What an earlier worker wrote no longer holds while another one advances the run.
        if self.status == str(RunStatus.RUNNING):
            return ""
        return self.error or WAITS_FOR.get(RunStatus(self.status), "")

    def check_readable(self) -> None:
        """Refuse to touch a run that a newer process has saved.

        Raises:
            NewerCheckpointError: Its checkpoint is in a format that this process does not know.
        """
        if self.checkpoint_version > CHECKPOINT_VERSION:
            raise NewerCheckpointError(self.checkpoint_version, CHECKPOINT_VERSION)

    def may_be_steered_by(self, user: Any) -> bool:
        """Whether ``user`` may cancel, pause and resume it: the owner, and whoever has the permission."""
        owned = user.is_authenticated and self.user_id is not None and self.user_id == user.pk
        return bool(owned or user.has_perm(CONTROL_PERMISSION))
