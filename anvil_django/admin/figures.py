"""The figures of the dashboard, read when they are asked for: as tables, and as what charts are drawn of."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import Any

from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from .. import durations, statistics
from ..models.approval import KIND_LABELS
from ..models.run import STATUS_LABELS
from ..periods import Unit
from ..states import ApprovalKind, RunStatus
from ..statistics import TOKENS, Scope
from .tables import Column, Kind, Table, text

MOST_COLORS = 6
"""Agents that a chart tells apart; the others are added up."""
MOST_BARS = 10
"""Bars of a chart; the table has all."""
STACK = (
    RunStatus.DONE,
    RunStatus.FAILED,
    RunStatus.CANCELLED,
    RunStatus.SUSPENDED,
    RunStatus.PAUSED,
    RunStatus.RUNNING,
    RunStatus.QUEUED,
)
"""Statuses in the order of a stacked bar, from its foot: what ended, then what has not."""
TOKEN_LABELS = {
    "input_tokens": gettext_lazy("input"),
    "output_tokens": gettext_lazy("output"),
    "cache_read_tokens": gettext_lazy("read from the cache"),
    "cache_write_tokens": gettext_lazy("written to the cache"),
}

Chart = dict[str, Any]
"""What the script draws; see ``dashboard.js``."""


class Figures:
    """The figures of a scope. Each kind is read once, by the first who asks for it."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope

    @cached_property
    def now(self) -> statistics.Now:
        """Where things stand at this moment."""
        return statistics.read_now(self.scope.agent)

    @cached_property
    def runs(self) -> statistics.RunFigures:
        """The runs of the period."""
        return statistics.read_runs(self.scope)

    @cached_property
    def tools(self) -> durations.Sampled[durations.ToolFigures]:
        """Tools, by how long they took."""
        return durations.read_tools(self.scope)

    @cached_property
    def questions(self) -> durations.Sampled[durations.QuestionFigures]:
        """Cases, by how long people took."""
        return durations.read_questions(self.scope)

    @cached_property
    def queue(self) -> durations.Sampled[None]:
        """Waits for a worker."""
        return durations.read_queue(self.scope)

    @cached_property
    def recoveries(self) -> list[durations.RecoveryFigures]:
        """Recoveries by agent."""
        return durations.read_recoveries(self.scope)

    @cached_property
    def doubts(self) -> list[durations.DoubtFigures]:
        """Calls that were in doubt, by tool."""
        return durations.read_doubts(self.scope)

    @cached_property
    def costs(self) -> dict[str | None, list[Decimal]]:
        """Dollars for each hour or day by agent, the most expensive first; those of the rest under None."""
        found: dict[str | None, list[Decimal]] = {}
        for place, (agent, costs) in enumerate(self.runs.costs.items()):
            if place < MOST_COLORS - 1 or len(self.runs.costs) == MOST_COLORS:
                found[agent] = costs
            else:
                rest = found.get(None, [Decimal(0)] * len(costs))
                found[None] = [sum(pair, Decimal(0)) for pair in zip(rest, costs, strict=True)]
        return found

    @property
    def when(self) -> Column:
        """The column of the hours or days."""
        if self.scope.period.unit is Unit.HOUR:
            return Column(_("Hour"), Kind.HOUR)
        return Column(_("Day"), Kind.DAY)

    @property
    def begins(self) -> tuple[datetime, ...]:
        """When each of them begins."""
        return self.scope.period.begins


# Tables.


def runs_table(figures: Figures) -> Table:
    """Runs by status over time."""
    statuses = [str(status) for status in STACK]
    return Table(
        "runs",
        _("Runs by status"),
        [
            figures.when,
            *(Column(capfirst(str(STATUS_LABELS[status]))) for status in STACK),
            Column(_("All")),
        ],
        [
            [begin, *(sums.runs[status] for status in statuses), sums.count]
            for begin, sums in zip(figures.begins, figures.runs.times, strict=True)
        ],
    )


