"""What went wrong between the steps of a run: attempts that failed, and workers that were lost."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.db.models import Q
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from ..models import Run, Slice
from ..states import SliceEnd
from .rendering import visible
from .stored import shown

MOST_NOTICES = 100
SENTENCE_LIMIT = 1_000


@dataclass(frozen=True)
class Notice:
    """One of them, in words."""

    key: int
    at: datetime
    what: SafeString | str
    why: SafeString | str
    worker: SafeString


def read(run: Run, since: datetime | None, to: datetime | None) -> list[Notice]:
    """Those of a stretch of time, the earliest first, in one query; None: no bound."""
    rows = Slice.objects.using(run._state.db).filter(run_id=run.pk, ended_at__isnull=False)
    rows = rows.filter(~Q(error_code="") | Q(ended_as__in=[str(end) for end in SliceEnd]))
    if since is not None:
        rows = rows.filter(ended_at__gt=since)
    if to is not None:
        rows = rows.filter(ended_at__lte=to)
    return [_notice(row) for row in rows.order_by("-token")[:MOST_NOTICES]][::-1]


def _notice(row: Slice) -> Notice:
    assert row.ended_at is not None
    what, why = _what(row), visible(shown(row.error), SENTENCE_LIMIT)
    return Notice(row.token, row.ended_at, what, why, visible(row.owner))


def _what(row: Slice) -> SafeString | str:
    match row.ended_as:
        case SliceEnd.LOST:
            return _("The worker was lost. Another one goes on from the last step that was stored.")
        case SliceEnd.GIVEN_UP:
            return _("The worker gave the run up. Another one goes on from the last step that was stored.")
    return format_html(
        _("An attempt failed ({code}); it left the run {status}."),
        code=visible(row.error_code),
        status=row.get_ended_as_display(),
    )
