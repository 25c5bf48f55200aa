"""``manage.py anvil_runs``: list runs, newest first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.core.management.base import CommandError, CommandParser

from ...clock import get_clock
from ...models import Approval, Run
from ...states import ApprovalStatus, RunStatus
from ..terminal import (
    Moment,
    TerminalCommand,
    check_agent,
    fitted,
    moment,
    money,
    named_user,
    one_line,
    positive,
    resolved,
    seconds,
    table,
    tokens_of,
)

HEADER = ("RUN", "AGENT", "STATUS", "USER", "ITERATIONS", "TOKENS", "COST", "UPDATED (UTC)", "WHY")
WATCH_SECONDS = 2.0


class Command(TerminalCommand):
    """Lists runs and where each stands, once or again and again."""

    help = "List runs, newest first, and where each stands."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--status",
            action="append",
            default=[],
            choices=[str(s) for s in RunStatus],
            help="only these; may be repeated",
        )
        parser.add_argument("--agent", metavar="NAME", help="only runs of this agent")
        parser.add_argument("--user", metavar="USERNAME", help="only runs that this person started")
        parser.add_argument("--stop-reason", metavar="REASON", help="only runs that ended for this reason")
        when = "an age such as 2d or 12h, or a date or time such as 2026-12-01 or 2026-12-01T15:00"
        parser.add_argument("--since", type=moment, metavar="WHEN", help=f"only runs created since: {when}")
        parser.add_argument("--until", type=moment, metavar="WHEN", help="only runs created before")
        parser.add_argument("--limit", type=positive, default=20, help="most runs (default: %(default)s)")
        parser.add_argument(
            "--json", action="store_true", help="answer in JSON, one document on each line for each run"
        )
        parser.add_argument(
            "--watch",
            type=seconds,
            nargs="?",
            const=WATCH_SECONDS,
            metavar="SECONDS",
            help="look again and again, until Ctrl-C; with --json, runs are repeated when they have changed "
            f"(default: every {WATCH_SECONDS:g} seconds)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["agent"]:
            check_agent(options["agent"])
        self._user = None if options["user"] is None else named_user(options["user"]).pk
        _check_order(options["since"], options["until"])
        self._told: dict[int, dict[str, Any]] = {}
        if options["watch"] is None:
            self._look(options)
            return
        try:
            while True:
                self._look(options)
                get_clock().sleep(options["watch"])
        except KeyboardInterrupt:
            self.stdout.write("")

    def _look(self, options: dict[str, Any]) -> None:
        runs = Run.objects.matching(
            user=self._user,
            agent=options["agent"],
            stop_reason=options["stop_reason"],
            statuses=options["status"],
            since=resolved(options["since"]),
            until=resolved(options["until"]),
        )
        shown = list(runs.order_by("-id")[: options["limit"] + 1])
        more, shown = len(shown) > options["limit"], shown[: options["limit"]]
        if options["json"]:
            self._write_changed(shown)
        elif options["watch"] is None:
            self.stdout.write(_as_table(shown))
        else:
            self._redraw(_as_table(shown), more)
        if more and options["watch"] is None:
            self.tell(f"There are more than these {options['limit']}; --limit shows more.")

    def _write_changed(self, shown: Iterable[Run]) -> None:
        for run in shown:
            if self._told.get(run.pk) != (now := _as_json(run)):
                self._told[run.pk] = now
                self.write_json_line(now)

    def _redraw(self, text: str, more: bool) -> None:
        stamp = f"{get_clock().now():%Y-%m-%d %H:%M:%S} UTC{'; there are more' if more else ''}; Ctrl-C ends"
        if self.stdout.isatty():
            # From the top of the cleared screen; what does not fit would scroll it.
            self.stdout.write("\x1b[H\x1b[2J" + fitted(f"{stamp}\n\n{text}"), ending="")
            self.stdout.flush()
        else:
            self.stdout.write(f"{stamp}\n{text}\n")


def _check_order(since: Moment | None, until: Moment | None) -> None:
    begin, end = resolved(since), resolved(until)
    if begin is not None and end is not None and begin >= end:
        raise CommandError("--since is not before --until, so no run could be between them.")


def _as_table(shown: list[Run]) -> str:
    if not shown:
        return "No runs."
    asked = _asked_about(shown)
    return table(HEADER, [_cells(run, asked.get(run.pk, [])) for run in shown])


def _asked_about(shown: list[Run]) -> dict[int, list[str]]:
    """The tools whose calls wait for a decision, by run."""
    pending = Approval.objects.filter(run__in=shown, status=str(ApprovalStatus.PENDING)).order_by("id")
    asked: dict[int, list[str]] = {}
    for run_pk, tool in pending.values_list("run_id", "tool"):
        asked.setdefault(run_pk, []).append(tool)
    return asked


def _why(run: Run, asked: list[str]) -> str:
    if asked and run.status == str(RunStatus.SUSPENDED):
        return f"Waits for a decision about {', '.join(asked)}."
    return run.why or run.stop_reason


def _cells(run: Run, asked: list[str]) -> tuple[str, ...]:
    updated = run.updated_at or run.created_at
    return (
        run.run_id,
        one_line(run.agent),
        run.status,
        one_line(run.user_name, 30) or "-",
        str(run.iterations),
        str(tokens_of(run)),
        money(run.cost_usd),
        f"{updated:%Y-%m-%d %H:%M:%S}",
        one_line(_why(run, asked), 100),
    )


def _as_json(run: Run) -> dict[str, Any]:
    return {
        "run_id": run.run_id,
        "agent": run.agent,
        "status": run.status,
        "stop_reason": run.stop_reason,
        "error_code": run.error_code,
        "error": run.error,
        "iterations": run.iterations,
        "input_tokens": run.input_tokens,
        "output_tokens": run.output_tokens,
        "cache_read_tokens": run.cache_read_tokens,
        "cache_write_tokens": run.cache_write_tokens,
        "cost_usd": None if run.cost_usd is None else f"{run.cost_usd:f}",
        "user": run.user_name,
        "created_at": run.created_at.isoformat(),
        "updated_at": run.updated_at.isoformat() if run.updated_at else None,
        "finished_at": run.finished_at.isoformat() if run.finished_at else None,
        "next_attempt_at": run.next_attempt_at.isoformat() if run.next_attempt_at else None,
    }