def success_table(figures: Figures) -> Table:
    """The success rate over time."""
    return Table(
        "success",
        _("Success rate"),
        [
            figures.when,
            Column(_("Ended")),
            Column(_("Succeeded")),
            Column(_("Success rate"), Kind.SHARE),
        ],
        [
            [begin, sums.ended, sums.succeeded, sums.success_rate]
            for begin, sums in zip(figures.begins, figures.runs.times, strict=True)
        ],
    )


def costs_table(figures: Figures) -> Table:
    """What runs cost over time, by agent."""
    agents = [Column(_("Others") if agent is None else agent, Kind.MONEY) for agent in figures.costs]
    rows = zip(figures.begins, figures.runs.times, *figures.costs.values(), strict=True)
    return Table(
        "costs",
        _("Cost by agent"),
        [figures.when, *agents, Column(_("All"), Kind.MONEY), Column(_("Runs of unknown price"))],
        [[begin, *costs, sums.cost, sums.unpriced] for begin, sums, *costs in rows],
    )


def tokens_table(figures: Figures) -> Table:
    """Tokens over time."""
    return Table(
        "tokens",
        _("Tokens"),
        [
            figures.when,
            *(Column(capfirst(str(TOKEN_LABELS[name]))) for name in TOKENS),
            Column(_("All")),
        ],
        [
            [begin, *(sums.tokens[name] for name in TOKENS), sums.tokens.total()]
            for begin, sums in zip(figures.begins, figures.runs.times, strict=True)
        ],
    )


def agents_table(figures: Figures) -> Table:
    """What each agent came to."""
    return Table(
        "agents",
        _("Agents"),
        [
            Column(_("Agent"), Kind.NAME),
            Column(_("Runs")),
            Column(_("Succeeded")),
            Column(_("Failed")),
            Column(_("Success rate"), Kind.SHARE),
            Column(_("Cost"), Kind.MONEY),
            Column(_("Cost per run"), Kind.MONEY),
            *(Column(_("Tokens: %(kind)s") % {"kind": TOKEN_LABELS[name]}) for name in TOKENS),
        ],
        [
            [
                agent,
                sums.count,
                sums.succeeded,
                sums.runs[str(RunStatus.FAILED)],
                sums.success_rate,
                sums.cost,
                sums.cost_per_run,
                *(sums.tokens[name] for name in TOKENS),
            ]
            for agent, sums in figures.runs.agents.items()
        ],
    )


def _times() -> list[Column]:
    labels = (_("Median"), _("90 % within"), _("Longest"))
    return [Column(label, Kind.SECONDS) for label in labels]


def _spread(spread: durations.Spread) -> list[float | None]:
    return [spread.median, spread.p90, spread.longest]


def questions_table(figures: Figures) -> Table:
    """How long people took to decide."""
    return Table(
        "approvals",
        _("Waits for people"),
        [
            Column(_("Tool or limit"), Kind.NAME),
            Column(_("Question"), Kind.WORD),
            Column(_("Asked")),
            Column(_("Decided")),
            Column(_("Waiting")),
            Column(_("Expired")),
            *_times(),
        ],
        [
            [
                row.tool,
                KIND_LABELS[ApprovalKind(row.kind)],
                row.asked,
                row.time.count,
                row.waiting,
                row.expired,
                *_spread(row.time),
            ]
            for row in figures.questions.rows
        ],
    )


def tools_table(figures: Figures) -> Table:
    """How long tools took."""
    return Table(
        "tools",
        _("Slowest tools"),
        [Column(_("Tool"), Kind.NAME), Column(_("Calls")), Column(_("Failed")), *_times()],
        [[row.name, row.calls, row.failed, *_spread(row.time)] for row in figures.tools.rows],
    )


def doubts_table(figures: Figures) -> Table:
    """Calls that were in doubt."""
    return Table(
        "doubts",
        _("Calls in doubt"),
        [
            Column(_("Tool"), Kind.NAME),
            Column(_("In doubt")),
            Column(_("Waiting")),
            Column(_("Settled")),
            Column(_("Left unknown")),
            Column(_("Void")),
        ],
        [[row.tool, row.asked, row.waiting, row.settled, row.unknown, row.void] for row in figures.doubts],
    )


