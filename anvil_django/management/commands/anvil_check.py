"""``manage.py anvil_check``: look at everything that keeps runs from getting on."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandParser

from ...examination import Finding, Level, examine
from ..terminal import TerminalCommand, add_patience, one_line, table

HEADER = ("LEVEL", "ABOUT", "FINDING")
WIDTH = 400


class Command(TerminalCommand):
    """Asks the database about workers, queue, people and stored runs; changes nothing."""

    help = (
        "Look at everything that keeps runs from getting on: migrations, workers, schedules, the queue, "
        "cases, side effects in doubt, and whether the agents of this code fit the runs that are stored. "
        "Exit code 0: no problem (notes may be there); 1: at least one problem; 2: bad options. "
        "For people, and after a deploy. For probes and alarms that ask every minute there is anvil_health; "
        "mistakes in the settings are found by check --deploy --database default."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        add_patience(parser, "a run may be due, a case past its time, and a schedule late, for so long")

    def handle(self, *args: Any, **options: Any) -> None:
        found = examine(
            queue_name=options["cluster_name"], max_age=options["max_age"], max_wait=options["max_wait"]
        )
        problems = sum(1 for finding in found if finding.level is Level.PROBLEM)
        if options["json"]:
            self.write_json({"well": not problems, "findings": [asdict(finding) for finding in found]})
        else:
            self.stdout.write(table(HEADER, [self._cells(finding) for finding in found]))
            self.stdout.write(_summary(problems))
        if problems:
            sys.exit(1)

    def _cells(self, finding: Finding) -> tuple[str, str, str]:
        says = one_line(finding.says, WIDTH)
        text = f"{says} {one_line(finding.fix, WIDTH)}" if finding.fix else says
        return str(finding.level), finding.about, text


def _summary(problems: int) -> str:
    return "No problem." if not problems else f"{problems} {'problem' if problems == 1 else 'problems'}."
