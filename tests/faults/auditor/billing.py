"""Usage and money: what the server billed for the stored answers is what the runs have counted."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from decimal import Decimal
from typing import Any

from ..facts import Billed, Finding
from .rows import PLACES, Message, Run, Tables

Prices = Mapping[str, Sequence[Decimal]]
"""USD per million tokens by model: input, output, cache read, 5-minute write, 1-hour write."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The counts that a run keeps."""

    input: int = 0
    output: int = 0
    read: int = 0
    written: int = 0

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def exceeds(self, other: Tokens) -> bool:
        return any(a > b for a, b in zip(astuple(self), astuple(other), strict=True))


def check_billing(tables: Tables, billed: Sequence[Billed], prices: Prices) -> Iterator[Finding]:
    """Every stored answer was billed, and counted once with the usage it was billed with."""
    by_answer: dict[tuple[str, str], list[Tokens]] = defaultdict(list)
    for item in billed:
        by_answer[item.conversation, item.response_id].append(tokens(item.usage))
    for run in tables.runs:
        answers = [row for row in tables.messages_of[run.id] if row.is_answer]
        found = [*_totals(run, answers), *_costs(run, answers, prices)]
        if billed:
            found += _against_bill(run, answers, by_answer)
        yield from (Finding(kind, run.run_id, sentence) for kind, sentence in found)


def lost_answers(tables: Tables, billed: Sequence[Billed]) -> int:
    """How many answers were billed and not stored: asked for again after a fault, or dropped by the rules."""
    return len(billed) - sum(row.is_answer for row in tables.messages)


def tokens(usage: Mapping[str, Any]) -> Tokens:
    """The counts of one answer; with ``iterations`` they are the sum of those, unless that is less."""
    parts = usage.get("iterations") or []
    whole = _counts(usage)
    summed = sum((_counts(part) for part in parts), Tokens())
    return summed if parts and sum(astuple(summed)) >= sum(astuple(whole)) else whole


def _counts(usage: Mapping[str, Any]) -> Tokens:
    names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    return Tokens(*(usage.get(name) or 0 for name in names))


def _stored(row: Message) -> Tokens:
    return tokens(json.loads(row.usage)) if row.usage else Tokens()


def _totals(run: Run, answers: list[Message]) -> Iterator[tuple[str, str]]:
    total = Tokens(run.input_tokens, run.output_tokens, run.cache_read_tokens, run.cache_write_tokens)
    summed = sum((_stored(row) for row in answers), Tokens())
    # Refused, cut and empty answers were billed and leave no row.
    if summed.exceeds(total) or (summed != total and run.iterations == len(answers)):
        yield "usage differs", f"the run counts {total}, its answers have {summed}"
    ids = [row.message_id for row in answers]
    for message_id in {one for one in ids if ids.count(one) > 1}:
        yield "answer stored twice", f"{message_id} is stored {ids.count(message_id)} times"


def _against_bill(
    run: Run, answers: list[Message], by_answer: Mapping[tuple[str, str], list[Tokens]]
) -> Iterator[tuple[str, str]]:
    for row in answers:
        bills = by_answer.get((run.run_id, row.message_id), [])
        if not bills:
            yield "answer not billed", f"message {row.seq} ({row.message_id}) is none that the server gave"
        elif _stored(row) not in bills:
            yield "usage differs", f"message {row.seq} has {_stored(row)}, the server billed {bills[-1]}"


def _costs(run: Run, answers: list[Message], prices: Prices) -> Iterator[tuple[str, str]]:
    costs = [row.cost_usd for row in answers]
    known = sum((cost for cost in costs if cost is not None), Decimal(0))
    complete = run.iterations == len(answers) and None not in costs
    if complete and run.cost_usd is not None and abs(known - run.cost_usd) > PLACES * max(1, len(answers)):
        yield "cost differs", f"the run costs {run.cost_usd}, its answers {known}"
    for row in answers:
        price = _price(row, prices)
        if price is not None and (row.cost_usd is None or abs(row.cost_usd - price) > PLACES):
            yield "cost differs", f"message {row.seq} costs {row.cost_usd}, by the prices {price}"


def _price(row: Message, prices: Prices) -> Decimal | None:
    """What a stored answer costs by the table, if it has its model; one iteration, cache by the default."""
    usage = json.loads(row.usage) if row.usage else {}
    if row.model not in prices or not usage or usage.get("iterations"):
        return None
    one = tokens(usage)
    hour = (usage.get("cache_creation") or {}).get("ephemeral_1h_input_tokens") or 0
    counts = (one.input, one.output, one.read, one.written - hour, hour)
    total = sum((count * price for count, price in zip(counts, prices[row.model], strict=True)), Decimal(0))
    return (total / 1_000_000).quantize(PLACES)
