"""The page of an unfinished run keeps itself up to date: what changed, asked for again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import URLPattern, path

from .. import exactjson
from ..clock import get_clock
from ..models import Run
from ..states import RunStatus
from .standing import is_lost

if TYPE_CHECKING:
    from .run_page import RunPageMixin as Base
else:
    Base = object

REDRAW_SECONDS = 20
"""After how long the page of a run is drawn anew although nothing happened but that time went by."""
COLUMNS = (
    "revision",
    "token",
    "status",
    "updated_at",
    "next_attempt_at",
    "recoveries",
    "pause_requested",
    "cancel_requested",
    "error_code",
)


def mark(run: Run) -> str:
    """Changes whenever the page of the run does, but for decisions that others have to agree with."""
    shown: list[Any] = [getattr(run, name) for name in COLUMNS]
    shown.append(is_lost(run))
    if run.status == RunStatus.RUNNING:
        shown.append(int(get_clock().now().timestamp()) // REDRAW_SECONDS)
    return exactjson.digest(*map(str, shown))[:20]


class LiveMixin(Base):
    """The view that the script of the page asks."""

    def get_urls(self) -> list[URLPattern]:
        """With its own, before those of the page."""
        name = f"{self.opts.app_label}_{self.opts.model_name}_live"
        return [
            path("<int:pk>/live/", self.admin_site.admin_view(self.live_view), name=name),
            *super().get_urls(),
        ]

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Any:
        """Add all that the page shows besides its fields."""
        run = kwargs.get("obj")
        if run is not None:
            context.update(self.page_of(request, run, mark(run)), live_url=self._url("live", run.pk))
        return super().render_change_form(request, context, *args, **kwargs)

    def live_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """What the page shows now; 204 where that is what its ``mark`` stands for, after one query."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        run = Run.objects.only("lease_until", *COLUMNS).filter(pk=pk).first()
        if run is None:
            raise Http404
        seen = mark(run)
        if request.GET.get("mark") == seen:
            return HttpResponse(status=204)
        run = self.get_queryset(request).defer(None).get(pk=pk)
        context = {**self.page_of(request, run, mark(run)), "original": run}
        return TemplateResponse(request, "admin/anvil_django/run/live.html", context)
