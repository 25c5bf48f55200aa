"""How long things took in the runs of a period: tools, people, workers; and what went wrong on the way.

Medians cannot be added up, and databases compute them each in their own way. They are taken here, of a
sample: the latest runs of the period, as far as ``SAMPLE`` rows reach. Counts of recoveries and doubts are
those of the whole period.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import ceil
from statistics import median
from typing import Any, Generic, NamedTuple, TypeVar

from django.db.models import Count, OuterRef, QuerySet, Subquery

from .models import Approval, Slice, ToolCall
from .states import ApprovalKind, ApprovalStatus, Outcome
from .statistics import Scope

SAMPLE = 5_000
"""Most rows that medians are taken of."""


@dataclass(frozen=True)
class Spread:
    """How long something took, in seconds; all None if it never happened."""

    count: int
    median: float | None
    p90: float | None
    """Nine of ten took no longer."""
    longest: float | None

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Spread:
        """Of these durations; none is taken for less than nothing, whatever the clocks said."""
        ordered = sorted(max(each, 0.0) for each in seconds)
        if not ordered:
            return cls(0, None, None, None)
        return cls(len(ordered), median(ordered), ordered[ceil(0.9 * len(ordered)) - 1], ordered[-1])


Row = TypeVar("Row")


@dataclass(frozen=True)
class Sampled(Generic[Row]):
    """Rows of figures, and whether they are of all runs of the period."""

    rows: list[Row]
    total: Spread
    """Of all rows together."""
    is_cut: bool
    """Whether the period has more than was looked at; then it was the latest runs."""


@dataclass(frozen=True)
class ToolFigures:
    """The calls of a tool that ran to an end."""

    name: str
    calls: int
    failed: int
    """It raised, took too long, or what it returned could not be stored."""
    time: Spread


@dataclass(frozen=True)
class QuestionFigures:
    """The cases about one tool, or about one limit."""

    kind: str
    tool: str
    asked: int
    waiting: int
    """Not decided yet."""
    expired: int
    """Nobody decided in time."""
    time: Spread
    """From the question to the decision of a person, of those that were decided."""


@dataclass(frozen=True)
class DoubtFigures:
    """The calls of a tool of which nobody knew whether they had happened, so that a person was asked."""

    tool: str
    asked: int
    waiting: int
    settled: int
    """Somebody knew: it happened, or it did not and was run."""
    unknown: int
    """Nobody knew, or nobody said so in time; the agent was told."""
    void: int
    """The run was ended before."""


@dataclass(frozen=True)
class RecoveryFigures:
    """How often runs of an agent were taken over from a worker that was lost or gave up."""

    agent: str
    recoveries: int
    runs: int
    """In how many runs."""


# Samples: by the key of the run, which has an index in each table and follows the time of its creation.


class _Call(NamedTuple):
    run: int
    seq: int
    name: str
    outcome: str
    asked_at: datetime
    started_at: datetime | None
    finished_at: datetime
    claimed_at: datetime | None


def read_tools(scope: Scope) -> Sampled[ToolFigures]:
    """The tools whose calls ran, the slowest first by what nine of ten calls took."""
    claim = Slice.objects.filter(run=OuterRef("run"), claimed_at__lte=OuterRef("finished_at"))
    rows, is_cut = _sample(
        ToolCall.objects.filter(outcome__in=(str(Outcome.RETURNED), str(Outcome.FAILED)))
        .exclude(effect="limit")
        .annotate(last_claim=Subquery(claim.order_by("-token").values("claimed_at")[:1])),
        scope,
        ("run_id", "seq", "name", "outcome", "created_at", "started_at", "finished_at", "last_claim"),
    )
    calls = [_Call(*row) for row in rows]
    times: defaultdict[str, list[float]] = defaultdict(list)
    for call, seconds in _timed(calls):
        times[call.name].append(seconds)
    count = Counter(call.name for call in calls)
    failed = Counter(call.name for call in calls if call.outcome == str(Outcome.FAILED))
    found = [ToolFigures(name, count[name], failed[name], Spread.of(times[name])) for name in count]
    found.sort(key=lambda tool: (-(tool.time.p90 or 0.0), tool.name))
    return Sampled(found, Spread.of(each for some in times.values() for each in some), is_cut)


def _timed(calls: Sequence[_Call]) -> Iterable[tuple[_Call, float]]:
    """Each call with its seconds.

    Of a side effect the start is stored. Other calls begin where the one before them ended, or where the
    model or a worker came to them; those that were stored together have an equal share each.
    """
    turns: defaultdict[tuple[int, int], list[_Call]] = defaultdict(list)
    for call in calls:
        turns[call.run, call.seq].append(call)
    for turn in turns.values():
        ends = sorted({call.finished_at for call in turn})
        together = Counter(call.finished_at for call in turn if call.started_at is None)
        for call in turn:
            if call.started_at is not None:
                yield call, (call.finished_at - call.started_at).total_seconds()
                continue
            place = ends.index(call.finished_at)
            moments = (call.asked_at, call.claimed_at, ends[place - 1] if place else None)
            begun = max(moment for moment in moments if moment is not None)
            yield call, (call.finished_at - begun).total_seconds() / together[call.finished_at]


def read_questions(scope: Scope) -> Sampled[QuestionFigures]:
    """What people were asked, the longest waits first by what nine of ten cases took."""
    rows, is_cut = _sample(
        Approval.objects.all(), scope, ("kind", "tool", "status", "requested_at", "decided_at")
    )
    decided = (str(ApprovalStatus.APPROVED), str(ApprovalStatus.REJECTED))
    statuses: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    times: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for kind, tool, status, requested_at, decided_at in rows:
        statuses[kind, tool][status] += 1
        if status in decided and decided_at is not None:
            times[kind, tool].append((decided_at - requested_at).total_seconds())
    found = [
        QuestionFigures(
            kind,
            tool,
            asked=count.total(),
            waiting=count[str(ApprovalStatus.PENDING)],
            expired=count[str(ApprovalStatus.EXPIRED)],
            time=Spread.of(times[kind, tool]),
        )
        for (kind, tool), count in statuses.items()
    ]
    found.sort(key=lambda question: (-(question.time.p90 or 0.0), question.kind, question.tool))
    return Sampled(found, Spread.of(each for some in times.values() for each in some), is_cut)


def read_queue(scope: Scope) -> Sampled[None]:
    """How long runs that were due waited for a worker, each time they did."""
    rows, is_cut = _sample(Slice.objects.all(), scope, ("waited_since", "claimed_at"))
    return Sampled([], Spread.of((claimed - since).total_seconds() for since, claimed in rows), is_cut)


def _sample(table: QuerySet[Any], scope: Scope, columns: Sequence[str]) -> tuple[list[tuple[Any, ...]], bool]:
    """Rows of the latest runs, and whether there are more."""
    found = list(scope.related(table).order_by("-run_id").values_list(*columns)[: SAMPLE + 1])
    return found[:SAMPLE], len(found) > SAMPLE


# Counts of the whole period.


def read_recoveries(scope: Scope) -> list[RecoveryFigures]:
    """Recoveries by agent, the most first."""
    rows = (
        scope.related(Slice.objects.filter(recovered=True))
        .order_by()
        .values("run__agent")
        .annotate(recoveries=Count("pk"), runs=Count("run", distinct=True))
    )
    found = [RecoveryFigures(row["run__agent"], row["recoveries"], row["runs"]) for row in rows]
    return sorted(found, key=lambda agent: (-agent.recoveries, agent.agent))


def read_doubts(scope: Scope) -> list[DoubtFigures]:
    """Calls that were in doubt by tool, the most first."""
    rows = (
        scope.related(Approval.objects.filter(kind=str(ApprovalKind.IN_DOUBT)))
        .order_by()
        .values("tool", "status")
        .annotate(count=Count("pk"))
    )
    statuses: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        statuses[row["tool"]][row["status"]] += row["count"]
    found = [
        DoubtFigures(
            tool,
            asked=count.total(),
            waiting=count[str(ApprovalStatus.PENDING)],
            settled=count[str(ApprovalStatus.APPROVED)],
            unknown=count[str(ApprovalStatus.REJECTED)] + count[str(ApprovalStatus.EXPIRED)],
            void=count[str(ApprovalStatus.VOID)],
        )
        for tool, count in statuses.items()
    ]
    return sorted(found, key=lambda doubt: (-doubt.asked, doubt.tool))
