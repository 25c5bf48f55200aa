"""One measurement of one contestant: a fresh database, then the processes that the cell needs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from .databases import Scratch
from .peers import Peers
from .plan import Cell
from .processes import ROOT, FailedError, cluster, measure, read_result, scripted_api
from .worker import Order
from .workload import Job

RESUMES = 3
"""How many processes resume one crashed run."""


class Rounds:
    """Measures cells; ``close`` drops every database.

    Args:
        folder: For SQLite's files and for logs.
        peers: Those that can be measured.
        redis: URL of the broker of cells with Redis.
    """

    def __init__(self, folder: Path, peers: Peers, redis: str) -> None:
        self._folder, self._peers, self._redis = folder, peers, redis
        self._scratch: dict[str, Scratch] = {}

    def contestants(self, cell: Cell) -> list[str]:
        """Who takes part in a cell."""
        return [*cell.contestants, *self._peers.for_cell(cell)]

    def measure(self, cell: Cell, contestant: str) -> dict[str, Any]:
        """The figures of one round.

        Raises:
            FailedError: The measurement failed.
            RuntimeError: That of a peer did.
        """
        if contestant in self._peers.names:
            return self._peers.measure(contestant, cell)
        how = self._how(cell)
        if cell.kind == "memory":
            return how(cell, contestant, "memory")
        scratch = self._of_kind(cell.kind)
        name = scratch.fresh()
        try:
            return how(cell, contestant, name)
        finally:
            scratch.drop(name)

    def close(self) -> None:
        """Drop every database."""
        for scratch in self._scratch.values():
            scratch.drop_all()

    def _how(self, cell: Cell) -> Callable[[Cell, str, str], dict[str, Any]]:
        special = {"resume": self._resume, "http": self._http}
        return self._on_cluster if cell.workers else special.get(cell.what, self._plain)

    def _of_kind(self, kind: str) -> Scratch:
        if kind not in self._scratch:
            scratch = self._scratch[kind] = Scratch(kind, self._folder)
            measure(Order("tables", "anvil", kind, scratch.create_template(), Job(3)))
        return self._scratch[kind]

    def _plain(self, cell: Cell, contestant: str, database: str) -> dict[str, Any]:
        return measure(Order(cell.what, contestant, cell.kind, database, cell.job))

    def _resume(self, cell: Cell, contestant: str, database: str) -> dict[str, Any]:
        measure(Order("crash", contestant, cell.kind, database, cell.job))
        order = Order("resume", contestant, cell.kind, database, cell.job)
        found = [measure(order) for _ in range(RESUMES)]
        return {key: median(figures[key] for figures in found) for key in found[0]}

    def _http(self, cell: Cell, contestant: str, database: str) -> dict[str, Any]:
        with scripted_api() as url:
            order = Order("run", contestant, cell.kind, database, cell.job)
            return measure(order, ANVIL_BENCH_API=url)

    def _on_cluster(self, cell: Cell, contestant: str, database: str) -> dict[str, Any]:
        environment = {
            "DJANGO_SETTINGS_MODULE": "benchmarks.overhead.settings",
            "ANVIL_BENCH_DB": cell.kind,
            "ANVIL_BENCH_NAME": database,
            "ANVIL_BENCH_WORKERS": str(cell.workers),
            "ANVIL_BENCH_STAMPS": str(self._folder / "stamps"),
        }
        if cell.broker == "redis":
            environment["ANVIL_BENCH_REDIS"] = self._redis
            _forget_tickets(self._redis)
        Path(environment["ANVIL_BENCH_STAMPS"]).write_text("")
        order = Order(cell.what, contestant, cell.kind, database, cell.job)
        with cluster(cell.workers, environment, self._folder):
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.overhead.clusters", order.text()],
                cwd=ROOT,
                env={**os.environ, **environment},
                capture_output=True,
                text=True,
                timeout=300,
            )
        found = read_result(done)
        if found is None:
            raise FailedError(f"{cell.title}: {done.stderr.strip()[-500:]}")
        return found


def _forget_tickets(url: str) -> None:
    """Drop what an earlier cluster may have left in the queue."""
    import redis

    redis.Redis.from_url(url).delete("django_q:anvil-bench:q")
