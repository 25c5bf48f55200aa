"""What the runs of a period came to, added up by the database.

The runs of a period are those that were created in it, with all that has become of them since: what a run
costs counts where it began, also if it went on later. ``durations`` has what cannot be added up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import Any

from django.db.models import Count, F, Max, Min, Q, QuerySet, Sum
from django.db.models.functions import Coalesce, Greatest

from .models import Approval, Run
from .periods import Period
from .states import ApprovalKind, RunStatus
from .stores.database_time import database_now

FINISHED = ("end_turn", "stop_sequence")
"""Stop reasons of runs that ended because the agent had come to an end."""

TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")


@dataclass(frozen=True)
class Scope:
    """Which runs."""

    period: Period
    agent: str | None = None
    """Only those of this agent; None: of all."""

    @property
    def runs(self) -> QuerySet[Run]:
        """Those that were created in the period, by the index of that time."""
        found = self._created
        return found if self.agent is None else found.filter(agent=self.agent)

    @cached_property
    def keys(self) -> tuple[int, int]:
        """The least and the greatest key of the runs of the period, of any agent; (0, 0): none."""
        # Not of the column itself, for which PostgreSQL may look through all older runs.
        key = F("pk") + 0
        found = self._created.aggregate(least=Min(key), greatest=Max(key))
        return found["least"] or 0, found["greatest"] or 0

    def related(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Those rows of a table that belong to the runs; the index that begins with the run is read."""
        least, greatest = self.keys
        found = rows.filter(
            # The same runs twice: keys follow the time, but nothing says that they must.
            run_id__gte=least,
            run_id__lte=greatest,
            run__created_at__gte=self.period.begin,
            run__created_at__lt=self.period.end,
        )
        return found if self.agent is None else found.filter(run__agent=self.agent)

    @property
    def _created(self) -> QuerySet[Run]:
        return Run.objects.filter(created_at__gte=self.period.begin, created_at__lt=self.period.end)


@dataclass
class Sums:
    """What some runs came to."""

    runs: Counter[str] = field(default_factory=Counter)
    """How many of them stand where now, by status."""
    succeeded: int = 0
    """Done, because the agent had come to an end; not stopped by a limit or a refusal."""
    cost: Decimal = Decimal(0)
    """Dollars, of the runs whose price is known."""
    unpriced: int = 0
    """Runs whose price is not known."""
    tokens: Counter[str] = field(default_factory=Counter)
    """By the names of ``TOKENS``."""

    @property
    def count(self) -> int:
        """How many runs they are."""
        return self.runs.total()

    @property
    def ended(self) -> int:
        """Runs that ended without a person ending them."""
        return self.runs[str(RunStatus.DONE)] + self.runs[str(RunStatus.FAILED)]

    @property
    def success_rate(self) -> float | None:
        """The share of those that succeeded, from 0 to 1; None if none has ended."""
        return self.succeeded / self.ended if self.ended else None

    @property
    def cost_per_run(self) -> Decimal | None:
        """Dollars a run, of those whose price is known; None if there are none."""
        priced = self.count - self.unpriced
        return self.cost / priced if priced else None

    def add(self, row: Mapping[str, Any]) -> None:
        """Add the runs of one group."""
        self.runs[row["status"]] += row["count"]
        self.succeeded += row["succeeded"]
        self.cost += row["cost"] or 0
        self.unpriced += row["unpriced"]
        for name in TOKENS:
            self.tokens[name] += row[name] or 0


@dataclass(frozen=True)
class RunFigures:
    """The runs of a period."""

    total: Sums
    times: list[Sums]
    """For each hour or day of the period."""
    agents: dict[str, Sums]
    """By agent, the most expensive first."""
    costs: dict[str, list[Decimal]]
    """Dollars by agent, in the same order, for each hour or day."""


@dataclass(frozen=True)
class Now:
    """Where things stand at this moment, whatever the period."""

    runs: Counter[str]
    """Unfinished runs by status."""
    interrupted: int
    """Of the running ones: no live lease covers them, and no sweep has found them yet."""
    interrupted_since: datetime | None
    """When the first of those leases ran out."""
    due: int
    """Of the queued ones: they could be advanced and wait for a worker."""
    due_since: datetime | None
    """Since when the first of them has been due."""
    oldest_due: Run | None
    """That one, with its key and its run id."""
    waiting: int
    """Cases that wait for a person's decision, doubts and limits too."""
    waiting_since: datetime | None
    in_doubt: int
    """Of these: nobody knows whether a side effect happened."""
    in_doubt_since: datetime | None


