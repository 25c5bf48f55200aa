"""The dashboard: what the runs of a period came to, and what waits now, for those who may see all runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponseBase
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from .. import durations, exactjson
from ..clock import get_clock
from ..states import RunStatus
from ..statistics import Scope
from . import figures as told
from .figures import Figures
from .rendering import duration, visible
from .scopes import LABELS, ScopeForm
from .tables import Kind, Table, download, money, shown

if TYPE_CHECKING:
    from .readonly import ReadOnlyMixin as Base
else:
    Base = object

SEE_ALL = "anvil_django.view_run"


@dataclass(frozen=True)
class Tile:
    """One number that is read at a glance."""

    label: Any
    value: Any
    about: Any = ""
    """What it is a part of, or since when."""
    since: datetime | None = None
    url: str = ""
    is_bad: bool = False


@dataclass(frozen=True)
class Section:
    """A chart, the table of its numbers, and what has to be known about them."""

    table: Table
    title: Any
    about: Any
    empty: Any
    csv: str
    has_chart: bool
    size: str = ""
    note: Any = ""


class DashboardMixin(Base):
    """Adds the dashboard to the admin of the runs."""

    def get_urls(self) -> list[Any]:
        """Before those of the runs, which end with one for any address."""
        view = self.admin_site.admin_view
        return [
            path("dashboard/", view(self.dashboard_view), name="anvil_django_dashboard"),
            path(
                "dashboard/<slug:table>.csv",
                view(self.dashboard_csv_view),
                name="anvil_django_dashboard_csv",
            ),
            *super().get_urls(),
        ]

    def has_dashboard_permission(self, request: HttpRequest) -> bool:
        """Whoever may view all runs; not those who may only see their own, by a rule of the site's."""
        allowed = request.user.is_active and request.user.has_perm(SEE_ALL)
        return bool(allowed and self.has_view_permission(request))

    def dashboard_view(self, request: HttpRequest) -> HttpResponseBase:
        """The page."""
        self.demand(self.has_dashboard_permission(request))
        form = ScopeForm(_cleaned(request))
        page = None
        if form.is_valid() and "scope" in form.cleaned_data:
            page = Page(form.cleaned_data["scope"], form.cleaned_data["key"], self.admin_site.name)
        context = {
            **self.admin_site.each_context(request),
            "title": _("Dashboard"),
            "opts": self.opts,
            "media": self.media,
            "form": form,
            "periods": self._periods(form),
            "page": page,
            "zone": timezone.get_current_timezone_name(),
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/anvil_django/dashboard/page.html", context)

    def dashboard_csv_view(self, request: HttpRequest, table: str) -> HttpResponseBase:
        """One of its tables as a file.

        Raises:
            Http404: There is no such table or period.
        """
        self.demand(self.has_dashboard_permission(request))
        form = ScopeForm(_cleaned(request))
        if table not in told.TABLES or not form.is_valid() or "scope" not in form.cleaned_data:
            raise Http404
        scope: Scope = form.cleaned_data["scope"]
        last = scope.period.end - timedelta(microseconds=1)
        name = f"anvil-{table}-{scope.period.begin:%Y-%m-%d}-{last:%Y-%m-%d}"
        return download(request, told.TABLES[table](Figures(scope)), name)

    def _periods(self, form: ScopeForm) -> list[dict[str, Any]]:
        data = getattr(form, "cleaned_data", {})
        agent = {"agent": data["agent"]} if data.get("agent") else {}
        return [
            {
                "label": label,
                "query": urlencode({"period": key, **agent}),
                "is_chosen": key == data.get("key"),
            }
            for key, label in LABELS.items()
        ]


def _cleaned(request: HttpRequest) -> dict[str, str]:
    # PostgreSQL refuses even to look for NUL.
    return {name: exactjson.clean_text(str(value)) for name, value in request.GET.items()}


class Page:
    """What the template shows of a scope."""

    def __init__(self, scope: Scope, key: str, site: str) -> None:
        self.scope, self._key, self._site = scope, key, site
        self.figures = Figures(scope)

    @property
    def is_empty(self) -> bool:
        """Whether there is no run."""
        return not self.figures.runs.total.count

    @property
    def begin(self) -> datetime:
        """The first moment of the period."""
        return self.scope.period.begin

    @property
    def end(self) -> datetime:
        """The last moment of it: of a period that goes on, this one."""
        return min(self.scope.period.end, timezone.localtime(get_clock().now()))

    @property
    def agent(self) -> Any:
        """Whose runs; "" for all."""
        return visible(self.scope.agent or "")

    @cached_property
    def charts(self) -> dict[str, told.Chart]:
        """For the script."""
        return told.charts(self.figures)

    @cached_property
    def now(self) -> list[Tile]:
        """What waits and what goes on."""
        now = self.figures.now
        cases = self._url("anvil_django_approval_changelist")
        runs = self._url("anvil_django_run_changelist")
        oldest = now.oldest_due
        agent = {"agent": self.scope.agent} if self.scope.agent else {}

        def of_status(status: RunStatus) -> str:
            return f"{runs}?{urlencode({'status__exact': str(status), **agent})}"

        return [
            Tile(
                _("Wait for a decision"),
                shown(Kind.COUNT, now.waiting),
                since=now.waiting_since,
                url=f"{cases}?{urlencode(agent)}" if agent else cases,
            ),
            Tile(
                _("Calls in doubt"),
                shown(Kind.COUNT, now.in_doubt),
                since=now.in_doubt_since,
                url=f"{cases}?{urlencode({'kind__exact': 'in_doubt', **agent})}",
                is_bad=bool(now.in_doubt),
            ),
            Tile(
                _("Wait for a worker"),
                shown(Kind.COUNT, now.due),
                since=now.due_since,
                about=_("of %(count)s queued")
                % {"count": shown(Kind.COUNT, now.runs[str(RunStatus.QUEUED)])},
                url=self._url("anvil_django_run_change", oldest.pk)
                if oldest
                else of_status(RunStatus.QUEUED),
            ),
            Tile(
                _("Interrupted"),
                shown(Kind.COUNT, now.interrupted),
                since=now.interrupted_since,
                url=of_status(RunStatus.RUNNING),
                is_bad=bool(now.interrupted),
            ),
            Tile(
                _("Running"),
                shown(Kind.COUNT, now.runs[str(RunStatus.RUNNING)] - now.interrupted),
                url=of_status(RunStatus.RUNNING),
            ),
            Tile(
                _("Paused"),
                shown(Kind.COUNT, now.runs[str(RunStatus.PAUSED)]),
                url=of_status(RunStatus.PAUSED),
            ),
        ]

    @cached_property
    def totals(self) -> list[Tile]:
        """The period in a few numbers."""
        total = self.figures.runs.total
        rate, cost = total.success_rate, total.cost_per_run
        people, queue = self.figures.questions.total, self.figures.queue.total
        recovered = sum(row.recoveries for row in self.figures.recoveries)
        return [
            Tile(
                _("Runs"),
                shown(Kind.COUNT, total.count),
                _("%(count)s ended")
                % {"count": shown(Kind.COUNT, total.ended + total.runs[str(RunStatus.CANCELLED)])},
            ),
            Tile(
                _("Success rate"),
                shown(Kind.SHARE, rate),
                _("%(succeeded)s of %(ended)s")
                % {"succeeded": shown(Kind.COUNT, total.succeeded), "ended": shown(Kind.COUNT, total.ended)},
            ),
            Tile(
                _("Cost"),
                money(total.cost),
                "" if cost is None else _("%(cost)s a run") % {"cost": money(cost)},
            ),
            Tile(_("Waits for people"), *_waits(people)),
            Tile(_("Waits for a worker"), *_waits(queue)),
            Tile(_("Recoveries"), shown(Kind.COUNT, recovered)),
        ]

    @cached_property
    def sections(self) -> list[Section]:
        """The charts with their tables."""
        sample = {"most": shown(Kind.COUNT, durations.SAMPLE)}
        latest = (
            _("Only the latest runs of the period were looked at, as far as %(most)s rows reach.") % sample
        )
        unpriced = self.figures.runs.total.unpriced
        unknown = ngettext(
            "The price of %(count)s run is not known; it is left out.",
            "The price of %(count)s runs is not known; they are left out.",
            unpriced,
        )
        note = unknown % {"count": shown(Kind.COUNT, unpriced)} if unpriced else ""
        return [
            self._section(
                "runs", _("By the time when they were created, and by where they stand now."), size="wide"
            ),
            self._section(
                "success",
                _("Of the runs that are done or failed: those in which the agent came to an end by itself."),
            ),
            self._section("tokens", _("Of the runs that were created then.")),
            self._section("costs", _("Of the runs that were created then, in US dollars."), note=note),
            self._section("agents", _("What the runs of each agent cost, in US dollars."), note=note),
            self._section(
                "approvals",
                _("From the question to the decision of a person."),
                empty=_("Nobody was asked in this period."),
                note=latest if self.figures.questions.is_cut else "",
            ),
            self._section(
                "tools",
                _("From the start of a call to its stored result; the slowest first."),
                empty=_("No tool ran in this period."),
                note=latest if self.figures.tools.is_cut else "",
            ),
            self._section(
                "doubts",
                _("Side effects that began and whose outcome nobody recorded, so that a person was asked."),
                empty=_("No call was in doubt in this period."),
            ),
            self._section(
                "recoveries",
                _("Runs that were taken over from a worker that was lost or gave up."),
                empty=_("No run was recovered in this period."),
            ),
        ]

    @property
    def cut_at(self) -> Any:
        """How many waits for a worker the median is of, if there were more; otherwise ""."""
        return shown(Kind.COUNT, durations.SAMPLE) if self.figures.queue.is_cut else ""

    def _section(self, name: str, about: Any, *, empty: Any = "", note: Any = "", size: str = "") -> Section:
        table = told.TABLES[name](self.figures)
        return Section(
            table,
            title=table.caption,
            about=about,
            empty=empty,
            csv=f"{self._url('anvil_django_dashboard_csv', name)}?{urlencode(self._query())}",
            has_chart=name in self.charts,
            size=size,
            note=note,
        )

    def _query(self) -> dict[str, str]:
        agent = {"agent": self.scope.agent} if self.scope.agent else {}
        if self._key:
            return {"period": self._key, **agent}
        last = self.scope.period.end - timedelta(microseconds=1)
        return {"since": f"{self.begin:%Y-%m-%d}", "until": f"{last:%Y-%m-%d}", **agent}

    def _url(self, name: str, *args: Any) -> str:
        return reverse(f"admin:{name}", args=args, current_app=self._site)


def _waits(spread: durations.Spread) -> tuple[str, Any]:
    if spread.median is None or spread.p90 is None:
        return str(shown(Kind.SECONDS, None)), ""
    # Not broken between a number and its unit.
    within = duration(timedelta(seconds=spread.p90)).replace(" ", "\N{NO-BREAK SPACE}")
    return duration(timedelta(seconds=spread.median)), _("median; 90 %% within %(time)s") % {"time": within}
