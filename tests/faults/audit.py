"""The auditor: reads the tables and the effect log, and says what is not as it should be.

It shares no code with the runtime: plain SQL, its own reading of the rules, no import of Django::

    python -m tests.faults.audit --sqlite db.sqlite3 [--log effects.jsonl]

audits a database at rest. Without a log it cannot know what the tools did, and without the server's bill not
what was charged; everything else is checked.

Kinds of findings, by the module that makes them:

- here: run missing, run not as scripted
- ``states``: lost wake-up, running without a lease, waits without a reason, ended without a reason, request
  not heeded, lease left over, asked after the end, question without a call, message
  undelivered; revision out of order, token out of order, counters differ, agent version changed
- ``effects``: effect twice, effect lost, effect unrecorded, effect after a no, effect without approval,
  effect of a cancelled call, begun again unasked, phantom effect, wrong key, atomic row doubled, atomic row
  missing, atomic row unrecorded, decision not followed, result differs; call failed (nothing is lost: the
  model was told so; where connections are cut, a tool in mid transaction ends like that);
  ``log``: log unreadable
- ``histories``: history gap, history roles, tool_use unanswered, tool_use id repeated, tool_use malformed,
  tool_result orphaned, tool_result doubled, results not first, results out of order, empty content, thinking
  damaged, content unreadable, call without tool_use, call differs
- ``decisions``: decision without a person, decided twice, digest mismatch, approval and decisions differ,
  approval misused
- ``billing``: usage differs, answer not billed, answer stored twice, cost differs
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from .auditor.billing import check_billing, lost_answers
from .auditor.decisions import check_decisions
from .auditor.effects import check_effects
from .auditor.histories import check_histories
from .auditor.log import read_log
from .auditor.rows import Run, Tables, read_tables
from .auditor.states import check_fences, check_states
from .facts import ExpectedRun, Facts, Finding


def audit(facts: Facts, *, at: datetime | None = None) -> list[Finding]:
    """Everything that is not as it should be.

    Args:
        facts: Where to look and what should have happened.
        at: The time by which leases and tickets are judged; now if left out.
    """
    tables = _tables(facts)
    lines, findings = read_log(facts.effect_log)
    findings += check_states(tables, at or datetime.now(UTC))
    findings += check_fences(tables)
    findings += check_histories(tables)
    findings += check_decisions(tables)
    findings += check_effects(tables, lines, facts.expected)
    findings += check_billing(tables, facts.billed, facts.prices)
    findings += _as_scripted(tables, facts)
    return findings


def summary(facts: Facts) -> dict[str, int]:
    """What is worth knowing and no finding: runs by status, and answers that were paid for and not kept."""
    tables = _tables(facts)
    counts = Counter(f"runs {run.status}" for run in tables.runs)
    counts["answers stored"] = sum(row.is_answer for row in tables.messages)
    counts["answers billed and not stored"] = max(0, lost_answers(tables, facts.billed))
    counts["calls"] = len(tables.calls)
    counts["decisions"] = len(tables.decisions)
    return dict(counts)


def _tables(facts: Facts) -> Tables:
    with closing(facts.connect()) as connection:
        return read_tables(connection, facts.vendor)


def _as_scripted(tables: Tables, facts: Facts) -> Iterator[Finding]:
    for run_id, wanted in facts.expected.items():
        run = tables.run_by_name.get(run_id)
        if run is None:
            yield Finding("run missing", run_id, "it was started, and there is no row of it")
            continue
        for sentence in _differences(run, wanted, tables):
            yield Finding("run not as scripted", run_id, sentence)


def _differences(run: Run, wanted: ExpectedRun, tables: Tables) -> Iterator[str]:
    if run.status == "cancelled" and not wanted.may_be_cancelled:
        yield "it is cancelled, and nobody asked for that"
    if run.status != "done":
        return
    rows = tables.messages_of[run.id]
    blocks = json.loads(rows[-1].content) if rows and rows[-1].role == "assistant" else []
    text = "".join(block.get("text", "") for block in blocks)
    if text != wanted.final_text:
        yield f"it ended with {text!r} instead of {wanted.final_text!r}"
    if run.iterations != wanted.iterations:
        yield f"it took {run.iterations} iterations instead of {wanted.iterations}"


def main(arguments: list[str] | None = None) -> int:
    """Audit an SQLite database; 1 if something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.audit", description=main.__doc__)
    parser.add_argument("--sqlite", type=Path, required=True, metavar="PATH", help="the database")
    parser.add_argument("--log", type=Path, metavar="PATH", help="the effect log, if there is one")
    options = parser.parse_args(arguments)
    if not options.sqlite.is_file():
        parser.error(f"there is no file {options.sqlite}")

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(f"{options.sqlite.resolve().as_uri()}?mode=ro", uri=True, timeout=20)
        connection.execute("BEGIN")  # One view of all tables.
        return connection

    facts = Facts("sqlite", connect, options.log or Path("/nonexistent"), [])
    findings = audit(facts)
    for finding in findings:
        print(f"{finding.kind}: {finding.run_id or '-'}: {finding.sentence}")
    print(", ".join(f"{count} {name}" for name, count in sorted(summary(facts).items())))
    print(f"{len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
