"""The benchmark's own parts: the work, the counting, the ratios, the goals and the document."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.overhead import report, workload
from benchmarks.overhead.counting import commits, first_word, per_iteration, sent
from benchmarks.overhead.expected import wrong_counts
from benchmarks.overhead.figures import ratio, value
from benchmarks.overhead.goals import goals
from benchmarks.overhead.peers import Peers, translate
from benchmarks.overhead.plan import Cell, plan
from benchmarks.overhead.workload import Job, WrongRunError

ROOT = Path(__file__).resolve().parent.parent


def history(job: Job) -> list[dict[str, Any]]:
    """What a contestant sends at the last call."""
    found: list[dict[str, Any]] = [{"role": "user", "content": job.opening("k")}]
    for i in range(job.n - 1):
        found.append({"role": "assistant", "content": workload.blocks(job, i)})
        results = [
            {"tool_use_id": f"call_{seq}", "content": workload.result(seq, job.size)} for seq in job.seqs(i)
        ]
        found.append({"role": "user", "content": results})
    return found


def row(what: str, contestant: str, number: int = 0, **figures: Any) -> dict[str, Any]:
    usual = {"db": "sqlite", "n": 500, "shape": "read", "size": 1024, "round": number}
    return {"what": what, "contestant": contestant, **usual, **figures}


@pytest.mark.parametrize("shape", workload.SHAPES)
def test_the_model_knows_the_job_from_the_first_message(shape: str) -> None:
    job = Job(7, shape, size=2048, wait=0.05, stamp=True)

    assert Job.of(job.opening("some-run")) == job
    assert 2000 < len(workload.text(3, job.size)) <= 2048
    assert 1900 < len(workload.result(3, job.size)) < 2300


def test_the_work_is_the_same_in_every_process() -> None:
    script = (
        "from benchmarks.overhead import workload as w; print(hash((w.text(5, 1024), w.result(5, 1024))))"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", script],
            cwd=ROOT,
            env={"PYTHONHASHSEED": "0"},
            capture_output=True,
            check=True,
        ).stdout
        for _ in range(2)
    }

    assert len(said) == 1


def test_a_lost_message_a_changed_result_and_a_repeated_tool_end_the_measurement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Job(4, "effects4")
    whole = history(job)
    workload.check_history(job, whole)
    whole[2]["content"][1]["content"] = "{}"
    with pytest.raises(WrongRunError, match="results of turn 0"):
        workload.check_history(job, whole)
    with pytest.raises(WrongRunError, match="came with 4 messages"):
        workload.model_called(job, 2, 4)
    monkeypatch.setattr(workload, "CALLS", [*job.expected_calls(), 3])
    with pytest.raises(WrongRunError, match="13 tool calls"):
        workload.check_calls(job)


def test_commits_are_transactions_that_wrote_and_writes_outside_one() -> None:
    texts = [
        *("BEGIN", "SELECT 1", "COMMIT"),
        *("BEGIN IMMEDIATE", 'INSERT INTO "t"', "UPDATE t", "COMMIT"),
        *("WITH saved AS (...)", "SELECT 2", ""),
        *("BEGIN", "DELETE FROM t", "ROLLBACK"),
    ]
    words = [first_word(text) for text in texts]

    assert commits(words) == 2
    assert words[-4] == "PING"


def test_a_trace_of_libpq_is_read_with_its_prepared_statements() -> None:
    trace = (
        'F\t10\tQuery\t "BEGIN"\nB\t5\tReadyForQuery\t T\n'
        'F\t40\tParse\t "_pg3_0" "INSERT INTO t\n VALUES ($1)" 1 21\n'
        'F\t28\tBind\t "" "_pg3_0" 1 1 1 2 \'\\x00\\x05\' 1 0\nF\t9\tExecute\t "" 0\n'
        'F\t28\tBind\t "" "_pg3_1" 1 1 1 2 \'\\x00\\x06\' 1 0\n'
        'F\t40\tParse\t "_pg3_2" "COMMIT" 0\nF\t28\tBind\t "" "_pg3_2" 0 0 1 0\nF\t5\tQuery\t ""\n'
    )

    said = sent(trace, {"_pg3_1": "UPDATE t"})

    assert [first_word(text) for text in said] == ["BEGIN", "INSERT", "UPDATE", "COMMIT", "PING"]


def test_what_an_iteration_takes_leaves_out_what_a_run_takes_once() -> None:
    few = {"statements": 25, "commits": 9, "words": {"INSERT": 5, "SELECT": 7}}
    many = {"statements": 65, "commits": 29, "words": {"INSERT": 15, "SELECT": 7}}

    assert per_iteration(few, many, 10) == {"statements": 4.0, "commits": 2.0, "words": {"INSERT": 1.0}}


def test_a_ratio_is_taken_within_a_round() -> None:
    rows = [
        *(row("run", "raw2", 0, ms=1.0), row("run", "anvil", 0, ms=2.0)),
        *(row("run", "raw2", 1, ms=10.0), row("run", "anvil", 1, ms=15.0)),  # The machine was busy.
        *(row("run", "raw2", 2, ms=1.0), row("run", "anvil", 2, ms=1.4)),
        row("run", "anvil", 3, ms=50.0),
    ]

    assert ratio(rows, "ms", "anvil", "raw2", what="run") == 1.5
    assert value(rows, "ms", what="run", contestant="raw2") == 1.0
    assert value(rows, "ms", what="run", contestant="raw2", shape="effect") is None


def test_a_count_that_is_off_is_told_and_time_never_is() -> None:
    good = row("count", "anvil", statements=9.0, commits=2.0, words={})
    slow = row("run", "anvil", ms=10_000.0)

    assert wrong_counts([good, slow]) == []
    assert wrong_counts([{**good, "commits": 3.0}]) == ["sqlite, read: 3.00 commits an iteration, not 2"]
    assert wrong_counts([{**good, "statements": 9.1}]) == [
        "sqlite, read: 9.10 statements an iteration, at most 9"
    ]


def test_a_goal_says_whether_it_is_reached() -> None:
    rows = [row("run", "raw2", ms=1.0), row("run", "anvil", ms=1.6)]

    found = goals(rows)

    assert (found[0].measured, found[0].reached) == ("SQLite N=500: 1.60 × (1.60 ms)", False)
    assert {goal.reached for goal in found[1:]} == {None}


def test_the_tables_replace_what_is_between_the_markers(tmp_path: Path) -> None:
    document = tmp_path / "performance.md"
    document.write_text(f"Before.\n\n{report.BEGIN}\nold\n{report.END}\n\nAfter.\n")
    rows = [
        row("run", "raw2", ms=1.0, bytes=2500, cpu_ms=0.5, rss_start_mb=15.0, rss_peak_mb=17.0),
        row("run", "anvil", ms=1.4, bytes=2900, cpu_ms=1.0, rss_start_mb=50.0, rss_peak_mb=55.0),
    ]

    report.write(rows, document)
    once = document.read_text()
    report.write(rows, document)

    assert document.read_text() == once
    assert once.startswith("Before.")
    assert once.endswith("After.\n")
    assert "old" not in once
    assert "1.40 (1.40 ×)" in once


def test_a_cell_that_is_measured_again_counts_as_in_the_last_file() -> None:
    about = {"what": "machine"}
    first = [
        about,
        row("run", "raw2", ms=9.0),
        row("run", "anvil", ms=9.0),
        row("resume", "anvil", resume_ms=5.0),
    ]
    again = [about, row("run", "anvil", ms=1.0)]

    assert report.merged([first, again]) == [{**about, "again": 1}, again[1], first[3]]


def test_the_document_of_the_project_has_its_markers() -> None:
    text = (ROOT / "docs" / "performance.md").read_text()

    assert text.index(report.BEGIN) < text.index(report.END)


@pytest.mark.parametrize("name", ["check", "standard", "full"])
def test_every_cell_of_a_plan_can_be_told_from_the_others(name: str) -> None:
    titles = [cell.title for cell in plan(name)]

    assert len(titles) == len(set(titles))


def test_peers_that_are_not_installed_are_left_out_with_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_ROOT", str(tmp_path))
    cell = Cell("run", "sqlite", ("raw2",), Job(50), 1, peers=True)

    assert "no --peers" in Peers(None).why_none()
    assert "no environment" in Peers(tmp_path).why_none()
    assert Peers(tmp_path).for_cell(cell) == []
    assert translate(
        Cell("together", "sqlite", (), Job(50), 1), {"iters_per_s": 5.0, "rss_peak_mb": 9.0}
    ) == {
        "per_second": 5.0,
        "rss_peak_mb": 9.0,
    }


def test_a_peer_is_measured_by_its_own_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "venvs" / "dbos" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.touch()
    (tmp_path / "bench.py").write_text(
        "import json, sys\n"
        "n = int(sys.argv[sys.argv.index('--n') + 1])\n"
        "print(json.dumps({'peer': 'dbos', 'counts': {'SELECT': 4 * n + 3, 'COMMIT': 2 * n}}))\n"
    )
    monkeypatch.setenv("BENCH_ROOT", str(tmp_path))
    cell = Cell("count", "sqlite", ("raw2",), Job(60), 1, peers=True)
    peers = Peers(tmp_path)

    assert peers.for_cell(cell) == ["dbos"]
    assert peers.measure("dbos", cell) == {
        "statements": 6.0,
        "commits": 2.0,
        "words": {"COMMIT": 2.0, "SELECT": 4.0},
    }


@pytest.mark.slow
@pytest.mark.processes
def test_a_measurement_runs_from_the_template_to_the_figures(tmp_path: Path) -> None:
    """The command itself, on the cheapest cells."""
    out = tmp_path / "out.jsonl"
    command = [
        sys.executable,
        "-m",
        "benchmarks.overhead",
        "--db",
        "sqlite",
        "--redis",
        "",
        "--out",
        str(out),
    ]
    done = subprocess.run(
        [*command, "--set", "check", "--only", "resume"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 0, done.stderr
    about, found = [json.loads(line) for line in out.read_text().splitlines()]
    assert about["servers"]["sqlite"]
    assert (found["what"], found["contestant"]) == ("resume", "anvil")
    assert found["resume_ms"] > 0
    assert "[1/1, 0 s left]" in done.stderr
