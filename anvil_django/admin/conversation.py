"""A stretch of a run's conversation, composed from its rows: a bounded number of queries and characters."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.utils.formats import number_format
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from .. import exactjson, history, redaction
from ..cost import Usage
from ..models import Approval, Message, Run, ToolCall
from ..states import Outcome
from .cases import decisions
from .rendering import TEXT_LIMIT, block, duration, pretty, visible

MOST_MESSAGES = 40
"""Where no stretch is asked for."""
MOST_CALLS = 200
"""With those of a stretch in proportion to its messages."""
MOST_CHARACTERS = 400_000
"""Of all texts on one page together."""


@dataclass(frozen=True)
class Part:
    """A piece of a message: a text, or a tool call."""

    label: str
    body: SafeString | None = None
    call: CallPart | None = None
    is_folded: bool = False
    """Whether only its label is shown until somebody asks for it."""


@dataclass(frozen=True)
class CallPart:
    """A tool call and what became of it."""

    row: ToolCall
    name: SafeString
    call_id: SafeString
    arguments: SafeString
    result: SafeString | None
    approvals: list[ApprovalPart]
    time: str
    """How long the tool ran; "" where that is not known."""


@dataclass(frozen=True)
class ApprovalPart:
    """A question about a call, and the decisions."""

    row: Approval
    decisions: SafeString | None


@dataclass
class Turn:
    """One message with its parts; the page of a run adds what only the whole run tells."""

    number: int
    role: str
    created_at: datetime
    stop_reason: SafeString
    cost_usd: Decimal | None
    parts: list[Part]
    tokens: str = ""
    """What it used, in words."""
    iteration: int = 0
    """Which answer of the run it is; 0: none, or not known."""
    time: str = ""
    """How long the model was asked for it."""
    notices: list[Any] = field(default_factory=list)
    """What went wrong before it."""


@dataclass
class Conversation:
    """Turns of a run."""

    turns: list[Turn] = field(default_factory=list)
    is_cut: bool = False
    """Earlier messages, or some of the calls, are not shown."""
    most: int = MOST_MESSAGES
    notices: list[Any] = field(default_factory=list)
    """What went wrong after the last turn."""


class _Budget:
    """How many characters may still be shown."""

    def __init__(self, characters: int) -> None:
        self._left = characters

    def take(self) -> int:
        limit = max(0, min(TEXT_LIMIT, self._left))
        self._left -= limit
        return limit

    def give_back(self, unused: int) -> None:
        self._left += max(0, unused)

    def text(self, text: str) -> SafeString:
        limit = self.take()
        self.give_back(limit - len(text))
        return block(text, limit)

    def value(self, value: Any) -> SafeString:
        if isinstance(value, str):
            return self.text(value)
        limit = self.take()
        shown = pretty(value, limit)
        self.give_back(limit - len(shown))
        return shown


def read(run: Run, *, since: int = 0, to: int | None = None, most: int = MOST_MESSAGES) -> Conversation:
    """The last messages of a stretch with their tool calls and decisions, in four queries.

    Args:
        since: Number of the first message.
        to: Number of the last one; None: the end of the run.
        most: How many messages.
    """
    using = run._state.db
    stretch = Message.objects.using(using).filter(run_id=run.pk, seq__gte=since)
    if to is not None:
        stretch = stretch.filter(seq__lte=to)
    rows = list(stretch.order_by("-seq")[: most + 1])
    is_cut = len(rows) > most
    rows = rows[:most][::-1]
    if not rows:
        return Conversation(most=most)
    of_these = ToolCall.objects.using(using).filter(
        run_id=run.pk, seq__gte=rows[0].seq, seq__lte=rows[-1].seq
    )
    most_calls = max(MOST_CALLS, MOST_CALLS * most // MOST_MESSAGES)
    calls = list(of_these.order_by("-seq", "-index")[: most_calls + 1])
    is_cut = is_cut or len(calls) > most_calls
    calls = calls[:most_calls]
    questions: dict[int, list[Approval]] = defaultdict(list)
    about = Approval.objects.using(using).filter(run_id=run.pk, call__in=[call.pk for call in calls])
    for question in about.order_by("id").prefetch_related("decisions"):
        questions[question.call_id].append(question)
    by_id = {(call.seq, call.call_id): call for call in calls}
    budget = _Budget(MOST_CHARACTERS)
    turns = [
        _turn(row, by_id, questions, budget) for row in reversed(rows)
    ]  # The newest get their share first.
    return Conversation(turns[::-1], is_cut, most)


def _turn(
    row: Message,
    calls: dict[tuple[int, str], ToolCall],
    questions: dict[int, list[Approval]],
    budget: _Budget,
) -> Turn:
    content = redaction.shown_content(exactjson.loads(row.content))
    message = {"role": row.role, "content": content}
    parts: list[Part] = []
    for piece in history.blocks_of(message):
        call = calls.get((row.seq, str(piece.get("id")))) if piece.get("type") == "tool_use" else None
        if call is not None:
            parts.append(Part(_("Tool call"), call=_call(call, questions[call.pk], budget)))
        else:
            parts.append(_part(piece, budget))
    return Turn(
        number=row.seq,
        role=_ROLES.get(row.role, lambda: row.role)(),
        created_at=row.created_at,
        stop_reason=visible(row.stop_reason),
        cost_usd=row.cost_usd,
        parts=parts,
        tokens=tokens(Usage.from_api(exactjson.loads(row.usage))) if row.usage else "",
    )


def tokens(usage: Usage) -> str:
    """Tokens in and out, in words."""
    read_in = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    counts = {
        "in": number_format(read_in, force_grouping=True),
        "cached": number_format(usage.cache_read_tokens, force_grouping=True),
        "out": number_format(usage.output_tokens, force_grouping=True),
    }
    if usage.cache_read_tokens:
        return _("%(in)s tokens in (%(cached)s from the cache), %(out)s out") % counts
    return _("%(in)s tokens in, %(out)s out") % counts


_ROLES = {
    "user": lambda: _("User"),
    "assistant": lambda: _("Agent"),
    "system": lambda: _("System"),
}


def _part(piece: dict[str, Any], budget: _Budget) -> Part:
    match piece:
        case {"type": "text", "text": str(text)}:
            return Part("", budget.text(text))
        case {"type": "thinking", "thinking": str(text)}:
            return Part(_("Thinking"), budget.text(text) if text else None, is_folded=bool(text))
        case {"type": "redacted_thinking"}:
            return Part(_("Thinking, not readable"))
    return Part(visible(str(piece.get("type"))), budget.value(piece))


def _call(row: ToolCall, questions: list[Approval], budget: _Budget) -> CallPart:
    return CallPart(
        row=row,
        name=visible(row.name),
        call_id=visible(row.call_id),
        arguments=budget.value(redaction.shown_json(row.name, row.input)),
        result=None if row.result is None else budget.value(redaction.shown_json(row.name, row.result)),
        approvals=[
            ApprovalPart(question, decisions(list(question.decisions.all()), row.name))
            for question in questions
        ],
        time=_time(row),
    )


def _time(row: ToolCall) -> str:
    if row.started_at is None or row.finished_at is None or row.outcome not in _RAN:
        return ""
    return duration(max(row.finished_at - row.started_at, timedelta()))


_RAN = (str(Outcome.RETURNED), str(Outcome.FAILED))
