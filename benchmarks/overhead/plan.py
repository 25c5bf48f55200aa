"""What is measured: cells, each some contestants that take turns on the same job."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from .workload import SHAPES, Job

ANVIL = ("anvil",)
PAIR = ("raw2", "anvil")


@dataclass(frozen=True)
class Cell:
    """One comparison.

    Args:
        what: "run", "count", "resume", "together", "http", "workers" or "doorbell".
        kind: Kind of the database, or "memory".
        contestants: Who takes turns, in this order, in each round.
        job: The work.
        rounds: How many times each.
        workers: How many processes, where the cell has a cluster.
        broker: "orm" or "redis", likewise.
        peers: Whether peers on this machine take part.
    """

    what: str
    kind: str
    contestants: tuple[str, ...]
    job: Job
    rounds: int
    workers: int = 0
    broker: str = ""
    peers: bool = False

    @property
    def title(self) -> str:
        where = f" {self.workers} x {self.broker}" if self.workers else ""
        special = "" if self.job.shape == "read" else f" {self.job.shape}"
        size = "" if self.job.size == 1024 else f" {self.job.size // 1024} KB"
        return f"{self.what} {self.kind}{where} N={self.job.n}{special}{size}"


def plan(name: str) -> list[Cell]:
    """The cells of "standard", "full" or "check"."""
    if name == "check":
        return list(check())
    scale = 1 if name == "standard" else 2
    cells = [*_loops(), *_shapes(), *_resumes(), *_together(), *_sizes(), *_http(), *_clusters()]
    if name == "full":
        cells += _long()
    return [replace(cell, rounds=cell.rounds * scale) for cell in cells]


def check() -> Iterator[Cell]:
    """Counts only: little enough for every change."""
    for kind, shapes in (("sqlite", SHAPES), ("postgres", SHAPES), ("mariadb", ("read", "effects4"))):
        for shape in shapes:
            yield Cell("count", kind, ANVIL, Job(12, shape), 1)
    yield Cell("resume", "sqlite", ANVIL, Job(12, "effect"), 1)


def _everybody(kind: str) -> tuple[str, ...]:
    one_trip = ("raw-1rt",) if kind == "postgres" else ()
    return ("raw", "raw2", *one_trip, "django-rows", "anvil")


def _loops() -> Iterator[Cell]:
    for kind in ("sqlite", "postgres"):
        yield Cell("run", kind, _everybody(kind), Job(50), 5, peers=True)
        yield Cell("run", kind, _everybody(kind), Job(500), 3, peers=True)
        for n in (10, 200):
            yield Cell("run", kind, ("raw2", "django-rows", "anvil"), Job(n), 2, peers=True)
        yield Cell("count", kind, _everybody(kind)[1:], Job(60), 1, peers=True)
    yield Cell("run", "mariadb", ("raw2", "django-rows", "anvil"), Job(50), 3)
    yield Cell("count", "mariadb", PAIR, Job(60), 1)
    for n in (50, 500):
        yield Cell("run", "memory", ANVIL, Job(n), 2)


def _shapes() -> Iterator[Cell]:
    for kind in ("sqlite", "postgres"):
        for shape in ("effect", "effects4", "atomic"):
            yield Cell("run", kind, PAIR, Job(50, shape), 2)
        yield Cell("run", kind, ANVIL, Job(50, "approval"), 2)
        for shape in ("effect", "effects4", "atomic", "approval"):
            yield Cell("count", kind, ANVIL, Job(30, shape), 1)


def _resumes() -> Iterator[Cell]:
    for kind in ("sqlite", "postgres"):
        for n in (10, 200, 500):
            yield Cell("resume", kind, ("raw", "django-rows", "anvil"), Job(n), 1, peers=n != 200)


def _together() -> Iterator[Cell]:
    for kind in ("sqlite", "postgres"):
        yield Cell("together", kind, ("raw2", "django-rows", "anvil"), Job(50), 3, peers=True)


def _sizes() -> Iterator[Cell]:
    for kind in ("sqlite", "postgres"):
        for size in (10, 100, 1000):
            yield Cell("run", kind, PAIR, Job(15, size=size * 1024), 2)


def _http() -> Iterator[Cell]:
    yield Cell("http", "sqlite", ("sdk", "anvil"), Job(60, wait=0.05), 2)
    yield Cell("http", "postgres", ("sdk", "anvil"), Job(60, wait=0.05), 2)


def _clusters() -> Iterator[Cell]:
    for broker in ("orm", "redis"):
        for workers in (1, 2, 4):
            yield Cell("workers", "postgres", ANVIL, Job(10, wait=0.05), 1, workers, broker)
        yield Cell("doorbell", "postgres", ANVIL, Job(1, stamp=True), 1, 2, broker)


def _long() -> Iterator[Cell]:
    for kind in ("sqlite", "postgres"):
        yield Cell("run", kind, _everybody(kind), Job(1000), 2, peers=True)
        yield Cell("resume", kind, ("raw", "django-rows", "anvil"), Job(1000), 1)
    yield Cell("run", "mariadb", ("raw2", "django-rows", "anvil"), Job(500), 2)
    for kind in ("sqlite", "postgres"):
        for n in (200, 500):
            yield Cell("http", kind, ("sdk", "anvil"), Job(n, wait=0.05), 1)
    for broker in ("orm", "redis"):
        for workers in (1, 2, 4):
            yield Cell("workers", "postgres", ANVIL, Job(20), 1, workers, broker)
    for workers in (1, 2, 4):
        yield Cell("workers", "sqlite", ANVIL, Job(10, wait=0.05), 1, workers, "orm")
