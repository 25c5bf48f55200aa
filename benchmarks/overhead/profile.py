"""Where the CPU of an iteration goes: ``python -m benchmarks.overhead.profile [--db sqlite] [--n 500]``.

The process is asked every two milliseconds of its CPU time what it does. Each sample counts for the innermost
module of the package that is at work; what Django's database layer does for a store counts as Django's.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from .databases import KINDS, Scratch, missing, scratch_folder
from .workload import Job

if TYPE_CHECKING:
    from .contestants import Contestant

ROOT = Path(__file__).resolve().parents[2]
EVERY = 0.002
"""Seconds of CPU time between two samples."""
RUNS = 8

TRANSACTIONS = "Django: transactions, BEGIN and COMMIT with it"
STATEMENTS = "Django: cursors and statements, the driver and the database with it"
STORES = "stores: what is new, and the text of the statements"
MODEL = "benchmark: the model"
GROUPS = {
    "JSON": ("exactjson.py",),
    "the answer: events, checks, usage, price": (
        "model_call.py",
        "cost.py",
        "answers.py",
        "history.py",
        "clients.py",
    ),
    "tools: validated, run": (
        "tool_schema.py",
        "tools.py",
        "tool_runs.py",
        "tool_context.py",
        "tool_results.py",
    ),
    "start, claim, release": ("runs.py", "queue.py", "tasks.py", "recovery.py"),
}
LOOP = "loop, steps, checkpoint, clock"


def main() -> int:
    """Sample a run, and print the shares."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overhead.profile", description=__doc__)
    parser.add_argument("--db", choices=KINDS, default="sqlite")
    parser.add_argument("--n", type=int, default=500, help="model calls of a run")
    options = parser.parse_args()
    if why := missing(options.db):
        sys.exit(f"{options.db} cannot be measured here: {why}")
    from .processes import measure
    from .worker import Order

    job = Job(options.n)
    with scratch_folder() as folder:
        scratch = Scratch(options.db, folder)
        try:
            measure(Order("tables", "anvil", options.db, scratch.create_template(), job))
            found = measure(Order("profile", "anvil", options.db, scratch.fresh(), job))
        finally:
            scratch.drop_all()
    sys.stdout.write(f"| {options.db}, N={options.n} | share of {found['cpu_ms']:.2f} ms CPU |\n|---|---|\n")
    for what, share in found["shares"].items():
        sys.stdout.write(f"| {what} | {share:.0%} |\n")
    return 0


def sampled(contestant: Contestant, job: Job) -> dict[str, Any]:
    """Shares of the CPU time of some runs, the largest first."""
    samples: Counter[str] = Counter()
    signal.signal(signal.SIGPROF, lambda number, frame: samples.update([_group(frame)]))
    signal.setitimer(signal.ITIMER_PROF, EVERY, EVERY)
    began = time.process_time()
    for number in range(RUNS):
        contestant.run(f"sampled-{number}", job)
    taken = time.process_time() - began
    signal.setitimer(signal.ITIMER_PROF, 0)
    shares = {what: count / samples.total() for what, count in samples.most_common()}
    return {"cpu_ms": taken / RUNS / job.n * 1000, "shares": shares}


def _group(frame: FrameType | None) -> str:
    in_django = in_transaction = False
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(ROOT / "benchmarks"):
            return MODEL
        if path.is_relative_to(ROOT / "anvil_django"):
            if path.parent.name == "stores" and in_django:
                return TRANSACTIONS if in_transaction else STATEMENTS
            return STORES if path.parent.name == "stores" else _group_of(path.name)
        in_django = in_django or {"django", "db"} <= set(path.parts)
        in_transaction = in_transaction or path.parts[-2:] == ("db", "transaction.py")
        frame = frame.f_back
    return "the rest"


def _group_of(name: str) -> str:
    return next((group for group, names in GROUPS.items() if name in names), LOOP)


if __name__ == "__main__":
    sys.exit(main())
