"""The page of one run: where it stands, where its time went, what was said and done, and what can be done."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from django.contrib import messages
from django.contrib.admin import helpers
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _

from .. import agents, runs
from ..errors import AnvilError
from ..models import Run
from ..states import TERMINAL
from ..timeline import Kind
from . import attempts, conversation, facts, standing, time_spent
from .facts import Outline
from .forking import ForkForm
from .rendering import duration
from .steering import CONTROLS, leads_somewhere

if TYPE_CHECKING:
    from .steering import SteeringMixin as Base
else:
    Base = object

STEPS = 50
"""Iterations on one page."""
MOST_MESSAGES = 3 * STEPS
FROM = "from"


@dataclass(frozen=True)
class Window:
    """The iterations that a page shows."""

    first: int
    last: int
    of: int

    @property
    def earlier(self) -> int | None:
        """The first iteration of the page before this one."""
        return max(1, self.first - STEPS) if self.first > 1 else None

    @property
    def later(self) -> int | None:
        """The first iteration of the page after this one."""
        return self.last + 1 if self.last < self.of else None


@dataclass(frozen=True)
class Page:
    """All of it, but for the plain fields."""

    run: Run
    mark: str
    is_finished: bool
    standing: standing.Standing
    controls: list[tuple[str, Any]]
    time: time_spent.TimeSpent
    window: Window
    conversation: conversation.Conversation


def read(run: Run, user: Any, asked_for: str | None, *, mark: str, may_control: bool, site_name: str) -> Page:
    """The page of a run, in a bounded number of queries.

    Args:
        user: Who looks.
        asked_for: The first iteration to show; None or nonsense: the last ones.
        mark: Changes when the page does.
        may_control: Whether ``user`` may steer runs.
        site_name: Of the admin site.
    """
    outline = facts.read(run)
    window = _window(asked_for, outline)
    return Page(
        run=run,
        mark=mark,
        is_finished=run.status in TERMINAL,
        standing=standing.read(run, user, site_name),
        controls=_controls(run, user) if may_control else [],
        time=time_spent.read(outline, _Addresses(outline, window)),
        window=window,
        conversation=_told(run, outline, window),
    )


def _controls(run: Run, user: Any) -> list[tuple[str, Any]]:
    agent = agents.registered().get(run.agent)
    may_fork = agent is not None and agents.may_start(user, agent)
    return [
        (name, CONTROLS[name].label if name in CONTROLS else _("Fork"))
        for name in leads_somewhere(run)
        if name != "fork" or may_fork
    ]


def _window(asked_for: str | None, outline: Outline) -> Window:
    most = max(outline.iterations, 1)
    oldest = outline.earlier + 1
    first = max(oldest, most - STEPS + 1)
    if asked_for is not None and asked_for.isdecimal():
        first = min(max(int(asked_for[:9]), oldest), most)
    return Window(first, min(first + STEPS - 1, most), most)


class _Addresses:
    """Where each step is shown: on this page, or on another one of the same run."""

    def __init__(self, outline: Outline, window: Window) -> None:
        self._since, self._to = outline.messages_of(window.first, window.last)

    def __call__(self, iteration: int, seq: int) -> str:
        if seq >= self._since and (self._to is None or seq <= self._to):
            return f"#m{seq}"
        first = max(iteration - 1, 0) // STEPS * STEPS + 1
        return f"?{FROM}={first}#m{seq}"


def _told(run: Run, outline: Outline, window: Window) -> conversation.Conversation:
    since, to = outline.messages_of(window.first, window.last)
    told = conversation.read(run, since=since, to=to, most=MOST_MESSAGES)
    times = {
        span.seq: span.duration for span in outline.spans if span.kind is Kind.MODEL and not span.outcome
    }
    for turn in told.turns:
        turn.iteration = outline.iteration_of(turn.number)
        turn.time = duration(times[turn.number]) if turn.number in times else ""
    _place_notices(run, outline, told, since, to)
    return told


def _place_notices(
    run: Run, outline: Outline, told: conversation.Conversation, since: int, to: int | None
) -> None:
    """Put what went wrong before the turn that came after it."""
    before = list(takewhile(lambda row: row.seq < since, outline.facts.messages))
    begin = before[-1].created_at if before else None
    end = None if to is None else next(r.created_at for r in outline.facts.messages if r.seq == to)
    left = attempts.read(run, begin, end)
    for turn in told.turns:
        turn.notices = [notice for notice in left if notice.at < turn.created_at]
        left = left[len(turn.notices) :]
    told.notices = left


class RunPageMixin(Base):
    """The page and what is reached from it."""

    def get_urls(self) -> list[URLPattern]:
        """Those of the page, before Django's."""
        wrap, name = self.admin_site.admin_view, f"{self.opts.app_label}_{self.opts.model_name}"
        return [
            path("<int:pk>/steer/", wrap(self.steer_view), name=f"{name}_steer"),
            path("<int:pk>/fork/", wrap(self.fork_view), name=f"{name}_fork"),
            *super().get_urls(),
        ]

    def page_of(self, request: HttpRequest, run: Run, mark: str) -> dict[str, Any]:
        """What the templates of the page are filled with."""
        page = read(
            run,
            request.user,
            request.GET.get(FROM),
            mark=mark,
            may_control=self.has_control_permission(request),
            site_name=self.admin_site.name,
        )
        return {
            "page": page,
            "conversation": page.conversation,
            "steer_url": self._url("steer", run.pk),
            "fork_url": self._url("fork", run.pk),
            "action_checkbox_name": helpers.ACTION_CHECKBOX_NAME,
        }

    # Views.

    def steer_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Do one thing to this run, and come back to its page."""
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        run = self._run(request, pk)
        name = request.POST.get("action", "")
        page = self._url("change", pk)
        if run is None or name not in CONTROLS:
            return self._gone(request) if run is None else HttpResponseRedirect(page)
        asks = self.steer(request, [run], name, target=request.path, list_url=page)
        return HttpResponseRedirect(page) if asks is None else asks

    def fork_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Ask after which iteration, and start a new run from there."""
        run = self._run(request, pk)
        if run is None:
            return self._gone(request)
        form = ForkForm(request.POST if request.method == "POST" else None, iterations=_answers(run))
        if form.is_valid():
            try:
                agents.get_startable(request.user, run.agent)
                fork = runs.fork(run.run_id, user=request.user, **form.values())
            except AnvilError as exc:
                form.add_error(None, exc.message)
            else:
                self.log_change(request, run, _("Forked as %(run)s.") % {"run": fork.run_id})
                return self._forked(request, run, fork)
        return self.ask(
            request,
            "admin/anvil_django/run/fork.html",
            title=_("Fork a run"),
            run=run,
            form=form,
            target=request.path,
            list_url=self._url("change", pk),
        )

    def _forked(self, request: HttpRequest, run: Run, fork: Run) -> HttpResponse:
        was = format_html('<a href="{}">{}</a>', self._url("change", run.pk), run.run_id)
        messages.success(request, format_html(_("This is the new run, forked from {}."), was))
        return HttpResponseRedirect(self._url("change", fork.pk))

    # Helpers.

    def _run(self, request: HttpRequest, pk: int) -> Run | None:
        """The run, for those who may see and steer it.

        Raises:
            PermissionDenied: Not allowed.
        """
        if not self.has_view_permission(request):
            raise PermissionDenied
        self.demand(self.has_control_permission(request))
        run: Run | None = self.get_queryset(request).defer(None).filter(pk=pk).first()
        return run

    def _gone(self, request: HttpRequest) -> HttpResponse:
        messages.warning(request, _("This run is not there any more."))
        return HttpResponseRedirect(self._list_url())

    def _url(self, page: str, *args: Any) -> str:
        name = f"admin:{self.opts.app_label}_{self.opts.model_name}_{page}"
        return reverse(name, args=args, current_app=self.admin_site.name)


def _answers(run: Run) -> int:
    return run.messages.filter(role="assistant").exclude(stop_reason="").count()
