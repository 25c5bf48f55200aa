"""``manage.py anvil_runs``: list runs, newest first."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from ...models import Approval, Run
from ...states import ApprovalStatus, RunStatus
from ..terminal import TerminalCommand, check_agent, money, one_line, positive, table

HEADER = ("RUN", "AGENT", "STATUS", "ITERATIONS", "COST", "UPDATED (UTC)", "WHY")


class Command(TerminalCommand):
    """Lists runs and where each stands."""

    help = "List runs, newest first, and where each stands."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--status",
            action="append",
            choices=[str(s) for s in RunStatus],
            help="only these; may be repeated",
        )
        parser.add_argument("--agent", help="only runs of this agent")
        parser.add_argument("--limit", type=positive, default=20, help="most runs (default: %(default)s)")
        parser.add_argument("--json", action="store_true", help="answer in JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        runs = Run.objects.order_by("-id")
        if options["agent"]:
            check_agent(options["agent"])
            runs = runs.filter(agent=options["agent"])
        if options["status"]:
            runs = runs.filter(status__in=options["status"])
        shown = list(runs[: options["limit"] + 1])
        more, shown = len(shown) > options["limit"], shown[: options["limit"]]
        if options["json"]:
            self.write_json([_as_json(run) for run in shown])
        elif shown:
            asked = _asked_about(shown)
            self.stdout.write(table(HEADER, [_cells(run, asked.get(run.pk, [])) for run in shown]))
        else:
            self.stdout.write("No runs.")
        if more:
            self.tell(f"There are more than these {options['limit']}; --limit shows more.")


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
        str(run.iterations),
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
        "cost_usd": None if run.cost_usd is None else f"{run.cost_usd:f}",
        "user": run.user_name,
        "created_at": run.created_at.isoformat(),
        "updated_at": run.updated_at.isoformat() if run.updated_at else None,
        "finished_at": run.finished_at.isoformat() if run.finished_at else None,
        "next_attempt_at": run.next_attempt_at.isoformat() if run.next_attempt_at else None,
    }
