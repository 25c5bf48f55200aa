"""What lists and sweeps cost in a large table: none reads more than it shows (PostgreSQL's own plans)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext

from anvil_django import approvals, runs
from anvil_django.clock import get_clock
from anvil_django.models import Approval, Run
from benchmarks.crowd import WAITING, Crowd
from benchmarks.lists import READ_AT_MOST, pages
from benchmarks.plans import rows_read, statements

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.skipif(connection.vendor != "postgresql", reason="the plans of PostgreSQL"),
    # The rows are inserted once, for one pytest worker.
    pytest.mark.xdist_group("large table"),
]

ROWS = 100_000


@pytest.fixture(scope="module")
def crowd(django_db_setup: None, django_db_blocker: Any) -> Iterator[Crowd]:
    with django_db_blocker.unblock(), transaction.atomic():
        yield Crowd(ROWS)
        transaction.set_rollback(True)


@pytest.fixture(autouse=True)
def rows(crowd: Crowd) -> None:
    """Before a test's own transaction, which is inside that of the rows."""


def reads(act: Callable[[], Any]) -> int:
    with CaptureQueriesContext(connection) as queries:
        act()
    return rows_read([query["sql"] for query in queries])


def test_no_list_reads_more_than_what_it_shows_or_counts(crowd: Crowd) -> None:
    read = {}
    for page in pages(crowd):
        client = Client()
        client.force_login(getattr(crowd, page.who))
        read[page] = rows_read(statements(client, page.url))
    # The API counts nothing: a page, and what waits where that has to be looked through.
    most = {
        page: 4 * WAITING if page.url.startswith("/api/") else READ_AT_MOST + page.adds_up for page in read
    }
    assert not {page: rows for page, rows in read.items() if rows > most[page] and not page.several}


def test_the_sweeps_read_only_what_is_not_finished(crowd: Crowd) -> None:
    """A few runs are interrupted, a few cases are late; 100,000 of each are neither."""
    late = get_clock().now() - timedelta(hours=1)
    Approval.objects.filter(pk__in=Approval.objects.pending()[:5]).update(expires_at=late, escalate_at=late)
    found: list[str] = []
    assert reads(lambda: found.extend(lost.run_id for lost in runs.recover(dry_run=True))) <= 4 * WAITING
    assert sorted(found) == sorted([f"r{ROWS // 3}", f"r{ROWS // 2}"])
    assert reads(lambda: found.extend(lost.run_id for lost in runs.recover())) <= 4 * WAITING
    assert reads(lambda: list(approvals.overdue_escalations())) <= 4 * WAITING
    assert reads(approvals.expire_overdue) <= 4 * WAITING
    assert Approval.objects.filter(status="expired").count() == 5


def test_failed_runs_are_swept_by_index(crowd: Crowd) -> None:
    failed = Run.objects.filter(run_id__in=["r7", f"r{ROWS}"])
    failed.update(status="failed", error_code="test", stop_reason="")
    found: list[str] = []
    swept = reads(lambda: found.extend(lost.run_id for lost in runs.recover(failed=True, dry_run=True)))
    assert swept <= 4 * WAITING
    assert {"r7", f"r{ROWS}"} < set(found)
