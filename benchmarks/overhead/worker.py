"""One measurement in a process of its own: ``python -m benchmarks.overhead.worker '{"mode": "run", ...}'``.

It prints one line, ``RESULT`` and JSON. A process that is told to crash exits with 77 inside a model call.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import contestants, profile, workload
from .counting import Counter, per_iteration
from .databases import stored_bytes
from .meters import Stopwatch, growth, memory_mb
from .workload import Job

CRASHED = 77


@dataclass(frozen=True)
class Order:
    """What to measure.

    Args:
        mode: One of ``MODES``.
        contestant: See ``contestants.NAMES``.
        kind: Kind of the database, or "memory".
        database: Its name.
        job: The run.
        together: How many runs at once, where the mode has several.
    """

    mode: str
    contestant: str
    kind: str
    database: str
    job: Job
    together: int = 8

    def text(self) -> str:
        return json.dumps({**vars(self), "job": vars(self.job)})

    @classmethod
    def of(cls, text: str) -> Order:
        given = json.loads(text)
        return cls(**{**given, "job": Job(**given["job"])})

    @property
    def needs_django(self) -> bool:
        return self.mode == "tables" or not self.contestant.startswith("raw")


def main() -> None:
    """Do what the argument says."""
    order = Order.of(sys.argv[1])
    order.job.prepare()
    if order.needs_django:
        set_up_django(order)
    say(MODES[order.mode](order))
    sys.stdout.flush()
    os._exit(0)  # Nothing that still runs in the background belongs to the measurement.


def set_up_django(order: Order) -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.overhead.settings"
    if order.kind != "memory":
        os.environ["ANVIL_BENCH_DB"], os.environ["ANVIL_BENCH_NAME"] = order.kind, order.database
    import logging

    import django

    django.setup()
    logging.getLogger("django-q").setLevel(logging.WARNING)  # It says so whenever a doorbell rings.


def say(figures: dict[str, Any]) -> None:
    print("RESULT " + json.dumps(figures), flush=True)


def _tables(order: Order) -> dict[str, Any]:
    from django.core.management import call_command
    from django.db import connections

    from .contestants.raw import create_tables

    call_command("migrate", run_syncdb=True, verbosity=0)
    create_tables(order.kind, order.database)
    connections.close_all()  # SQLite then folds its log into the file, which is copied alone.
    return {}


def _warm(order: Order, counter: Counter | None = None) -> contestants.Contestant:
    """The contestant, connected, after a short run."""
    contestant = contestants.make(order.contestant, order.kind, order.database, counter)
    contestant.open()
    short = Job(**{**vars(order.job), "n": 3})
    short.prepare()
    contestant.run("warm", short)
    workload.CALLS.clear()
    workload.STAMPS.clear()
    return contestant


def _run(order: Order) -> dict[str, Any]:
    contestant, job = _warm(order), order.job
    before, start = _bytes(order), memory_mb("VmRSS")
    watch = Stopwatch()
    contestant.run("main", job)
    wall, cpu = watch.read()
    ended = watch.began + int(wall * 1e6)
    workload.check_calls(job)
    figures = {
        "ms": wall / job.n,
        "cpu_ms": cpu / job.n,
        "rss_start_mb": start,
        "rss_peak_mb": memory_mb("VmHWM"),
        "has_sdk": "anthropic" in sys.modules,
        **growth(workload.STAMPS, ended),
    }
    contestant.close()
    after = _bytes(order)
    if before is not None and after is not None:
        figures["bytes"] = (after - before) / job.n
    return figures


def _bytes(order: Order) -> int | None:
    return None if order.kind == "memory" else stored_bytes(order.kind, order.database)


def _count(order: Order) -> dict[str, Any]:
    counter = Counter(order.kind)
    contestant = _warm(order, counter)
    counts = []
    short = order.job.short()
    for job in (short, order.job):
        workload.CALLS.clear()
        counter.start()
        contestant.run(f"main-{job.n}", job)
        counts.append(counter.stop())
        workload.check_calls(job)
    return per_iteration(counts[0], counts[1], order.job.n - short.n)


def _crash(order: Order) -> dict[str, Any]:
    contestant = contestants.make(order.contestant, order.kind, order.database)
    contestant.open()
    workload.at_call = _at_last_call(order, lambda: os._exit(CRASHED))
    contestant.run("crashed", order.job)
    raise workload.WrongRunError("The process did not crash.")


def _resume(order: Order) -> dict[str, Any]:
    contestant = contestants.make(order.contestant, order.kind, order.database)

    def arrived() -> None:
        wall, cpu = watch.read()
        if workload.CALLS:
            raise workload.WrongRunError(f"{len(workload.CALLS)} tools were run again.")
        say({"resume_ms": wall, "cpu_ms": cpu, "rss_peak_mb": memory_mb("VmHWM")})
        os._exit(0)  # The call never returns, so the run can be resumed again.

    workload.at_call = _at_last_call(order, arrived)
    contestant.load()
    watch = Stopwatch()
    contestant.resume("crashed", order.job)
    raise workload.WrongRunError("The run went on without a model call.")


def _at_last_call(order: Order, do: Callable[[], None]) -> Callable[[int, int], None]:
    def called(i: int, history_length: int) -> None:
        if i == order.job.n - 1:
            do()

    return called


def _together(order: Order) -> dict[str, Any]:
    contestant, keys = _warm(order), [f"together-{k}" for k in range(order.together)]
    watch = Stopwatch()
    contestant.run_together(keys, order.job)
    wall, cpu = watch.read()
    workload.check_calls(order.job, runs=order.together)
    iterations = order.job.n * order.together
    return {
        "per_second": iterations / wall * 1e3,
        "cpu_ms": cpu / iterations,
        "rss_peak_mb": memory_mb("VmHWM"),
    }


def _profile(order: Order) -> dict[str, Any]:
    return profile.sampled(_warm(order), order.job)


MODES: dict[str, Callable[[Order], dict[str, Any]]] = {
    "tables": _tables,
    "run": _run,
    "count": _count,
    "crash": _crash,
    "resume": _resume,
    "together": _together,
    "profile": _profile,
}

if __name__ == "__main__":
    main()
