"""Peers of other makers, where they are installed, measured by their own scripts.

The folder holds a ``bench.py`` that takes ``--peer --db --n --reps --mode`` and prints a line of JSON for
each measurement, and ``BENCH_ROOT`` holds ``venvs`` with an environment for each peer. Nothing of them is
part of this project; without them the tables quote published figures.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.settings import database as test_database

from .counting import per_iteration
from .plan import Cell

VENVS = {"langgraph": "langgraph", "dbos": "dbos", "pydantic-dbos": "pydantic_dbos", "absurd": "absurd"}
MODES = {"run": "run", "count": "count", "resume": "resume", "together": "conc"}


class Peers:
    """The peers that can be run here.

    Args:
        folder: Where their ``bench.py`` is; None: there are none.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        root = Path(os.environ.get("BENCH_ROOT", "/var/tmp/anvil-bench"))
        self.names = [
            peer
            for peer, venv in VENVS.items()
            if folder and (root / "venvs" / venv / "bin" / "python").exists()
        ]

    def why_none(self) -> str:
        """A sentence for whoever expected some."""
        if self.names:
            return ""
        if self._folder is None:
            return "Peers are skipped: no --peers folder was given. Published figures are quoted instead."
        return f"Peers are skipped: no environment of one is in BENCH_ROOT/venvs ({', '.join(VENVS)})."

    def for_cell(self, cell: Cell) -> list[str]:
        """Those that take part in a cell."""
        fits = cell.peers and cell.kind in ("sqlite", "postgres")
        return [peer for peer in self.names if fits and not (peer == "absurd" and cell.kind == "sqlite")]

    def measure(self, peer: str, cell: Cell) -> dict[str, Any]:
        """One round of one peer, in our words.

        Raises:
            RuntimeError: It failed.
        """
        found = self._ask(peer, cell, cell.job.n)
        if cell.what != "count":
            return translate(cell, found)
        short = cell.job.short()
        return per_iteration(_counts(self._ask(peer, cell, short.n)), _counts(found), cell.job.n - short.n)

    def _ask(self, peer: str, cell: Cell, n: int) -> dict[str, Any]:
        assert self._folder is not None
        server = test_database("postgres")
        url = f"postgresql://{server['USER']}@{server['HOST']}:{server['PORT'] or 5432}"
        asked = {"--peer": peer, "--db": cell.kind, "--n": str(n), "--reps": "1", "--mode": MODES[cell.what]}
        done = subprocess.run(
            [sys.executable, "bench.py", *(word for pair in asked.items() for word in pair)],
            cwd=self._folder,
            env={"BENCH_PG": url, **os.environ},
            capture_output=True,
            text=True,
            timeout=900,
        )
        lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if not lines or "error" in lines[-1]:
            raise RuntimeError(str(lines[-1]["error"] if lines else done.stderr)[-300:])
        return dict(lines[-1])


def _counts(line: dict[str, Any]) -> dict[str, Any]:
    words: dict[str, int] = line.get("counts", {})
    commits = line.get("wal_commits", words.get("COMMIT", 0))
    return {"statements": sum(words.values()), "commits": commits, "words": words}


def translate(cell: Cell, line: dict[str, Any]) -> dict[str, Any]:
    """A line of theirs with our names."""
    if cell.what == "resume":
        return {"resume_ms": line["resume_ms"], "rss_peak_mb": line["rss_mb"]}
    if cell.what == "together":
        return {"per_second": line["iters_per_s"], "rss_peak_mb": line["rss_peak_mb"]}
    return {
        "ms": line["ms_per_iter"],
        "cpu_ms": line["cpu_ms_per_iter"],
        "first_tenth_ms": line["iter_first_decile"],
        "last_tenth_ms": line["iter_last_decile"],
        "bytes": line["db_bytes"] / cell.job.n,
        "rss_start_mb": line["rss_start_mb"],
        "rss_peak_mb": line["rss_peak_mb"],
    }
