"""The counts that may not change: what an iteration sends to the database, and how much of it is a commit."""

from __future__ import annotations

from collections.abc import Sequence

from .figures import Row, labels, number, value

COMMITS = {"read": 2, "effect": 2, "effects4": 5, "atomic": 2, "approval": 5}
"""Of one iteration, by shape: the answer, then each result with the intent of the next call.

With an approval: what the model asked for, the decision with its doorbell, the claim, the intent, the result.
"""

STATEMENTS = {
    "sqlite": {"read": 9, "effect": 9, "effects4": 24, "atomic": 12, "approval": 45},
    "postgres": {"read": 2, "effect": 2, "effects4": 5, "atomic": 5, "approval": 42},
    "mariadb": {"read": 11, "effects4": 29},
}
"""At most so many statements an iteration, BEGIN, COMMIT and pings included.

With an approval two of them are for the record of the slices: who has the run now, and that one has left it.
"""


def wrong_counts(rows: Sequence[Row]) -> list[str]:
    """A sentence for each count of ours that is not as it should be."""
    found = []
    for kind in labels(rows, "db", what="count", contestant="anvil"):
        for shape in labels(rows, "shape", what="count", contestant="anvil", db=kind):
            mine = {"what": "count", "contestant": "anvil", "db": kind, "shape": shape}
            commits, statements = value(rows, "commits", **mine), value(rows, "statements", **mine)
            if commits is None or statements is None:
                continue
            if shape in COMMITS and commits != COMMITS[shape]:
                found.append(f"{kind}, {shape}: {number(commits)} commits an iteration, not {COMMITS[shape]}")
            most = STATEMENTS.get(kind, {}).get(shape)
            if most is not None and statements > most:
                found.append(f"{kind}, {shape}: {number(statements)} statements an iteration, at most {most}")
    return found
