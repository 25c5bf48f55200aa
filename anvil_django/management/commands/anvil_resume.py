"""``manage.py anvil_resume``: put interrupted runs back on their way."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from django.core.management.base import CommandError, CommandParser

from ... import runs
from ...clock import get_clock
from ...models import Run
from ...states import RunStatus
from ..terminal import TerminalCommand, check_agent, one_line, open_questions, positive, standing

QUEUED, WOULD_QUEUE, LEFT, ERROR = "queued", "would_queue", "nothing", "error"
_DID = {QUEUED: "queued again", WOULD_QUEUE: "would be queued again", ERROR: "not recovered"}
_WAS = {QUEUED: "was queued again", WOULD_QUEUE: "would be queued again"}
_RESUMED = {str(RunStatus.PAUSED), str(RunStatus.FAILED), str(RunStatus.QUEUED)}


@dataclass(frozen=True)
class Outcome:
    """What became of one run."""

    run_id: str
    agent: str
    action: str
    why: str
    """What was found, or why nothing was done."""
    error: str = ""


class Command(TerminalCommand):
    """Recovers interrupted runs; may be run twice, and at the same time as itself and the workers' sweep."""

    help = (
        "Put interrupted runs back on their way: those whose worker died and those the queue lost. "
        "Safe to repeat; runs that wait for people are left alone."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        one_or_many = parser.add_mutually_exclusive_group()
        one_or_many.add_argument(
            "--run", metavar="ID", help="only this run, which may also be paused or failed"
        )
        one_or_many.add_argument("--agent", metavar="NAME", help="only runs of this agent")
        parser.add_argument("--failed", action="store_true", help="failed runs too")
        parser.add_argument("--limit", type=positive, metavar="N", help="most runs")
        parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
        parser.add_argument("--json", action="store_true", help="answer in JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["run"]:
            found = _one(options["run"], options["dry_run"])
        else:
            if options["agent"]:
                check_agent(options["agent"])
            found = _sweep(options["agent"], options["failed"], options["limit"], options["dry_run"])
        outcomes = []
        for outcome in found:
            outcomes.append(outcome)
            if outcome.error or not options["run"]:
                self.tell(_line(outcome))
        broken = sum(1 for outcome in outcomes if outcome.error)
        if options["json"]:
            self.write_json([asdict(outcome) for outcome in outcomes])
        elif not options["run"]:
            self.stdout.write(_summary(outcomes))
        elif not broken:
            self.stdout.write("\n".join(map(_answer, outcomes)))
        if broken:
            raise CommandError(
                f"{broken} of {len(outcomes)} runs could not be recovered; the reasons are above. "
                "Mend them and run this command again."
            )


def _sweep(agent: str | None, failed: bool, limit: int | None, dry_run: bool) -> Iterator[Outcome]:
    for found in runs.recover(agent=agent, failed=failed, limit=limit, dry_run=dry_run):
        yield _outcome(found, dry_run)


def _outcome(found: runs.Recovery, dry_run: bool) -> Outcome:
    action = ERROR if found.error else WOULD_QUEUE if dry_run else QUEUED
    return Outcome(found.run_id, found.agent, action, found.why, found.error)


def _one(run_id: str, dry_run: bool) -> Iterator[Outcome]:
    """One run: recovered if it is interrupted, resumed if a person may resume it, else left alone."""
    runs.get(run_id)
    recovered = [_outcome(found, dry_run) for found in runs.recover(run_id=run_id, dry_run=dry_run)]
    if recovered:
        yield from recovered
        return
    run = runs.get(run_id)
    if run.status not in _RESUMED or _is_backing_off(run):
        yield Outcome(run_id, run.agent, LEFT, _why_left(run))
        return
    if not dry_run:
        runs.resume(run_id)
    why = "the queue was told before" if run.status == str(RunStatus.QUEUED) else f"it was {run.status}"
    yield Outcome(run_id, run.agent, WOULD_QUEUE if dry_run else QUEUED, why)


def _is_backing_off(run: Run) -> bool:
    waits_until = run.next_attempt_at
    return run.status == str(RunStatus.QUEUED) and waits_until is not None and waits_until > get_clock().now()


def _why_left(run: Run) -> str:
    if run.status == str(RunStatus.SUSPENDED):
        return "\n  ".join([f"{standing(run)}; nothing was done. It waits for:", *open_questions(run)])
    if _is_backing_off(run):
        return f"{standing(run)}; it is tried again at {run.next_attempt_at:%Y-%m-%d %H:%M:%S} UTC."
    return f"{standing(run)}; nothing was done."


def _answer(outcome: Outcome) -> str:
    if outcome.action == LEFT:
        return outcome.why
    return f"Run {outcome.run_id} {_WAS[outcome.action]}: {outcome.why}."


def _line(outcome: Outcome) -> str:
    if outcome.action == LEFT:
        return f"{outcome.run_id} ({one_line(outcome.agent)}): nothing to do"
    line = f"{outcome.run_id} ({one_line(outcome.agent)}): {outcome.why}; {_DID[outcome.action]}"
    return f"{line}: {one_line(outcome.error, 400)}" if outcome.error else line


def _summary(outcomes: list[Outcome]) -> str:
    if not outcomes:
        return "No interrupted runs."
    counts = {action: sum(1 for o in outcomes if o.action == action) for action in _DID}
    parts = [f"{count} {_DID[action]}" for action, count in counts.items() if count]
    return f"{len(outcomes)} interrupted {'run' if len(outcomes) == 1 else 'runs'}: {', '.join(parts)}."
