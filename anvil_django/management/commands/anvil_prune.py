"""``manage.py anvil_prune``: delete runs that ended long ago."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.apps import apps
from django.core.management.base import CommandError, CommandParser

from ...conf import get_settings
from ...retention import BATCH_SIZE, Pruned, Rule, count, kept_for_decisions, prune, prune_versions
from ...states import TERMINAL, RunStatus
from ..terminal import TerminalCommand, age, check_agent, positive

INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""


class Command(TerminalCommand):
    """Deletes in batches, each a short transaction; may be stopped and repeated at any time."""

    help = (
        "Delete runs that ended long ago, with their messages, tool calls and all else that belongs to them, "
        "and the agent versions that no run uses any more. Runs that have not ended stay, and so do runs "
        "that people were asked about: their approvals and decisions are the record of who decided what. "
        "The idempotency keys and run ids of deleted runs are free again."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--older-than",
            type=age,
            metavar="AGE",
            help="how long ago they ended, in days or hours: 90d, 12h (default: ANVIL['PRUNE_AFTER_DAYS'])",
        )
        parser.add_argument(
            "--status",
            type=_statuses,
            default=TERMINAL,
            metavar="STATUS,...",
            help="only these: done, failed, cancelled (default: all three)",
        )
        parser.add_argument("--agent", metavar="NAME", help="only runs of this agent")
        parser.add_argument(
            "--with-decisions",
            action="store_true",
            help="also runs with approvals. Who was asked, who decided, when and why is stored nowhere else: "
            "keep a copy first if anybody may ever ask",
        )
        parser.add_argument(
            "--batch-size",
            type=positive,
            default=BATCH_SIZE,
            metavar="N",
            help="runs that one transaction deletes (default: %(default)s)",
        )
        parser.add_argument("--dry-run", action="store_true", help="only count what would be deleted")
        parser.add_argument("--json", action="store_true", help="answer in JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["agent"]:
            check_agent(options["agent"])
        rule = Rule(
            older_than=_age(options["older_than"]),
            statuses=options["status"],
            agent=options["agent"],
            with_decisions=options["with_decisions"],
        )
        dry_run, total, versions = options["dry_run"], Pruned(), 0
        with self._interruptible():
            for pruned in (count if dry_run else prune)(rule, batch_size=options["batch_size"]):
                total += pruned
                self.progress(f"{total.runs} runs {'counted' if dry_run else 'deleted'}")
            if not dry_run:
                versions = prune_versions(rule.older_than)
            kept = kept_for_decisions(rule)
        self.progress("")
        if options["json"]:
            found = {"runs": total.runs, "rows": dict(sorted(total.rows.items())), "agent_versions": versions}
            self.write_json(
                {"dry_run": dry_run, **found, "kept_for_decisions": kept, "protected": total.protected}
            )
        else:
            self.stdout.write("\n".join(_lines(total, versions, kept, dry_run)))

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        try:
            yield
        except KeyboardInterrupt:
            self.progress("")
            self.stderr.write("Stopped. The batches that were done are committed; repeat it for the rest.")
            sys.exit(INTERRUPTED)


def _statuses(text: str) -> Collection[RunStatus]:
    names = {name.strip() for name in text.split(",")}
    if wrong := sorted(names - set(map(str, TERMINAL))):
        raise argparse.ArgumentTypeError(
            f"{wrong[0]!r} is none of the statuses of runs that have ended: {', '.join(sorted(TERMINAL))}"
        )
    return frozenset(map(RunStatus, names))


def _age(given: timedelta | None) -> timedelta:
    days = get_settings().prune_after_days
    if given is None and days is None:
        raise CommandError("Say how long ago they ended, such as --older-than 90d.")
    return given or timedelta(days=days or 0)


def _lines(total: Pruned, versions: int, kept: int, dry_run: bool) -> Iterator[str]:
    yield f"{'Would delete' if dry_run else 'Deleted'}: {total.runs} {'run' if total.runs == 1 else 'runs'}."
    for label, number in sorted(total.rows.items()):
        model = apps.get_model(label)
        if label != "anvil_django.Run":
            name = model._meta.verbose_name if number == 1 else model._meta.verbose_name_plural
            yield f"  {number} {name}"
    if versions:
        yield f"Deleted: {versions} agent {'version' if versions == 1 else 'versions'} without runs."
    if kept:
        yield f"Kept because people were asked about them: {kept}. See --with-decisions."
    if total.protected:
        yield f"Kept because other tables of this site hold them: {total.protected}."
