"""Processes of a measurement: the worker that measures, the scripted API, a cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from .worker import CRASHED, Order

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 600.0
"""Seconds after which a measurement is given up."""


class FailedError(Exception):
    """A measurement did not come to its end."""


def measure(order: Order, **environment: str) -> dict[str, Any]:
    """What a worker in a process of its own says; nothing when it was told to crash, and did.

    Raises:
        FailedError: It said nothing.
    """
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.overhead.worker", order.text()],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    found = read_result(done)
    if found is not None:
        return found
    if order.mode == "crash" and done.returncode == CRASHED:
        return {}
    said = done.stderr.strip().splitlines()
    raise FailedError(
        f"{order.contestant} on {order.kind} ({order.mode}): {said[-1] if said else done.returncode}"
    )


def read_result(done: subprocess.CompletedProcess[str]) -> dict[str, Any] | None:
    """The figures that a process printed, if it did."""
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            found: dict[str, Any] = json.loads(line[7:])
            return found
    return None


@contextmanager
def scripted_api() -> Iterator[str]:
    """The scripted Messages API in a process of its own; gives its URL.

    Raises:
        FailedError: A request broke the API's rules.
    """
    server = subprocess.Popen(
        [sys.executable, "-m", "anvil_django.testing.server", "benchmarks.overhead.script:answer"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    try:
        yield server.stdout.readline().strip()
    finally:
        server.terminate()
        problems = server.stdout.read()
        if server.wait(timeout=20) != 0 and sys.exc_info()[0] is None:
            raise FailedError(f"The scripted API complains:\n{problems[:2000]}")


@contextmanager
def cluster(workers: int, environment: dict[str, str], folder: Path) -> Iterator[None]:
    """A ``qcluster`` whose workers are ready."""
    log = folder / f"cluster-{time.monotonic_ns()}.log"
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "django", "qcluster"],
            cwd=ROOT,
            env={**os.environ, **environment, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait(lambda: log.read_text(errors="replace").count("ready for work") >= workers, process, log)
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=15)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait(ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 60
    while not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise FailedError(f"The cluster did not start:\n{log.read_text(errors='replace')[-2000:]}")
        time.sleep(0.02)
