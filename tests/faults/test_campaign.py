"""A short campaign, on the database of the suite: many runs, few of everything that can go wrong, no loss."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes.cluster import ROOT

RUNS, FAULTS, SEED = 12, 10, 7


@pytest.mark.slow
@pytest.mark.processes
def test_a_short_campaign_of_faults_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    # A process of its own: the campaign has a database, settings and servers of its own.
    told = subprocess.run(
        [
            *(sys.executable, "-m", "tests.faults"),
            *("--db", os.environ.get("ANVIL_TEST_DB", "sqlite"), "--broker", "orm", "--seed", str(SEED)),
            *("--runs", str(RUNS), "--faults", str(FAULTS), "--minutes", "1", "--json", str(figures)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    found = json.loads(figures.read_text())
    assert sum(injected for _, injected in found["faults"].values()) == FAULTS
    assert found["runs"]["done"] + found["runs"].get("cancelled", 0) == RUNS
    assert found["losses"] == {}
