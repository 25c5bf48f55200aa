"""How long each list takes in a small table and in a large one: ``python -m benchmarks.lists``.

It makes a scratch database, fills it, asks for each page of the REST API and of the admin through Django's
test client, and drops the database again. Nothing is decided by time: the exit code is 1 when a page takes
more statements in the large table than in the small one, or, on PostgreSQL, when a step of a plan reads more
rows than ``READ_AT_MOST``, however large the table.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus, urlencode

if TYPE_CHECKING:
    from .crowd import Crowd

DATABASES = ("sqlite", "postgres", "mariadb")
SMALL, LARGE = 1_000, 100_000
READ_AT_MOST = 3_000
"""Rows: the 2,000 that the admin counts, and what waits. Never more in a larger table."""

API, ADMIN = "/api/agents/v1/", "/admin/anvil_django/"


@dataclass(frozen=True)
class Page:
    """One page: whose, and where."""

    who: str
    url: str
    several: bool = False
    """Narrowed down by several filters: one index is read, the others are checked row by row."""
    adds_up: int = 0
    """Rows of a period that are added up: one step may read so many more."""


def pages(crowd: Crowd) -> list[Page]:
    """Every list with each of its filters, orders and places, also those that find nothing."""
    return [
        *_run_pages(crowd),
        *_approval_pages(),
        *_admin_run_pages(crowd),
        *_admin_approval_pages(),
        *_dashboards(crowd),
        *_pages_of_a_long_run(crowd),
    ]


def _run_pages(crowd: Crowd) -> Iterator[Page]:
    early, middle, late = (crowd.at(share).isoformat() for share in (0.02, 0.5, 0.98))
    asked: list[dict[str, Any]] = [
        {},
        {"ordering": "created"},
        {"status": "suspended"},
        {"status": "done"},
        {"status": "cancelled"},
        {"status": "failed"},
        {"status": ["queued", "running"]},
        {"agent": "other"},
        {"agent": "retired"},
        {"agent": "unheard-of"},
        {"creator": "carla"},
        {"creator": "robot"},
        {"creator": "me"},
        {"creator": "nobody"},
        {"stop_reason": "end_turn"},
        {"stop_reason": "refusal"},
        {"stop_reason": "unheard-of"},
        {"created_before": early},
        {"created_before": early, "ordering": "created"},
        {"created_before": middle},
        {"created_before": middle, "agent": "other"},
        {"created_before": crowd.at(-1).isoformat()},
        {"created_after": late},
        {"created_after": late, "ordering": "created"},
        {"created_after": middle, "ordering": "created"},
        {"created_after": crowd.at(2).isoformat()},
        {"created_after": early, "created_before": middle},
    ]
    for query in asked:
        yield _page("vera", f"{API}runs/", query)
    yield _page("vera", f"{API}runs/", {"agent": "retired", "status": "suspended"}, several=True)
    for query in ({}, {"agent": "other"}, {"ordering": "created"}):
        yield _page("vera", f"{API}runs/", {**query, "cursor": crowd.cursor(0.1)})
    for query in ({}, {"status": "suspended"}, {"agent": "other"}, {"created_before": middle}):
        yield _page("carla", f"{API}runs/", query)
    yield _page("robot", f"{API}runs/", {})


def _approval_pages() -> Iterator[Page]:
    asked: list[dict[str, Any]] = [{}, {"agent": "other"}, {"kind": "limit"}, {"tool": "fax"}]
    asked += [{"status": status} for status in ("all", "approved", "rejected", "expired", "void")]
    asked += [{"status": "all", "agent": agent} for agent in ("worldly", "retired", "other")]
    asked += [{"status": "all", "kind": kind} for kind in ("tool", "limit", "in_doubt")]
    asked += [{"status": "all", "tool": tool} for tool in ("mail", "fax", "unheard-of")]
    asked += [{"status": "all", "run_id": run_id} for run_id in ("r2", "unheard-of")]
    for status in ("pending", "all"):
        for name in ("mine", "unclaimed", "decidable"):
            asked += [{"status": status, name: value} for value in ("true", "false")]
    for query in asked:
        yield _page("vera", f"{API}approvals/", query)
    for query in ({"agent": "retired"}, {"kind": "limit"}, {"tool": "fax"}):
        yield _page("vera", f"{API}approvals/", {"status": "approved", **query}, several=True)


def _admin_run_pages(crowd: Crowd) -> Iterator[Page]:
    week = {"created_at__gte": str(crowd.at(0.9)), "created_at__lt": str(crowd.at(2))}
    asked: list[dict[str, Any]] = [
        {},
        {"p": 20},
        {"o": "1"},
        {"o": "3"},  # No column to sort by.
        {"o": "-7"},
        {"o": "7"},
        {"status__exact": "suspended"},
        {"status__exact": "cancelled"},
        {"status__exact": "failed"},
        {"status__exact": "done"},
        {"agent": "other"},
        {"agent": "retired"},
        {"agent": "unheard-of"},
        week,
    ]
    for query in asked:
        yield _page("vera", f"{ADMIN}run/", query)


def _admin_approval_pages() -> Iterator[Page]:
    asked: list[dict[str, Any]] = [{}, {"o": "6"}, {"o": "3"}, {"for": "me"}, {"claim": "mine"}]
    asked += [{"claim": "nobody"}, {"kind__exact": "limit"}, {"agent": "other"}, {"tool": "fax"}]
    asked += [{"status": status} for status in ("all", "approved", "rejected", "expired")]
    for extra in (
        {"p": 20},
        {"o": "1"},
        {"o": "5"},  # No column to sort by.
        {"for": "me"},
        {"claim": "nobody"},
        {"kind__exact": "limit"},
        {"kind__exact": "in_doubt"},
        {"agent": "worldly"},
        {"agent": "other"},
        {"tool": "fax"},
        {"tool": "mail"},
    ):
        asked.append({"status": "all", **extra})
    for query in asked:
        yield _page("vera", f"{ADMIN}approval/", query)
    yield Page("vera", "/admin/")
    yield Page("vera", ADMIN)


def _dashboards(crowd: Crowd) -> Iterator[Page]:
    early = f"{crowd.at(0.02):%Y-%m-%d}"
    periods: list[tuple[dict[str, str], int]] = [
        ({"period": "24h"}, 1),
        ({"period": "7d"}, 7),
        ({"period": "30d"}, 30),
        ({"period": "90d"}, 90),
        ({"since": early, "until": early}, 1),
    ]
    for query, days in periods:
        runs = min(crowd.rows, days * 24 * 60)
        # Two approvals a run. Of a fifth of a table and more the databases read all, and are right.
        rows = 2 * (crowd.rows if runs > crowd.rows / 5 else runs)
        for agent in ({}, {"agent": "other"}, {"agent": "retired"}):
            url = f"{ADMIN}run/dashboard/?{urlencode({**query, **agent})}"
            yield Page("vera", url, several=bool(agent), adds_up=rows)


def _pages_of_a_long_run(crowd: Crowd) -> Iterator[Page]:
    page = f"{ADMIN}run/{crowd.long.pk}/change/"
    yield Page("vera", page)
    yield Page("vera", f"{page}?from=1")


def _page(who: str, path: str, query: dict[str, Any], *, several: bool = False) -> Page:
    return Page(who, f"{path}?{urlencode(query, doseq=True)}" if query else path, several)


@dataclass
class Measured:
    """What one page took in one table."""

    ms: float
    queries: int
    rows_read: int | None
    """By the most expensive step; only PostgreSQL says."""


def measure(crowd: Crowd, page: Page, times: int) -> Measured:
    """Ask for a page: once for its statements, then for its time, the median of as many requests."""
    from django.db import connection
    from django.test import Client

    from .plans import rows_read, statements

    client = Client()
    client.force_login(getattr(crowd, page.who))
    sql = statements(client, page.url)
    taken = []
    for _time in range(times):
        began = perf_counter()
        client.get(page.url)
        taken.append((perf_counter() - began) * 1000)
    read = rows_read(sql) if connection.vendor == "postgresql" else None
    return Measured(round(median(taken), 2), len(sql), read)


def run_at(rows: int, times: int) -> list[tuple[Page, Measured]]:
    """Every page in a database of its own with so many rows."""
    from .crowd import Crowd

    with _scratch_database():
        crowd = Crowd(rows)
        found = pages(crowd)
        for page in found[0], found[-1]:
            # What a process loads once is not what is measured.
            measure(crowd, page, 1)
        return [(page, measure(crowd, page, times)) for page in found]


@contextmanager
def _scratch_database() -> Iterator[None]:
    from django.db import connection

    before = connection.settings_dict["NAME"]
    connection.creation.create_test_db(verbosity=0, autoclobber=True)
    try:
        yield
    finally:
        connection.creation.destroy_test_db(before, verbosity=0)


@dataclass
class Compared:
    """One page in both tables."""

    page: Page
    small: Measured
    large: Measured

    @property
    def ratio(self) -> float:
        """How many times longer the large table takes."""
        return self.large.ms / self.small.ms

    @property
    def wrong(self) -> str:
        """What grows with the table that must not; "" if nothing does."""
        if self.large.queries > self.small.queries:
            return f"{self.large.queries} queries instead of {self.small.queries}"
        # Of several filters the database reads one's index; how far depends on the others.
        read, most = self.large.rows_read, READ_AT_MOST + self.page.adds_up
        if read is not None and not self.page.several and read > most:
            return f"{read} rows read"
        return ""


def printed(found: Iterable[Compared], rows: int) -> Iterator[str]:
    """The table, line by line."""
    head = f"{'page':<100} {f'ms at {SMALL:,}':>12} {f'ms at {rows:,}':>14} {'ratio':>6}"
    yield f"{head} {'queries':>8} {'rows read':>10}"
    for row in found:
        read = "-" if row.large.rows_read is None else f"{row.large.rows_read:,}"
        times = f"{row.small.ms:>12.1f} {row.large.ms:>14.1f} {row.ratio:>6.2f}"
        name = f"{unquote_plus(row.page.url)} ({row.page.who})"
        line = f"{name:<100} {times} {row.large.queries:>8} {read:>10}"
        yield f"{line}  GROWS: {row.wrong}" if row.wrong else line


def main(argv: list[str] | None = None) -> int:
    """Measure, print, and say whether a count is wrong."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lists", description=__doc__)
    parser.add_argument("--db", choices=DATABASES, default="sqlite")
    parser.add_argument("--rows", type=int, default=LARGE, help="rows of the large table, up to a million")
    parser.add_argument(
        "--times", type=int, default=5, help="requests for each page, of which the median is taken"
    )
    parser.add_argument("--json", action="store_true", help="a JSON object a line instead of the table")
    options = parser.parse_args(argv)
    if not SMALL < options.rows < 1_000_000:
        parser.error(f"--rows must be more than {SMALL:,} and less than a million.")
    with tempfile.TemporaryDirectory() as folder:
        _set_up(options.db, folder)
        small, large = (run_at(rows, options.times) for rows in (SMALL, options.rows))
    # In the same order; the times that the queries name differ, where they lie between the runs does not.
    found = [Compared(page, before, after) for (_, before), (page, after) in zip(small, large, strict=True)]
    if options.json:
        for row in found:
            print(json.dumps({"db": options.db, "rows": options.rows, **asdict(row), "wrong": row.wrong}))
    else:
        print("\n".join(printed(found, options.rows)))
    return 1 if any(row.wrong for row in found) else 0


def _set_up(db: str, folder: str) -> None:
    """Django with the settings of the tests, in a database of our own."""
    os.environ["ANVIL_TEST_DB"] = db
    name = str(Path(folder, "lists.sqlite3")) if db == "sqlite" else f"anvil_lists_{os.getpid()}"
    os.environ["ANVIL_TEST_DB_NAME"] = name
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    import logging

    import django

    django.setup()
    logging.disable(logging.CRITICAL)


if __name__ == "__main__":
    sys.exit(main())
