"""Measure: ``python -m benchmarks.overhead [--set standard|full|check]``.

Each repetition has a fresh database and a fresh process; the contestants of a cell take turns round by round,
so that a ratio compares figures of the same minute. Every figure is a line of JSON in ``--out``; the tables
are made of that file by ``python -m benchmarks.overhead.report``. The exit code is 1 if a count is wrong or a
measurement failed, never because something was slow.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from . import report
from .databases import KINDS, missing, scratch_folder
from .expected import wrong_counts
from .meters import machine
from .peers import Peers
from .plan import Cell, plan
from .processes import FailedError
from .rounds import Rounds

RESULTS = Path(__file__).resolve().parents[2] / "build" / "bench" / "overhead.jsonl"


def main() -> int:
    """Measure, and print the tables."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    peers, cells = Peers(options.peers), _chosen(options)
    if options.set != "check" and (why := peers.why_none()):
        _tell(why)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = [{"what": "machine", "set": options.set, **machine()}]
    failures: list[str] = []
    with open(options.out, "w") as out, ExitStack() as stack:
        out.write(json.dumps(rows[0]) + "\n")
        folder = stack.enter_context(scratch_folder())
        rounds = Rounds(folder, peers, options.redis)
        stack.callback(rounds.close)
        began = time.monotonic()
        total = sum(cell.rounds * len(rounds.contestants(cell)) for cell in cells)
        for cell in cells:
            for row in _measured(rounds, cell, failures):
                rows.append(row)
                out.write(json.dumps(row) + "\n")
                out.flush()
                _progress(len(rows) - 1, total, time.monotonic() - began, row)
    return _conclude(options, rows, failures)


def _measured(rounds: Rounds, cell: Cell, failures: list[str]) -> Any:
    given_up: set[str] = set()
    for number in range(cell.rounds):
        for contestant in rounds.contestants(cell):
            if contestant in given_up:
                continue
            try:
                yield {**_labels(cell, contestant, number), **rounds.measure(cell, contestant)}
            except (FailedError, RuntimeError) as exc:
                given_up.add(contestant)
                failures.append(f"{cell.title}, {contestant}: {exc}")
                _tell(f"FAILED {failures[-1]}")


def _labels(cell: Cell, contestant: str, number: int) -> dict[str, Any]:
    labels = {
        "what": cell.what,
        "db": cell.kind,
        "contestant": contestant,
        "n": cell.job.n,
        "shape": cell.job.shape,
        "size": cell.job.size,
        "round": number,
        "load": round(os.getloadavg()[0], 1),
    }
    if cell.workers:
        labels |= {"workers": cell.workers, "broker": cell.broker, "wait": cell.job.wait}
    return labels


def _conclude(options: argparse.Namespace, rows: list[dict[str, Any]], failures: list[str]) -> int:
    _tell(f"Written to {options.out}")
    wrong = wrong_counts(rows)
    if options.set == "check":
        print(report.counts_table(rows))
    else:
        print(report.all_tables(rows))
    for line in [*wrong, *failures]:
        print(f"WRONG: {line}")
    if options.set == "check" and not wrong and not failures:
        print("Every count is as it should be.")
    return 1 if wrong or failures else 0


def _chosen(options: argparse.Namespace) -> list[Cell]:
    kinds = []
    for kind in options.db or KINDS:
        if why := missing(kind):
            _tell(f"{kind} is skipped: {why}")
        else:
            kinds.append(kind)
    cells = [
        cell
        for cell in plan(options.set)
        if cell.kind in (*kinds, "memory")
        and (not options.only or cell.what in options.only)
        and not (cell.broker == "redis" and not options.redis)
        and (options.n is None or cell.job.n in options.n)
    ]
    return [replace(cell, rounds=options.rounds) if options.rounds else cell for cell in cells]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--set", choices=["standard", "full", "check"], default="standard")
    parser.add_argument("--db", action="append", choices=KINDS, help="only this database; may be repeated")
    parser.add_argument("--only", action="append", metavar="WHAT", help="only run, count, resume, ...")
    parser.add_argument("--n", action="append", type=int, help="only jobs of so many iterations")
    parser.add_argument("--rounds", type=int, help="rounds of each cell, instead of its own number")
    parser.add_argument("--peers", type=Path, metavar="DIR", help="where the scripts of the peers are")
    parser.add_argument("--redis", default="redis://127.0.0.1:6379/13", help="broker; empty: none")
    parser.add_argument("--out", type=Path, default=RESULTS, help="lines of JSON (default: %(default)s)")
    options = parser.parse_args()
    if options.redis and not _answers(options.redis):
        _tell(f"Cells with Redis are skipped: {options.redis} does not answer.")
        options.redis = ""
    return options


def _answers(url: str) -> bool:
    try:
        import redis

        return bool(redis.Redis.from_url(url, socket_connect_timeout=2).ping())
    except Exception:  # noqa: BLE001 (no driver or no server)
        return False


def _progress(done: int, total: int, seconds: float, row: dict[str, Any]) -> None:
    left = seconds / done * (total - done)
    figure = next((f"{row[key]:.2f} {key}" for key in report.HEADLINES if key in row), "")
    where = f" {row['workers']} x {row['broker']}" if "workers" in row else ""
    job = f"{row['what']} {row['db']}{where} N={row['n']} {row['shape']} {row['size'] // 1024} KB"
    _tell(f"[{done}/{total}, {left:.0f} s left] {job} {row['contestant']}: {figure}")


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
