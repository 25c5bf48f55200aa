"""The effect log as the auditor reads it; ``facts.py`` says what a line means."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ..facts import Finding


@dataclass(frozen=True, slots=True)
class Line:
    """One line."""

    event: str
    effect: str
    kind: str
    key: str
    run: str
    call: str
    pid: int
    at: float


def read_log(path: Path) -> tuple[list[Line], list[Finding]]:
    """The lines in the order in which they were written, and a finding for each that cannot be read."""
    lines: list[Line] = []
    findings: list[Finding] = []
    if not path.exists():
        return lines, findings
    for number, text in enumerate(path.read_text().splitlines(), 1):
        try:
            data = json.loads(text)
            lines.append(Line(**{name: data[name] for name in Line.__dataclass_fields__}))
        except (ValueError, KeyError, TypeError) as exc:
            sentence = f"line {number} of the effect log cannot be read: {exc!r}"
            findings.append(Finding("log unreadable", "", sentence))
    return lines, findings
