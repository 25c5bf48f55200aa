"""``manage.py anvil_approvals``: the queue of cases, and deciding them as a named person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from django.core.management.base import CommandError, CommandParser
from django.db.models import QuerySet

from ... import approvals, exactjson, redaction, reviewers
from ...clock import get_clock
from ...errors import AnvilError, UnknownApprovalError
from ...models import Approval
from ...states import ApprovalStatus, Channel, Verdict
from ..terminal import TerminalCommand, as_text, duration, named_user, one_line, positive, table

HEADER = (
    "ID",
    "KIND",
    "AGENT",
    "TOOL",
    "REQUESTER",
    "AGE",
    "EXPIRES",
    "CLAIMED",
    "NEEDED",
    "ARGUMENTS",
)
ALL = "all"
DONE = {"approve": "approved", "reject": "rejected", "answer": "answered", "settle": "settled"}
WAITS, LEFT = "agreed to, waiting for more people", "not decided"


class Command(TerminalCommand):
    """Lists cases, oldest first, and decides them: by the rules of the admin, under a person's own name."""

    help = (
        "List the cases that wait for a person, and decide them as a named user. "
        "A shell makes no decision anonymous: the user must be active and allowed to decide the case."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        verbs = parser.add_subparsers(dest="verb", metavar="VERB")
        shown = verbs.add_parser("list", help="what waits (the default)")
        statuses = [*map(str, ApprovalStatus), ALL]
        shown.add_argument("--status", choices=statuses, help="only these (default: pending)")
        shown.add_argument("--run", metavar="RUN_ID", help="only those of this run")
        shown.add_argument("--limit", type=positive, help="most cases (default: 20)")
        shown.add_argument("--json", action="store_true", help="answer in JSON")
        approve = _verdict(verbs, "approve", "say yes: run the call, raise the limit")
        approve.add_argument("--reason", default="", help="why")
        approve.add_argument("--edit", metavar="JSON", help="other arguments for the same tool; for one case")
        reject = _verdict(verbs, "reject", "say no, and tell the agent why")
        reject.add_argument("--reason", required=True, help="why; the agent is told")
        answer = _verdict(verbs, "answer", "give the result in the tool's place")
        answer.add_argument("--answer", required=True, metavar="TEXT|JSON", help="told as the result")
        answer.add_argument("--reason", default="", help="why")
        settle = _verdict(verbs, "settle", "say what became of a call in doubt")
        verdicts = [str(v) for v in (Verdict.HAPPENED, Verdict.NOT_HAPPENED, Verdict.UNKNOWN)]
        settle.add_argument(
            "--verdict",
            required=True,
            choices=verdicts,
            help="it happened (give --result); it did not, so run it; nobody knows (give --reason)",
        )
        settle.add_argument("--result", metavar="TEXT|JSON", help="what the tool would have returned")
        settle.add_argument("--reason", default="", help="why")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["verb"] in DONE:
            self._decide(options["verb"], options)
        else:
            self._list(options)

    # Deciding.

    def _decide(self, verb: str, options: dict[str, Any]) -> None:
        user = named_user(options["user"])
        if not user.is_active:
            raise CommandError(f"The account of {one_line(options['user'])!r} is not active.")
        decide = _decision(verb, options)
        ids = list(dict.fromkeys(options["ids"]))
        outcomes: Counter[str] = Counter()
        for pk in ids:
            try:
                decided = decide(_case(pk), user=user, channel=str(Channel.COMMAND))
            except AnvilError as exc:
                # Somebody was faster, the time is over, or this person may not: the others go on.
                self.stderr.write(f"approval {pk}: {LEFT}: {one_line(exc.message, 2000)}", self.style.NOTICE)
                outcomes[LEFT] += 1
            else:
                outcomes[WAITS if decided.status == str(ApprovalStatus.PENDING) else DONE[verb]] += 1
        who = one_line(reviewers.name_of(user))
        counts = ", ".join(f"{outcomes[what]} {what}" for what in (DONE[verb], WAITS, LEFT) if outcomes[what])
        self.stdout.write(f"{len(ids)} {'case' if len(ids) == 1 else 'cases'} as {who}: {counts}.")
        if outcomes[LEFT]:
            raise CommandError(f"{outcomes[LEFT]} of {len(ids)} not decided; the reasons are above.")

    # The queue.

    def _list(self, options: dict[str, Any]) -> None:
        limit = options.get("limit") or 20
        rows = list(
            _asked(options.get("status") or str(ApprovalStatus.PENDING), options.get("run"))[: limit + 1]
        )
        shown = rows[:limit]
        if options.get("json"):
            self.write_json([_as_json(approval) for approval in shown])
        elif shown:
            self.stdout.write(table(HEADER, [_cells(approval) for approval in shown]))
        else:
            self.stdout.write("No cases.")
        if len(rows) > limit:
            self.tell(f"There are more than these {limit}; --limit shows more.")


def _verdict(verbs: Any, name: str, what: str) -> CommandParser:
    parser: CommandParser = verbs.add_parser(name, help=what)
    parser.add_argument("ids", nargs="+", type=positive, metavar="ID", help="ids of cases")
    parser.add_argument("--user", required=True, metavar="USERNAME", help="who decides")
    return parser


def _decision(verb: str, options: dict[str, Any]) -> Callable[..., Approval]:
    """The door for the verb with what was given; all of it is checked before the first case is touched."""
    given: dict[str, Any] = {"reason": options["reason"]}
    if verb == "approve" and options["edit"] is not None:
        if len(options["ids"]) > 1:
            raise CommandError("--edit is for one case: arguments fit one call.")
        given["edited_input"] = _arguments(options["edit"])
    elif verb == "answer":
        given["answer"] = _value("--answer", options["answer"])
    elif verb == "settle":
        given["verdict"] = options["verdict"]
        if options["result"] is not None:
            given["result"] = _value("--result", options["result"])
    door: Callable[..., Approval] = getattr(approvals, verb)
    return lambda approval, **who: door(approval, **given, **who)


def _arguments(text: str) -> dict[str, Any]:
    arguments = _json("--edit", text)
    if not isinstance(arguments, dict):
        raise CommandError("--edit must be a JSON object: all arguments of the tool.")
    return arguments


def _value(option: str, text: str) -> Any:
    """JSON where it looks like JSON, else the text as it is."""
    if text.lstrip()[:1] in {"{", "[", '"'}:
        return _json(option, text)
    return text


def _json(option: str, text: str) -> Any:
    try:
        return exactjson.loads(text)
    except (ValueError, AnvilError) as exc:
        raise CommandError(f"{option} is not JSON: {one_line(str(exc))}") from None


def _case(pk: int) -> Approval:
    found = Approval.objects.filter(pk=pk).select_related("run", "call").prefetch_related("decisions").first()
    if found is None:
        raise UnknownApprovalError(pk)
    return found


def _asked(status: str, run_id: str | None) -> QuerySet[Approval]:
    found = Approval.objects.order_by("id").select_related("run", "call").prefetch_related("decisions")
    found = found.defer("call__result", "run__container", "run__limits", "run__metadata")
    if status != ALL:
        found = found.filter(status=status)
    return found if run_id is None else found.filter(run__run_id=run_id)


def _cells(approval: Approval) -> tuple[str, ...]:
    now = get_clock().now()
    return (
        str(approval.pk),
        approval.kind,
        one_line(approval.run.agent, 40),
        one_line(approval.tool, 40),
        one_line(approval.run.user_name, 40) or "-",
        duration((approval.decided_at or now) - approval.requested_at),
        _expiry(approval),
        one_line(approval.claimed_name, 40) if reviewers.is_claimed(approval) else "-",
        f"{len(reviewers.agreed(approval))} of {approval.needed}",
        one_line(as_text(redaction.shown_json(approval.tool, approval.proposal or approval.call.input)), 100),
    )


def _expiry(approval: Approval) -> str:
    if approval.status != str(ApprovalStatus.PENDING):
        return approval.status
    if approval.expires_at is None:
        return "-"
    left = approval.expires_at - get_clock().now()
    return f"in {duration(left)}" if left.total_seconds() > 0 else "over"


def _shown(approval: Approval, text: str) -> Any:
    """Arguments as `approve --edit` takes them back: each mark stands for its value."""
    found = exactjson.loads(text) if text else None
    return redaction.shown_arguments(approval.tool, found, approval.call_id)


def _as_json(approval: Approval) -> dict[str, Any]:
    claimed = reviewers.is_claimed(approval)
    return {
        "id": approval.pk,
        "status": approval.status,
        "kind": approval.kind,
        "agent": approval.run.agent,
        "run_id": approval.run.run_id,
        "call_id": approval.call.call_id,
        "tool": approval.tool,
        "input": _shown(approval, approval.call.input),
        "proposal": _shown(approval, approval.proposal),
        "payload": redaction.shown_json(approval.tool, approval.payload),
        "requester": approval.run.user_name,
        "reviewers": reviewers.reviewers_of(approval),
        "needed": approval.needed,
        "agreed": len(reviewers.agreed(approval)),
        "claimed_by": approval.claimed_name if claimed else "",
        "claimed_at": approval.claimed_at.isoformat() if claimed and approval.claimed_at else None,
        "requested_at": approval.requested_at.isoformat(),
        "escalates_at": approval.escalate_at.isoformat() if approval.escalate_at else None,
        "expires_at": approval.expires_at.isoformat() if approval.expires_at else None,
        "decided_at": approval.decided_at.isoformat() if approval.decided_at else None,
        "decisions": [
            {
                "reviewer": row.reviewer,
                "verdict": row.verdict,
                "reason": row.reason,
                "channel": row.channel,
                "created_at": row.created_at.isoformat(),
            }
            for row in approval.decisions.all()
        ],
    }
