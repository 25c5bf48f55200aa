"""What a process has used, and what it runs on."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

from .databases import KINDS, missing, server_version

PACKAGES = ("anvil-django", "Django", "django-q2", "anthropic", "psycopg", "mysqlclient", "redis")


def memory_mb(field: str) -> float:
    """``VmRSS`` (now) or ``VmHWM`` (the most ever) of this process, in MB of 2**20 bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    return 0.0


class Stopwatch:
    """Wall and CPU time from when it is made."""

    def __init__(self) -> None:
        self._cpu, self.began = time.process_time(), time.perf_counter_ns()

    def read(self) -> tuple[float, float]:
        """Milliseconds on the wall and of this process's CPU."""
        return (time.perf_counter_ns() - self.began) / 1e6, (time.process_time() - self._cpu) * 1e3


def growth(stamps: Sequence[int], ended: int) -> dict[str, float]:
    """Median iteration in the first and the last tenth of a run, in ms, without the first and last one."""
    if not stamps:
        return {}
    gaps = [(b - a) / 1e6 for a, b in zip(stamps, [*stamps[1:], ended], strict=True)][1:-1]
    tenth = max(1, len(gaps) // 10)
    if not gaps:
        return {}
    return {"first_tenth_ms": median(gaps[:tenth]), "last_tenth_ms": median(gaps[-tenth:])}


def machine() -> dict[str, Any]:
    """Where and with what this was measured."""
    found: dict[str, Any] = {
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {_total_memory_gb():.0f} GB",
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
        "commit": _commit(),
        "arguments": sys.argv[1:],
        "servers": {kind: server_version(kind) for kind in KINDS if not missing(kind)},
        "packages": {},
    }
    for package in PACKAGES:
        try:
            found["packages"][package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _commit() -> str:
    """The commit that was measured; empty outside a checkout."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    folder = Path(__file__).resolve().parent
    try:
        return subprocess.run(command, cwd=folder, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def _total_memory_gb() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
