"""The auditor on a site on which all went well, and then on the same site with one thing broken."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from anvil_django.models import Run

from .audit import audit, main, summary
from .damages import DAMAGES, Borrowed, Broken, Damage, states
from .facts import ExpectedRun, Facts, Vendor
from .healthy import Healthy, healthy

pytestmark = [pytest.mark.django_db, pytest.mark.xdist_group("audit")]
VENDORS: dict[str, Vendor] = {"sqlite": "sqlite", "postgresql": "postgres", "mysql": "mariadb"}


@pytest.fixture(scope="module")
def site(
    django_db_setup: None, django_db_blocker: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Healthy]:
    """Made once, committed; what a test changes is rolled back."""
    with django_db_blocker.unblock(), healthy(tmp_path_factory.mktemp("audit")) as made:
        yield made


@pytest.fixture
def broken(site: Healthy, tmp_path: Path) -> Broken:
    """The site, for the test to break."""
    log = tmp_path / "effects.jsonl"
    log.write_text(site.log)
    return Broken(Facts(VENDORS[connection.vendor], Borrowed, log, [*site.billed], site.expected))


def test_nothing_is_found_where_all_went_well(broken: Broken) -> None:
    assert audit(broken.facts) == []
    assert Run.objects.filter(status="done").count() == 9
    counts = summary(broken.facts)
    assert counts["runs done"] == 9
    assert counts["answers billed and not stored"] == 0


@pytest.mark.parametrize(
    ("run_id", "kinds", "break_it"), DAMAGES, ids=[function.__name__ for _, _, function in DAMAGES]
)
def test_the_auditor_reports(broken: Broken, run_id: str, kinds: str, break_it: Damage) -> None:
    break_it(broken)
    assert broken.found() == {(kind, run_id) for kind in kinds.split("|")}


PRICES = {"claude-sonnet-5-5": [Decimal(price) for price in ("2", "10", "0.1", "2.5", "4")]}


def test_costs_are_compared_with_prices_where_they_are_known(broken: Broken) -> None:
    broken.facts = replace(broken.facts, prices=PRICES)
    assert broken.found() == set()
    row, run = broken.message("plain", -1), broken.run("plain")
    assert row.cost_usd is not None
    assert run.cost_usd is not None
    broken.change(row, cost_usd=row.cost_usd + 1)
    broken.change(run, cost_usd=run.cost_usd + 1)
    assert broken.found() == {("cost differs", "plain")}


def test_answers_that_were_paid_for_and_not_kept_are_counted(broken: Broken) -> None:
    twice = replace(broken.facts, billed=[*broken.facts.billed, broken.facts.billed[0]])
    assert audit(twice) == []
    assert summary(twice)["answers billed and not stored"] == 1


def test_an_effect_of_a_finished_run_that_the_model_never_asked_for(broken: Broken) -> None:
    run = broken.facts.expected["plain"]
    more = replace(run.effects[0], name="plain.more")
    changed = ExpectedRun((*run.effects, more), run.iterations, run.final_text)
    broken.facts = replace(broken.facts, expected={**broken.facts.expected, "plain": changed})
    assert broken.found() == {("effect lost", "plain")}


def test_the_auditor_shares_no_code_with_the_runtime() -> None:
    program = (
        "import sys, tests.faults.audit;"
        "print([name for name in sys.modules if name.split('.')[0] in ('django', 'anvil_django')])"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=30
    )
    assert told.stdout == "[]\n"


@pytest.mark.skipif(connection.vendor != "sqlite", reason="a file to look into")
def test_the_auditor_as_a_command_looks_into_a_file(
    broken: Broken, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def copy(name: str) -> str:
        with sqlite3.connect(tmp_path / name) as into:
            into.executescript("\n".join(connection.connection.iterdump()))
        into.close()
        return str(tmp_path / name)

    log = ["--log", str(broken.facts.effect_log)]
    assert main(["--sqlite", copy("good.sqlite3"), *log]) == 0
    assert "9 runs done" in capsys.readouterr().out
    states.queued_and_the_ticket_is_old(broken)
    assert main(["--sqlite", copy("bad.sqlite3")]) == 1
    assert "lost wake-up: queued: queued and due" in capsys.readouterr().out
