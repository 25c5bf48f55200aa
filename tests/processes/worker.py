"""Starting ``anvil_worker`` and looking at the processes of the cluster under it."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

from .cluster import WORKERS, Cluster, Site, wait_until


class Worker(Cluster):
    """One ``anvil_worker``; the cluster under it has a session of its own."""

    def __init__(self, environment: dict[str, str], log: Path, *options: str) -> None:
        command = [sys.executable, "-m", "django", "anvil_worker", *options]
        super().__init__(environment, log, command=command)

    @property
    def cluster(self) -> int:
        """The main process of the cluster that it looks after now; its number is that of the group."""
        (child,) = children(self.process.pid)
        return child

    def workers(self) -> list[int]:
        """All that have ever been, newest first."""
        return [int(pid) for pid in re.findall(r"ready for work at (\d+)", self.log.read_text())][::-1]

    def is_ready(self, workers: int = WORKERS) -> bool:  # type: ignore[override]
        assert self.process.poll() is None, f"it did not start:\n{self.log.read_text()}"
        return self.said("ready for work") >= workers and self.said("running.") > 0

    def signal(self, number: int) -> None:
        """Only the supervisor gets it."""
        os.kill(self.process.pid, number)

    def ended(self, *, within: float = 20.0) -> int:
        """Its exit code."""
        return self.process.wait(timeout=within)

    def kill(self) -> None:
        for group in (*children(self.process.pid), self.process.pid):
            if group_of(group):
                os.killpg(group, signal.SIGKILL)
        self.process.wait()


def children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def group_of(group: int) -> list[int]:
    """The processes of a group that live; not those that nobody has collected yet."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[2] == str(group) and fields[0] not in "ZX":
            found.append(int(stat.parent.name))
    return found


def start_worker(site: Site, *options: str, workers: int = WORKERS, **settings: Any) -> Worker:
    environment = {**site.environment(**settings), "ANVIL_TEST_WORKERS": str(workers)}
    worker = Worker(environment, site.folder / f"worker-{time.monotonic_ns()}.log", *options)
    site.look_after(worker)
    wait_until(lambda: worker.is_ready(workers), "the workers are ready")
    return worker


def gone(group: int) -> None:
    wait_until(lambda: not group_of(group), "no process of the cluster is left", seconds=5)
