"""Runs on real ``qcluster`` workers, started and watched: ``python -m benchmarks.overhead.clusters '{...}'``.

This is the client's side of a measurement. The driver has started the cluster, on the same database and
broker.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from .worker import Order, say, set_up_django
from .workload import WrongRunError

RUNS, TRIALS = 16, 12
"""How many runs the workers share, and how many doorbells are rung one after another."""
LIMIT = 120.0


def main() -> None:
    """Do what the argument says and print it."""
    order = Order.of(sys.argv[1])
    set_up_django(order)
    say(throughput(order) if order.mode == "workers" else doorbell(order))


def throughput(order: Order) -> dict[str, Any]:
    """Iterations a second of runs that are all there from the start."""
    from anvil_django import start_run

    from .agents import AGENT

    _run_one(order, "first")  # Whatever a worker does only once it has done then.
    began = time.perf_counter()
    keys = [f"w{number}" for number in range(RUNS)]
    for key in keys:
        start_run(AGENT, order.job.opening(key), run_id=key)
    _wait_for(keys, order.job.n)
    wall = time.perf_counter() - began
    return {"per_second": RUNS * order.job.n / wall, "runs": RUNS}


def doorbell(order: Order) -> dict[str, Any]:
    """Milliseconds from the commit of a new run to the first model call in an idle worker."""
    stamps, late = Path(os.environ["ANVIL_BENCH_STAMPS"]), []
    for number in range(TRIALS + 2):
        committed = _run_one(order, f"d{number}")
        called = float(stamps.read_text().split()[-1])
        if number >= 2:  # Not the first ones, for which the workers load what they need.
            late.append((called - committed) * 1e3)
        # Not in step with the broker's poll.
        time.sleep(0.05 + 0.037 * number % 0.2)
    return {"doorbell_ms": median(late), "doorbell_max_ms": max(late), "trials": TRIALS}


def _run_one(order: Order, key: str) -> float:
    from anvil_django import start_run

    from .agents import AGENT

    start_run(AGENT, order.job.opening(key), run_id=key)
    committed = time.time()
    _wait_for([key], order.job.n)
    return committed


def _wait_for(keys: list[str], iterations: int) -> None:
    from anvil_django.models import Run

    deadline = time.monotonic() + LIMIT
    waiting = Run.objects.filter(run_id__in=keys).exclude(status="done")
    while waiting.exists():
        if time.monotonic() > deadline:
            raise WrongRunError(f"Not done: {list(waiting.values_list('run_id', 'status', 'error')[:5])}")
        time.sleep(0.01)
    if Run.objects.filter(run_id__in=keys, iterations=iterations).count() != len(keys):
        raise WrongRunError("A run has not as many iterations as its job.")


if __name__ == "__main__":
    main()
