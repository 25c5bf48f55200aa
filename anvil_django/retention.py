"""Retention: runs that ended long ago are deleted, with all that belongs to them.

Kept, however old: what has not ended; what people were asked about, unless that is given up by name; the
origin of a fork that has not ended; and whatever a table of the host site protects. Each batch is a short
transaction of its own, so that it may be stopped, and run twice, at any time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, models, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet
from django.db.models.deletion import CASCADE
from django.db.models.functions import Coalesce

from . import exactjson
from .agents import registered
from .errors import BadInputError
from .models import AgentVersion, Approval, Run
from .models.run import RunQuerySet
from .states import TERMINAL, RunStatus
from .stores.database_time import database_now
from .stores.django import DjangoStateStore

BATCH_SIZE = 100
"""Runs that one transaction deletes."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Which runs go.

    Raises:
        BadInputError: The age is not above zero, or there is a status in which a run may still go on.
    """

    older_than: timedelta
    """How long ago they ended, at least."""
    statuses: Collection[RunStatus] = TERMINAL
    agent: str | None = None
    """Only runs of this agent."""
    with_decisions: bool = False
    """Also runs that people were asked about: who decided what is forgotten with them."""

    def __post_init__(self) -> None:
        if self.older_than <= timedelta():
            raise BadInputError("Only an age above zero says which runs may go.")
        if going := sorted(map(str, set(self.statuses) - TERMINAL)):
            raise BadInputError(f"Only runs that have ended may go; these statuses are others: {going}.")


@dataclass(frozen=True)
class Pruned:
    """What went, or would go."""

    runs: int = 0
    rows: Counter[str] = field(default_factory=Counter)
    """How many rows of each model, by its label; the runs among them."""
    protected: int = 0
    """Runs that a table of the host site does not let go."""

    def __add__(self, other: Pruned) -> Pruned:
        return Pruned(self.runs + other.runs, self.rows + other.rows, self.protected + other.protected)


def prune(rule: Rule, *, batch_size: int = BATCH_SIZE) -> Iterator[Pruned]:
    """Delete the runs of the rule; yields what went after each batch is committed.

    A run that moves on between being found and being deleted stays.
    """
    alias = DjangoStateStore().alias
    for found in _batches(rule, alias, batch_size):
        yield _delete(rule, alias, found)


def count(rule: Rule, *, batch_size: int = BATCH_SIZE) -> Iterator[Pruned]:
    """What ``prune`` would delete, batch by batch; what the host site protects is only found by trying."""
    alias = DjangoStateStore().alias
    belonging = dict(_belonging(Run))
    for found in _batches(rule, alias, batch_size):
        rows = Counter({Run._meta.label: len(found)})
        for model, path in belonging.items():
            rows[model._meta.label] += (
                model._base_manager.using(alias).filter(**{f"{path}__in": found}).count()
            )
        yield Pruned(len(found), +rows)


def kept_for_decisions(rule: Rule) -> int:
    """How many runs are old enough and stay because people were asked about them."""
    if rule.with_decisions:
        return 0
    alias = DjangoStateStore().alias
    return sum(runs.filter(_asked_about()).count() for runs in _ended(rule, alias))


def prune_versions(older_than: timedelta) -> int:
    """Delete the agent versions that no run uses any more; returns how many.

    A version that is younger, or that an agent of this process has now, stays: a run may be starting with it.
    """
    alias = DjangoStateStore().alias
    versions = AgentVersion.objects.using(alias).filter(
        ~Exists(Run.objects.filter(version=OuterRef("pk"))), created_at__lt=database_now(-older_than)
    )
    current = [exactjson.digest(a.name, exactjson.dumps(a.prefix)) for a in registered().values()]
    gone = 0
    for pk in list(versions.exclude(digest__in=current).values_list("pk", flat=True)):
        try:
            with transaction.atomic(using=alias):
                unused = versions.filter(pk=pk).select_for_update()
                gone += unused.get().delete()[0] if unused.exists() else 0
        except IntegrityError:
            continue  # A run was stored with it at this moment; PostgreSQL says so when the commit comes.
    return gone


def _batches(rule: Rule, alias: str, size: int) -> Iterator[list[int]]:
    """The ids of the runs that may go, oldest first within a status; each batch is one look at an index."""
    for runs in _ended(rule, alias):
        may_go, last = runs.filter(_free(rule)).order_by("id"), 0
        while found := list(may_go.filter(pk__gt=last).values_list("pk", flat=True)[:size]):
            yield found
            last = found[-1]


def _ended(rule: Rule, alias: str) -> list[QuerySet[Run]]:
    """The runs that are old enough, by the index that finds the fewest."""
    runs: RunQuerySet = Run.objects.using(alias)
    # Nothing that was created later can have ended earlier: where in the table the looking ends.
    begun = runs.filter(created_at__lt=database_now(-rule.older_than)).order_by("-created_at", "-id")
    newest = begun.values_list("pk", flat=True).first()
    if newest is None:
        return []
    statuses = sorted(map(str, rule.statuses))
    groups = (
        [runs.having("status", status) for status in statuses]
        if rule.agent is None
        else [runs.having("agent", rule.agent).filter(status__in=statuses)]
    )
    return [group.filter(_is_old(rule), pk__lte=newest) for group in groups]


def _is_old(rule: Rule) -> Q:
    # Runs that were stored as ended, by a checkpointer, say only when they were last written.
    ended = Coalesce("finished_at", "updated_at", "created_at")
    return Q(models.lookups.LessThan(ended, database_now(-rule.older_than)))


def _asked_about() -> Exists:
    return Exists(Approval.objects.filter(run=OuterRef("pk")))


def _free(rule: Rule) -> Q:
    forks = Run.objects.unfinished().filter(forked_from=OuterRef("pk"))
    free = Q(~Exists(forks))
    return free if rule.with_decisions else free & Q(~_asked_about())


def _delete(rule: Rule, alias: str, found: list[int]) -> Pruned:
    """Delete those of a batch that may still go."""
    statuses = [str(status) for status in rule.statuses]
    same = Run.objects.using(alias).filter(_is_old(rule), _free(rule), pk__in=found, status__in=statuses)
    try:
        with transaction.atomic(using=alias):
            # Locked as they are asked again: whoever resumes one of them was before us, and it is no longer
            # among them, or comes too late. SQLite has one writer at a time.
            may_go = list(same.select_for_update().values_list("pk", flat=True))
            _, rows = Run.objects.using(alias).filter(pk__in=may_go).delete()
    except (models.ProtectedError, models.RestrictedError):
        if len(found) == 1:
            return Pruned(protected=1)
        return sum((_delete(rule, alias, [pk]) for pk in found), Pruned())
    return Pruned(rows.get(Run._meta.label, 0), Counter(rows))


def _belonging(model: type[models.Model], path: str = "") -> Iterator[tuple[type[models.Model], str]]:
    """The models whose rows go with those of ``model``, and how they lead there (some in two ways)."""
    for relation in model._meta.related_objects:
        if getattr(relation, "on_delete", None) is CASCADE:
            related: Any = relation.related_model
            leads = f"{relation.field.name}{path}"
            yield from _belonging(related, f"__{leads}")
            yield related, leads
