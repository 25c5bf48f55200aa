"""What the database says happened, and whether that is what was promised."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db.models import Sum

from anvil_django import exactjson
from anvil_django.history import text_of
from anvil_django.management.terminal import as_text
from anvil_django.models import Decision, Run, ToolCall
from anvil_django.states import Outcome, RunStatus
from example_project.shop.models import Refund, SentEmail
from example_project.shop.seed import REVIEWER

Check = tuple[bool, str]


@dataclass(frozen=True)
class Interruption:
    """The kill and the recovery, as they were seen from outside."""

    pid: int
    token: int
    next_pid: int | None
    next_token: int
    seconds: float


# The timeline.


def rows(run: Run) -> list[str]:
    """Messages, tool calls and decisions in the order in which they were stored."""
    happened = sorted([*_messages(run), *_calls(run), *_decisions(run)], key=lambda row: row[:2])
    return [f"{(at - run.created_at).total_seconds():8.2f} s  {line}" for at, _, line in happened]


Row = tuple[datetime, int, str]


def _messages(run: Run) -> Iterator[Row]:
    for message in run.messages.order_by("seq"):
        text = text_of({"role": message.role, "content": exactjson.loads(message.content)}).strip()
        yield message.created_at, 0, f"{message.role + ':':<11}{_short(text)}"


def _calls(run: Run) -> Iterator[Row]:
    for call in run.tool_calls.order_by("seq", "index"):
        at = call.finished_at or call.created_at
        result = as_text(exactjson.loads(call.result)) if call.result else ""
        yield at, 1, f"tool:      {call.name} ({call.outcome or call.status}) {_short(result)}"


def _decisions(run: Run) -> Iterator[Row]:
    for approval in run.approvals.order_by("id"):
        yield approval.requested_at, 2, f"approval:  asked about {approval.tool} {_short(approval.payload)}"
        for decision in approval.decisions.all():
            verdict = "approved" if decision.approved else "rejected"
            line = f"decision:  {verdict} by {decision.reviewer} in the {decision.channel}: {decision.reason}"
            yield decision.created_at, 3, line


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 110 else line[:109] + "…"


# The proof.


def checks(run: Run, killed: Interruption, report: dict[str, Any] | None) -> list[Check]:
    """Each promise the demo shows, and whether it was kept."""
    return [
        *_recovered(run, killed),
        *_once(run),
        _approved_by_reviewer(run),
        *_billed(run, report),
    ]


def _recovered(run: Run, killed: Interruption) -> Iterator[Check]:
    by = f"worker {killed.next_pid}" if killed.next_pid else "another worker"
    sentence = (
        f"Worker {killed.pid} was killed in mid-run (token {killed.token}); {by} had taken the run over "
        f"{killed.seconds:.2f} s later (token {killed.next_token})."
    )
    yield killed.next_token > killed.token and killed.next_pid != killed.pid, sentence
    yield run.status == str(RunStatus.DONE), f"The run is {run.status} ({run.stop_reason or run.error})."


def _once(run: Run) -> Iterator[Check]:
    done = run.tool_calls.filter(outcome=str(Outcome.RETURNED))
    for name, model, what in (("refund_order", Refund, "refund"), ("send_email", SentEmail, "e-mail")):
        keys = sorted(f"{run.run_id}:{call.call_id}" for call in done.filter(name=name))
        found = sorted(model.objects.values_list("idempotency_key", flat=True))
        yield (
            bool(keys) and found == keys,
            f"The {what} happened once: {len(keys)} call of {name}, {len(found)} row with its key.",
        )
    yield _refunded_as_asked(done)


def _refunded_as_asked(done: Any) -> Check:
    asked = sum((_amount(call) for call in done.filter(name="refund_order")), Decimal(0))
    paid = Refund.objects.aggregate(total=Sum("amount"))["total"] or Decimal(0)
    return asked == paid, f"Refunded in all: {paid:.2f}; asked for: {asked:.2f}."


def _amount(call: ToolCall) -> Decimal:
    return Decimal(str(exactjson.loads(call.input)["amount"]))


def _approved_by_reviewer(run: Run) -> Check:
    decision = Decision.objects.filter(approval__run=run).order_by("id").last()
    if decision is None:
        return False, "Nobody has decided anything."
    good = decision.approved and decision.channel == "admin" and decision.reviewer_key != ""
    good = good and decision.user is not None and decision.user.get_username() == REVIEWER.username
    return good, f"The refund was approved by {decision.reviewer}, in the {decision.channel}."


def _billed(run: Run, report: dict[str, Any] | None) -> Iterator[Check]:
    answers = run.messages.filter(role="assistant")
    cost = answers.aggregate(total=Sum("cost_usd"))["total"]
    tokens = run.input_tokens + run.cache_read_tokens + run.cache_write_tokens
    sentence = (
        f"It cost ${run.cost_usd or 0:.4f}: {run.iterations} answers, {tokens} tokens in, "
        f"{run.output_tokens} out, each counted once."
    )
    yield run.cost_usd is not None and run.cost_usd > 0 and run.cost_usd == cost, sentence
    if report is not None:
        wrong = [*report["violations"], *report["unexpected"]]
        charged = len(report["billed"])
        sentence = (
            f"The model was asked {report['requests']} times, once more than it was charged for ({charged}): "
            f"the call that the kill cut off. Rules of its API broken: {'; '.join(wrong) or 'none'}."
        )
        yield not wrong and charged == run.iterations == report["requests"] - 1, sentence
