"""Tables and plots of what was measured: ``python -m benchmarks.overhead.report [--write DOCUMENT]``.

With ``--write`` the part of that file between its markers is replaced, and the plots are drawn beside it.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from . import plots
from .figures import Row, labels, number, ratio, select, value
from .goals import DATABASES, goals

RESULTS = Path(__file__).resolve().parents[2] / "build" / "bench" / "overhead.jsonl"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
HEADLINES = ("ms", "resume_ms", "per_second", "doorbell_ms", "statements")
NAMES = {**DATABASES, "mariadb": "MariaDB", "memory": "in memory (the loop alone)"}


def table(head: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    """A Markdown table; empty without lines."""
    body = ["| " + " | ".join(map(str, line)) + " |" for line in lines]
    if not body:
        return ""
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *body]) + "\n"


def all_tables(rows: Sequence[Row]) -> str:
    """Everything, with headings."""
    parts = {
        "Goals": goals_table(rows),
        "Milliseconds per iteration": _by_length(rows),
        "Inside one run of 500": _inside(rows),
        "Statements and commits per iteration": counts_table(rows),
        "What the tools are": _shapes(rows),
        "Bytes per iteration, and memory": _bytes(rows),
        "Large messages": _sizes(rows),
        "Resume after a crash": _resumes(rows),
        "Eight runs of 50 at once in one process": _together(rows),
        "Over real HTTP, the model takes 50 ms": _http(rows),
        "Workers": _workers(rows),
    }
    sections = [f"### {heading}\n\n{text}" for heading, text in parts.items() if text]
    return "\n".join([_where(rows), *sections])


def goals_table(rows: Sequence[Row]) -> str:
    """The goals beside what was measured."""
    mark = {True: "yes", False: "**no**", None: "–"}
    return table(
        ["what", "goal", "measured", "reached", "best peer", "limit"],
        [
            (goal.what, goal.goal, goal.measured or "not measured", mark[goal.reached], goal.peer, goal.limit)
            for goal in goals(rows)
        ],
    )


def _where(rows: Sequence[Row]) -> str:
    about = next((row for row in rows if row["what"] == "machine"), None)
    if about is None:
        return ""
    versions = [f"{name} {version}" for name, version in {**about["servers"], **about["packages"]}.items()]
    again = f"; {about['again']} cells are from a later measurement" if about.get("again") else ""
    commit = f" at {about['commit']}" if about["commit"] else ""
    return (
        f"Measured {about['date']}{commit} on {about['machine']}; Python {about['python']}, "
        f"{', '.join(versions)}. Load average at the start {about['load']:.1f}{_load(rows)}. "
        f"Set: {about['set']}{again}.\n"
    )


def _load(rows: Sequence[Row]) -> str:
    """How busy the machine was, the benchmark included."""
    loads = [row["load"] for row in rows if "round" in row and "load" in row]
    return f", median {median(loads):.1f}, most {max(loads):.1f}" if loads else ""


def _by_length(rows: Sequence[Row]) -> str:
    lines = []
    for kind in labels(rows, "db", what="run"):
        lengths = sorted({row["n"] for row in rows if row["what"] == "run" and row["size"] == 1024})
        for contestant in labels(rows, "contestant", what="run", db=kind, shape="read", size=1024):
            asked = {"what": "run", "db": kind}
            cells = []
            for n in (n for n in lengths if n in (10, 50, 200, 500, 1000)):
                ms = value(rows, "ms", contestant=contestant, n=n, **asked)
                times = ratio(rows, "ms", contestant, "raw2", n=n, **asked)
                cells.append(number(ms) + (f" ({number(times)} ×)" if times is not None else ""))
            cpu = value(rows, "cpu_ms", contestant=contestant, n=500, **asked)
            lines.append((NAMES[kind], contestant, *cells, number(cpu)))
    lengths = [
        n for n in (10, 50, 200, 500, 1000) if any(r.get("n") == n for r in rows if r["what"] == "run")
    ]
    head = ["database", "who", *(f"N={n}" for n in lengths), "CPU at 500"]
    return table(head, lines) + "\nIn brackets: times raw2 in the same round.\n" if lines else ""


def _inside(rows: Sequence[Row]) -> str:
    lines = []
    for kind in labels(rows, "db", what="run", n=500):
        for contestant in labels(rows, "contestant", what="run", db=kind, n=500):
            mine = {"what": "run", "db": kind, "contestant": contestant, "n": 500}
            first, last = value(rows, "first_tenth_ms", **mine), value(rows, "last_tenth_ms", **mine)
            if first and last:
                lines.append(
                    (NAMES[kind], contestant, number(first), number(last), number(last / first, "×"))
                )
    return table(["database", "who", "first tenth, ms", "last tenth, ms", "growth"], lines)


def counts_table(rows: Sequence[Row]) -> str:
    """Statements and commits that one more iteration takes."""
    lines = []
    for kind in labels(rows, "db", what="count"):
        for contestant in labels(rows, "contestant", what="count", db=kind):
            for shape in labels(rows, "shape", what="count", db=kind, contestant=contestant):
                mine = {"what": "count", "db": kind, "contestant": contestant, "shape": shape}
                words = select(rows, **mine)[-1]["words"]
                detail = " ".join(f"{word}:{count:g}" for word, count in words.items())
                counted = [f"{value(rows, key, **mine):g}" for key in ("statements", "commits")]
                lines.append((NAMES[kind], contestant, shape, *counted, detail))
    return table(["database", "who", "tools", "statements", "commits", "detail"], lines)


def _shapes(rows: Sequence[Row]) -> str:
    lines = []
    for kind in labels(rows, "db", what="run"):
        for shape in labels(rows, "shape", what="run", db=kind):
            if shape != "read":
                asked = {"what": "run", "db": kind, "shape": shape}
                mine = value(rows, "ms", contestant="anvil", **asked)
                limit = value(rows, "ms", contestant="raw2", **asked)
                times = ratio(rows, "ms", "anvil", "raw2", **asked)
                lines.append((NAMES[kind], shape, number(mine), number(limit), number(times, "×")))
    return table(["database", "tools", "ms per iteration", "raw2", "ratio"], lines)


def _bytes(rows: Sequence[Row]) -> str:
    lines = []
    for kind in labels(rows, "db", what="run", n=500):
        for contestant in labels(rows, "contestant", what="run", db=kind, n=500):
            asked = {"what": "run", "db": kind, "n": 500}
            stored = value(rows, "bytes", contestant=contestant, **asked)
            memory = [
                value(rows, key, contestant=contestant, **asked) for key in ("rss_start_mb", "rss_peak_mb")
            ]
            times = ratio(rows, "bytes", contestant, "raw", **asked)
            kilobytes = number(stored / 1000 if stored is not None else None)
            lines.append((NAMES[kind], contestant, kilobytes, number(times, "×"), *map(number, memory)))
    head = ["database", "who", "KB per iteration", "times raw", "MB at the start", "MB at the peak"]
    return table(head, lines)


def _sizes(rows: Sequence[Row]) -> str:
    lines = []
    for kind in labels(rows, "db", what="run"):
        for size in labels(rows, "size", what="run", db=kind):
            if size != 1024:
                asked = {"what": "run", "db": kind, "size": size}
                mine = value(rows, "ms", contestant="anvil", **asked)
                limit = value(rows, "ms", contestant="raw2", **asked)
                times = ratio(rows, "ms", "anvil", "raw2", **asked)
                peak = value(rows, "rss_peak_mb", contestant="anvil", **asked)
                lines.append(
                    (
                        NAMES[kind],
                        f"{size // 1024} KB",
                        number(mine),
                        number(limit),
                        number(times, "×"),
                        number(peak),
                    )
                )
    return table(
        ["database", "text and result", "ms per iteration", "raw2", "ratio", "MB at the peak"], lines
    )


def _resumes(rows: Sequence[Row]) -> str:
    lengths = sorted(labels(rows, "n", what="resume", shape="read"))
    lines = []
    for kind in labels(rows, "db", what="resume"):
        for contestant in labels(rows, "contestant", what="resume", db=kind, shape="read"):
            asked = {"what": "resume", "db": kind}
            cells = [value(rows, "resume_ms", contestant=contestant, n=n, **asked) for n in lengths]
            times = ratio(rows, "resume_ms", contestant, "raw", n=500, **asked)
            lines.append((NAMES[kind], contestant, *map(number, cells), number(times, "×")))
    return table(["database", "who", *(f"N={n}, ms" for n in lengths), "times raw at 500"], lines)


def _together(rows: Sequence[Row]) -> str:
    lines = []
    for kind in labels(rows, "db", what="together"):
        for contestant in labels(rows, "contestant", what="together", db=kind):
            asked = {"what": "together", "db": kind}
            figures = [
                value(rows, key, contestant=contestant, **asked)
                for key in ("per_second", "cpu_ms", "rss_peak_mb")
            ]
            times = ratio(rows, "per_second", contestant, "raw2", **asked)
            lines.append(
                (NAMES[kind], contestant, number(figures[0]), number(times, "×"), *map(number, figures[1:]))
            )
    head = ["database", "who", "iterations/s", "times raw2", "CPU ms per iteration", "MB at the peak"]
    return table(head, lines)


def _http(rows: Sequence[Row]) -> str:
    lines = []
    for kind in labels(rows, "db", what="http"):
        for n in labels(rows, "n", what="http", db=kind):
            asked = {"what": "http", "db": kind, "n": n}
            cpu = [value(rows, "cpu_ms", contestant=who, **asked) for who in ("sdk", "anvil")]
            wall = [value(rows, "ms", contestant=who, **asked) for who in ("sdk", "anvil")]
            times = ratio(rows, "cpu_ms", "anvil", "sdk", **asked)
            beyond = number((times - 1) * 100 if times is not None else None, "%")
            lines.append((NAMES[kind], n, *map(number, [*cpu]), beyond, *map(number, wall)))
    head = ["database", "N", "CPU ms, bare SDK", "CPU ms, anvil", "beyond", "ms, bare SDK", "ms, anvil"]
    return table(head, lines)


def _workers(rows: Sequence[Row]) -> str:
    lines = []
    for kind in labels(rows, "db", what="workers"):
        for broker in labels(rows, "broker", what="workers", db=kind):
            for wait in labels(rows, "wait", what="workers", db=kind, broker=broker):
                asked = {"what": "workers", "db": kind, "broker": broker, "wait": wait}
                cells = [number(value(rows, "per_second", workers=count, **asked)) for count in (1, 2, 4)]
                bell = value(rows, "doorbell_ms", what="doorbell", db=kind, broker=broker)
                lines.append((NAMES[kind], broker, f"{wait * 1000:.0f} ms", *cells, number(bell)))
    head = ["database", "broker", "model takes", "1 worker, it/s", "2", "4", "doorbell, ms"]
    return table(head, lines)


def load(path: Path) -> list[dict[str, Any]]:
    """The lines that a measurement has written."""
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()]


def merged(files: Sequence[Sequence[Row]]) -> list[Row]:
    """The lines of several measurements: a cell that was measured again is taken from the last one."""
    latest = {_cell(row): number for number, rows in enumerate(files) for row in rows}
    replaced = {
        _cell(row) for number, rows in enumerate(files) for row in rows if latest[_cell(row)] > number
    }
    again = len(replaced - {_cell({"what": "machine"})})
    about = [{**row, "again": again} for row in files[0] if row["what"] == "machine"]
    figures = [
        row
        for number, rows in enumerate(files)
        for row in rows
        if row["what"] != "machine" and latest[_cell(row)] == number
    ]
    places = {cell: place for place, cell in enumerate(latest)}  # Each where it was measured first.
    return [*about, *sorted(figures, key=lambda row: places[_cell(row)])]


def _cell(row: Row) -> tuple[Any, ...]:
    return tuple(row.get(key) for key in ("what", "db", "n", "shape", "size", "workers", "broker", "wait"))


def write(rows: Sequence[Row], document: Path) -> list[str]:
    """Put the tables between the document's markers and the plots into the folder beside it.

    Returns:
        What was written, and what could not be.

    Raises:
        ValueError: The document has no markers.
    """
    text = document.read_text()
    if BEGIN not in text or END not in text:
        raise ValueError(f"{document} has no {BEGIN} and {END}.")
    drawn, why = plots.draw(rows, document.with_suffix(""))
    pictures = "\n".join(f"![{title}]({document.stem}/{name})" for name, title in drawn.items())
    found = f"{BEGIN}\n\n{all_tables(rows)}\n{pictures}\n\n{END}"
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    document.write_text(pattern.sub(lambda _: re.sub(r"\n{3,}", "\n\n", found), text))
    return [f"Written to {document}.", *([why] if why else [f"{len(drawn)} plots drawn."])]


def main() -> int:
    """Print the tables, or write them into a document."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "results",
        nargs="*",
        type=Path,
        default=[RESULTS],
        help="default: the last ones; of several files, what was measured again counts as in the last",
    )
    parser.add_argument("--write", type=Path, metavar="DOCUMENT", help="into this file, between its markers")
    options = parser.parse_args()
    rows = merged([load(path) for path in options.results])
    if options.write is None:
        print(all_tables(rows))
        return 0
    for line in write(rows, options.write):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
