"""The goals, and how far they are reached, beside the least that could do the job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .figures import Row, number, ratio, select, value

DATABASES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}


@dataclass(frozen=True)
class Goal:
    """One line of the table.

    Args:
        what: What is measured.
        goal: What it should be.
        measured: What it is; empty when it was not measured.
        reached: Whether every figure of it is within the goal; None when there is none.
        peer: The best figure of a peer, published or measured beside ours.
        limit: That of the plain driver.
    """

    what: str
    goal: str
    measured: str
    reached: bool | None
    peer: str
    limit: str


class _Judged:
    """Figures that are put side by side, each within its bound or not."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.fits: list[bool] = []

    def add(self, name: str, found: float | None, bound: float, unit: str = "", note: str = "") -> None:
        if found is not None:
            self.parts.append(f"{name} {number(found, unit)}{note}".strip())
            self.fits.append(found <= bound)

    def goal(self, what: str, goal: str, peer: str, limit: str) -> Goal:
        reached = all(self.fits) if self.fits else None
        return Goal(what, goal, ", ".join(self.parts), reached, peer, limit)


def goals(rows: Sequence[Row]) -> list[Goal]:
    """All of them."""
    return [
        _time(rows),
        _growth(rows),
        _bytes(rows),
        _commits(rows),
        _statements(rows),
        _resume(rows),
        _together(rows),
        _memory(rows),
        *_doorbells(rows),
        _sdk(rows),
    ]


def _time(rows: Sequence[Row]) -> Goal:
    judged = _Judged()
    for kind, name in DATABASES.items():
        for n in (50, 500):
            found = ratio(rows, "ms", "anvil", "raw2", what="run", db=kind, n=n)
            ms = value(rows, "ms", what="run", db=kind, n=n, contestant="anvil")
            judged.add(f"{name} N={n}:", found, 1.5, "×", f" ({number(ms, 'ms')})")
    return judged.goal(
        "ms per iteration, one read-only call",
        "≤ 1.5 × raw2",
        "Absurd 1.5 × (PG), DBOS 8.7 × (SQLite)",
        "raw2",
    )


def _growth(rows: Sequence[Row]) -> Goal:
    judged = _Judged()
    for kind, name in DATABASES.items():
        mine = {"what": "run", "db": kind, "n": 500, "contestant": "anvil"}
        first, last = value(rows, "first_tenth_ms", **mine), value(rows, "last_tenth_ms", **mine)
        judged.add(f"{name}", last / first if first and last else None, 1.1, "×")
    return judged.goal("last tenth / first tenth of a run of 500", "≤ 1.1", "1.1", "1.0")


def _bytes(rows: Sequence[Row]) -> Goal:
    judged, limits = _Judged(), []
    for kind, name in DATABASES.items():
        asked = {"what": "run", "db": kind, "n": 500}
        found = ratio(rows, "bytes", "anvil", "raw", **asked)
        stored = value(rows, "bytes", contestant="anvil", **asked)
        limit = value(rows, "bytes", contestant="raw", **asked)
        limits.append(number(limit / 1000 if limit else None, "KB"))
        kilobytes = number(stored / 1000 if stored else None, "KB")
        judged.add(f"{name}", found, 1.2, "×", f" ({kilobytes})")
    return judged.goal("bytes stored per iteration, N=500", "≤ 1.2 × raw", "4.4–4.7 KB", ", ".join(limits))


def _commits(rows: Sequence[Row]) -> Goal:
    judged = _Judged()
    for shape, bound in (("read", 2), ("effect", 2), ("effects4", 5)):
        mine = {"what": "count", "contestant": "anvil", "shape": shape}
        found = [value(rows, "commits", db=kind, **mine) for kind in DATABASES]
        counted = [one for one in found if one is not None]
        judged.add(f"{shape}", max(counted, default=None), bound)
    return judged.goal("commits per iteration", "2; with k side effects k + 1", "2 (unfenced), 4", "2")


def _statements(rows: Sequence[Row]) -> Goal:
    judged, mine = _Judged(), {"what": "count", "contestant": "anvil", "db": "postgres"}
    judged.add("", value(rows, "statements", **mine), 6)
    for row in select(rows, **mine):
        judged.add("pings", row["words"].get("PING", 0.0), 0)
    return judged.goal(
        "statements per iteration, PostgreSQL",
        "≤ 6 with BEGIN and COMMIT, 0 pings",
        "4 (Absurd), 20 (DBOS)",
        "2",
    )


def _resume(rows: Sequence[Row]) -> Goal:
    judged, limits = _Judged(), []
    for kind, name in DATABASES.items():
        asked = {"what": "resume", "db": kind, "n": 500}
        found = ratio(rows, "resume_ms", "anvil", "raw", **asked)
        ms = value(rows, "resume_ms", contestant="anvil", **asked)
        limits.append(number(value(rows, "resume_ms", contestant="raw", **asked), "ms"))
        judged.add(f"{name}", found, 1.5, "×", f" ({number(ms, 'ms')})")
    return judged.goal(
        "resume of a run of 500, to the model call",
        "≤ 1.5 × raw",
        "31 ms (Absurd), 26–128 (LangGraph)",
        ", ".join(limits),
    )


def _together(rows: Sequence[Row]) -> Goal:
    parts, fits = [], []
    for kind, name in DATABASES.items():
        found = ratio(rows, "per_second", "anvil", "raw2", what="together", db=kind)
        if found is not None:
            speed = value(rows, "per_second", what="together", db=kind, contestant="anvil")
            parts.append(f"{name} {number(found, '×')} ({number(speed)}/s)")
            fits.append(found >= 0.6)
    return Goal(
        "8 runs of 50 at once in one process",
        "≥ 0.6 × raw2",
        ", ".join(parts),
        all(fits) if fits else None,
        "0.3 ×",
        "raw2",
    )


def _memory(rows: Sequence[Row]) -> Goal:
    judged = _Judged()
    for kind, name in DATABASES.items():
        mine = {"what": "run", "db": kind, "n": 500, "contestant": "anvil"}
        judged.add(f"{name}", value(rows, "rss_peak_mb", **mine), 60, "MB")
    limit = value(rows, "rss_peak_mb", what="run", db="sqlite", n=500, contestant="raw")
    return judged.goal("peak memory of the process, N=500", "≤ 60 MB", "37–110 MB", number(limit, "MB"))


def _doorbells(rows: Sequence[Row]) -> list[Goal]:
    found = []
    for broker, name, bound in (("redis", "Redis", 50.0), ("orm", "ORM broker, poll 200 ms", 250.0)):
        judged = _Judged()
        judged.add("", value(rows, "doorbell_ms", what="doorbell", broker=broker), bound, "ms")
        found.append(judged.goal(f"doorbell to first step, {name}", f"≤ {bound:.0f} ms", "–", "–"))
    return found


def _sdk(rows: Sequence[Row]) -> Goal:
    judged = _Judged()
    for kind, name in DATABASES.items():
        found = ratio(rows, "cpu_ms", "anvil", "sdk", what="http", db=kind)
        judged.add(f"{name}", (found - 1) * 100 if found is not None else None, 25, "%")
    return judged.goal("CPU per iteration over HTTP, beyond the SDK's own", "≤ 25 %", "–", "0")