def read_runs(scope: Scope) -> RunFigures:
    """Add up the runs of a period: one statement, which reads each of them once."""
    rows = (
        scope.runs.annotate(place=scope.period.place_of("created_at"))
        .order_by()
        .values("place", "agent", "status")
        .annotate(
            count=Count("pk"),
            succeeded=Count("pk", filter=Q(status=str(RunStatus.DONE), stop_reason__in=FINISHED)),
            cost=Sum("cost_usd"),
            unpriced=Count("pk", filter=Q(cost_usd=None)),
            **{name: Sum(name) for name in TOKENS},
        )
    )
    total, times = Sums(), [Sums() for _begin in scope.period.begins]
    agents: dict[str, Sums] = {}
    costs: dict[str, list[Decimal]] = {}
    for row in rows:
        agent = row["agent"]
        for sums in (total, times[row["place"]], agents.setdefault(agent, Sums())):
            sums.add(row)
        costs.setdefault(agent, [Decimal(0)] * len(times))[row["place"]] += row["cost"] or 0
    ranked = sorted(agents, key=lambda agent: (-agents[agent].cost, -agents[agent].count, agent))
    return RunFigures(
        total,
        times,
        agents={agent: agents[agent] for agent in ranked},
        costs={agent: costs[agent] for agent in ranked},
    )


def read_now(agent: str | None = None) -> Now:
    """Where things stand now: three statements, which read what has not ended and nothing else.

    Args:
        agent: Only the runs of this agent; None: of all.
    """
    now = database_now()
    is_due = Q(status=str(RunStatus.QUEUED)) & (Q(next_attempt_at=None) | Q(next_attempt_at__lte=now))
    due_at = Greatest(Coalesce("next_attempt_at", "created_at"), Coalesce("updated_at", "created_at"))
    lost = Q(status=str(RunStatus.RUNNING)) & (Q(lease_until=None) | Q(lease_until__lt=now))
    # By agent, and the right one picked here: asked for one agent, a database may read all of its runs.
    groups = (
        Run.objects.unfinished()
        .annotate(due_at=due_at)
        .order_by()
        .values("agent", "status")
        .annotate(
            count=Count("pk"),
            due=Count("pk", filter=is_due),
            due_since=Min("due_at", filter=is_due),
            lost=Count("pk", filter=lost),
            lost_since=Min(Coalesce("lease_until", "updated_at", "created_at"), filter=lost),
        )
    )
    runs = [row for row in groups if agent in (None, row["agent"])]
    standing: Counter[str] = Counter()
    for row in runs:
        standing[row["status"]] += row["count"]
    doubt = Q(kind=str(ApprovalKind.IN_DOUBT))
    questions = (
        Approval.objects.pending()
        .order_by()
        .values("agent")
        .annotate(
            count=Count("pk"),
            since=Min("requested_at"),
            doubts=Count("pk", filter=doubt),
            doubts_since=Min("requested_at", filter=doubt),
        )
    )
    cases = [row for row in questions if agent in (None, row["agent"])]
    oldest = Run.objects.having("status", str(RunStatus.QUEUED), few=True).filter(is_due)
    if agent is not None:
        oldest = oldest.having("agent", agent)
    return Now(
        runs=standing,
        interrupted=_sum(runs, "lost"),
        interrupted_since=_first(runs, "lost_since"),
        due=_sum(runs, "due"),
        due_since=_first(runs, "due_since"),
        oldest_due=oldest.annotate(due_at=due_at).order_by(F("due_at").asc(), "id").only("run_id").first(),
        waiting=_sum(cases, "count"),
        waiting_since=_first(cases, "since"),
        in_doubt=_sum(cases, "doubts"),
        in_doubt_since=_first(cases, "doubts_since"),
    )


def _sum(rows: Iterable[Mapping[str, Any]], name: str) -> int:
    return sum(row[name] for row in rows)


def _first(rows: Iterable[Mapping[str, Any]], name: str) -> datetime | None:
    return min((row[name] for row in rows if row[name] is not None), default=None)