def recoveries_table(figures: Figures) -> Table:
    """Runs that were taken over from a worker that was lost."""
    return Table(
        "recoveries",
        _("Recoveries"),
        [Column(_("Agent"), Kind.NAME), Column(_("Recoveries")), Column(_("Runs"))],
        [[row.agent, row.recoveries, row.runs] for row in figures.recoveries],
    )


TABLES: dict[str, Callable[[Figures], Table]] = {
    "runs": runs_table,
    "success": success_table,
    "costs": costs_table,
    "tokens": tokens_table,
    "agents": agents_table,
    "approvals": questions_table,
    "tools": tools_table,
    "doubts": doubts_table,
    "recoveries": recoveries_table,
}
"""By the name in the address of its CSV."""


# Charts.


def charts(figures: Figures) -> dict[str, Chart]:
    """What is drawn above the tables of the same names; those without a number are left out."""
    sums = figures.runs.times
    drawn = {
        "runs": _over_time(
            figures,
            "bars",
            "count",
            [
                (str(status), capfirst(str(STATUS_LABELS[status])), [each.runs[str(status)] for each in sums])
                for status in STACK
            ],
        ),
        "success": _over_time(
            figures, "lines", "share", [("success", _("Success rate"), [each.success_rate for each in sums])]
        ),
        "costs": _over_time(
            figures,
            "bars",
            "money",
            [
                (f"color{number}", _("Others") if agent is None else text(agent), list(map(float, costs)))
                for number, (agent, costs) in enumerate(figures.costs.items(), 1)
            ],
        ),
        "tokens": _over_time(
            figures,
            "lines",
            "count",
            [
                (f"color{number}", capfirst(str(TOKEN_LABELS[name])), [each.tokens[name] for each in sums])
                for number, name in enumerate(TOKENS, 1)
            ],
        ),
        "agents": _ranked(
            "money",
            [text(agent) for agent in figures.runs.agents],
            [("color1", _("Cost"), [float(each.cost) for each in figures.runs.agents.values()])],
        ),
        "approvals": _spreads([(_named(row), row.time) for row in figures.questions.rows if row.time.count]),
        "tools": _spreads([(text(row.name), row.time) for row in figures.tools.rows if row.time.count]),
    }
    return {name: chart for name, chart in drawn.items() if chart["series"]}


def _named(row: durations.QuestionFigures) -> str:
    name = text(row.tool)
    if row.kind == str(ApprovalKind.IN_DOUBT):
        return _("%(tool)s, in doubt") % {"tool": name}
    if row.kind == str(ApprovalKind.LIMIT):
        return _("limit: %(limit)s") % {"limit": name}
    return name


Series = list[tuple[str, str, list[Any]]]
"""The style, the label and the numbers of each."""


def _over_time(figures: Figures, shape: str, unit: str, series: Series) -> Chart:
    # The time on the wall as if it were UTC: the script knows no time zones.
    labels = [f"{begin:%Y-%m-%dT%H:%M}Z" for begin in figures.begins]
    found = _with_numbers(series)
    return {"shape": shape, "unit": unit, "times": str(figures.scope.period.unit), "labels": labels, **found}


def _ranked(unit: str, labels: list[str], series: Series) -> Chart:
    first = [(style, label, values[:MOST_BARS]) for style, label, values in series]
    return {"shape": "ranking", "unit": unit, "labels": labels[:MOST_BARS], **_with_numbers(first)}


def _spreads(rows: list[tuple[str, durations.Spread]]) -> Chart:
    return _ranked(
        "seconds",
        [label for label, _spread in rows],
        [
            ("color1", _("Median"), [spread.median for _label, spread in rows]),
            ("color2", _("90 % within"), [spread.p90 for _label, spread in rows]),
        ],
    )


def _with_numbers(series: Series) -> dict[str, Any]:
    kept = [each for each in series if any(value for value in each[2])]
    return {"series": [{"style": s, "label": label, "values": values} for s, label, values in kept]}
