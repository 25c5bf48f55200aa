"""Usage and money: how many tokens a call used, and what they cost.

Two rules. Tokens the API reports are counted once, whatever shape the report has. A price that is not
known is ``None``, never zero: a run that stops at a cost limit must not believe that a model is free.

Prices come from the package genai-prices (offline, bundled data) or from a table of the site.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

#: A row of a price table, USD per million tokens: input, output, cache read, 5-minute write, 1-hour write.
PriceRow = Sequence[Decimal | int | float | str]

#: The vendor's list price of one web search (10 USD per 1000), which a table of token prices cannot express.
WEB_SEARCH_USD = Decimal("0.01")

#: Most tokens that one count of a report is believed; a sum of such counts fits every database's column.
MOST_TOKENS = 10**9

#: Most USD that a run is believed to have cost: the columns hold no more.
MOST_USD = Decimal(10**10)

_MILLION = Decimal(1_000_000)
# A dated snapshot of a model ("-20261015", on Google Cloud "@20261015") costs what the model costs.
_SNAPSHOT_DATE = re.compile(r"[-@]\d{8}$")


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens used by one call, or by many.

    The four counts do not overlap: ``input_tokens`` is what was neither read from nor written to the cache.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0

    def __add__(self, other: object) -> Usage:
        if not isinstance(other, Usage):
            return NotImplemented
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
        )

    @property
    def total(self) -> int:
        """All tokens, cached or not, in and out."""
        return self.input_tokens + self.output_tokens + self.cache_read_tokens + self.cache_write_tokens

    @classmethod
    def from_api(cls, usage: Mapping[str, Any] | None) -> Usage:
        """Read the ``usage`` object of an answer.

        Args:
            usage: The object as the API sent it. Anything missing, null or odd counts as zero, since a
                report that cannot be read must not fail an answer that can.

        Returns:
            The counts. When the call had several iterations (a compaction, a fallback model, an advisor),
            those of all of them: the top level then leaves some out, and is all zero for a compaction.
        """
        total = cls()
        for _, part in _parts("", usage):
            total += _flat(part)
        return total

    def to_dict(self) -> dict[str, int]:
        """The four counts as JSON."""
        return {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cache_read_tokens": self.cache_read_tokens,
            "cache_write_tokens": self.cache_write_tokens,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any] | None) -> Usage:
        """The reverse of :meth:`to_dict`; a missing or odd count is zero."""
        data = data if isinstance(data, Mapping) else {}
        return cls(
            _count(data.get("input_tokens")),
            _count(data.get("output_tokens")),
            _count(data.get("cache_read_tokens")),
            _count(data.get("cache_write_tokens")),
        )


def price(
    model: str,
    usage: Mapping[str, Any] | None,
    *,
    prices: Mapping[str, PriceRow] | None = None,
    at: datetime | None = None,
) -> Decimal | None:
    """What one call of the Messages API cost, in USD.

    Args:
        model: The model that answered. Iterations that name another model are priced as that one.
        usage: The ``usage`` object of the answer, as stored.
        prices: The site's own table, ``{model: (input, output, cache read, 5-minute cache write,
            1-hour cache write)}`` in USD per million tokens. A model in it is not looked up elsewhere.
        at: When the call was made, so that a later recount uses the price of that day; now if left out.

    Returns:
        The price, or None where it is not known: the model is new to genai-prices, or the usage makes no
        sense. Never raises: an answer that was paid for is worth more than its price.
    """
    if not isinstance(usage, Mapping):
        return None
    try:
        cost = Decimal(0)
        for index, (name, part) in enumerate(_parts(model, usage)):
            # Server tools are reported once for the whole call.
            searches = usage.get("server_tool_use") if index == 0 else None
            part = {**part, "server_tool_use": searches}
            if _is_odd(part):
                return None
            row = _row(name, prices)
            cost += _by_table(row, part) if row is not None else _by_genai_prices(name, part, usage, at)
    except Exception:  # noqa: BLE001 (a stored report or a table of the site may hold anything)
        return None
    return cost if 0 <= cost < MOST_USD else None


def is_priced(model: str, prices: Mapping[str, PriceRow] | None = None) -> bool:
    """Whether :func:`price` knows the model, in the site's table or in genai-prices."""
    return price(model, {"input_tokens": 1, "output_tokens": 1}, prices=prices) is not None


def add_cost(total: Decimal | None, new: Decimal | None) -> Decimal | None:
    """The sum; None (unknown) if either is None, so that an unknown total stays unknown, or beyond belief."""
    if total is None or new is None or total + new >= MOST_USD:
        return None
    return total + new


def _parts(model: str, usage: Mapping[str, Any] | None) -> list[tuple[str, Mapping[str, Any]]]:
    """The (model, counts) pairs that make up a report, each token once."""
    if not isinstance(usage, Mapping):
        return []
    iterations = usage.get("iterations")
    if isinstance(iterations, list):
        parts = [(str(it.get("model") or model), it) for it in iterations if isinstance(it, Mapping)]
        # A list that holds less than the top level is not the whole story; then the top level is.
        if parts and sum(_flat(part).total for _, part in parts) >= _flat(usage).total:
            return parts
    return [(model, usage)]


def _flat(usage: Mapping[str, Any]) -> Usage:
    return Usage(
        _count(usage.get("input_tokens")),
        _count(usage.get("output_tokens")),
        _count(usage.get("cache_read_input_tokens")),
        sum(_cache_writes(usage)),
    )


def _cache_writes(usage: Mapping[str, Any]) -> tuple[int, int]:
    """Tokens written to the 5-minute and to the 1-hour cache.

    The end of a stream updates the total only, so the split may cover less than the total; the rest is
    taken for the 5-minute cache, the API's default.
    """
    split = usage.get("cache_creation")
    split = split if isinstance(split, Mapping) else {}
    hour = _count(split.get("ephemeral_1h_input_tokens"))
    short = _count(split.get("ephemeral_5m_input_tokens"))
    return max(short, _count(usage.get("cache_creation_input_tokens")) - hour), hour


def _count(value: Any) -> int:
    if isinstance(value, bool):
        return 0
    if isinstance(value, float):
        value = int(value) if value.is_integer() else 0
    return value if isinstance(value, int) and 0 <= value <= MOST_TOKENS else 0


_COUNTS = (
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "ephemeral_5m_input_tokens",
    "ephemeral_1h_input_tokens",
    "web_search_requests",
)


def _is_odd(usage: Mapping[str, Any]) -> bool:
    """Whether a count was taken for zero that is something else: what it cost is not known then."""
    inner = (usage.get("cache_creation"), usage.get("server_tool_use"))
    parts = [usage, *(part for part in inner if isinstance(part, Mapping))]
    given = [part[name] for part in parts for name in _COUNTS if part.get(name) is not None]
    return any(isinstance(value, bool) or _count(value) != value for value in given)


def _row(model: str, prices: Mapping[str, PriceRow] | None) -> PriceRow | None:
    if not prices:
        return None
    return prices.get(model) or prices.get(_SNAPSHOT_DATE.sub("", model))


def _by_table(row: PriceRow, usage: Mapping[str, Any]) -> Decimal:
    if isinstance(row, str):
        raise TypeError("a row of prices is a sequence of five numbers")
    # Through str, so that 0.1 is a tenth and not its binary neighbor.
    inp, out, read, write_5m, write_1h = (Decimal(str(value)) for value in row)
    if not all(value.is_finite() and value >= 0 for value in (inp, out, read, write_5m, write_1h)):
        raise ValueError("a price is a finite number that is not negative")
    if "input_tokens" not in usage or "output_tokens" not in usage:
        raise ValueError("this is no report of usage")
    counts, (short, hour) = _flat(usage), _cache_writes(usage)
    tokens = (
        counts.input_tokens * inp
        + counts.output_tokens * out
        + counts.cache_read_tokens * read
        + short * write_5m
        + hour * write_1h
    )
    tools = usage.get("server_tool_use")
    searches = _count(tools.get("web_search_requests")) if isinstance(tools, Mapping) else 0
    return tokens / _MILLION + searches * WEB_SEARCH_USD


def _by_genai_prices(
    model: str, part: Mapping[str, Any], usage: Mapping[str, Any], at: datetime | None
) -> Decimal:
    # Imported here: loading its data takes a quarter of a second.
    from genai_prices import calc_price, extract_usage

    # Model ids of Bedrock ("us.anthropic.claude-...") are listed under its own provider.
    provider = "aws" if "anthropic." in model else "anthropic"
    # Fast mode has its own prices, and the extraction does not look at it.
    speed = usage.get("speed")
    if not speed and _is_usual(part) and (row := _usual_row(model, provider, at)) is not None:
        return _by_table(row, part)
    return calc_price(
        extract_usage({"usage": part}, provider_id="anthropic").usage,
        model,
        provider_id=provider,
        genai_request_timestamp=at,
        price_context={"speed": str(speed)} if speed else None,
    ).total_price


_USUAL_PRICES = ("input_mtok", "output_mtok", "cache_read_mtok", "cache_write_mtok", "cache_write_1h_mtok")
_SEARCHES = "web_searches_kcount"


def _usual_row(model: str, provider: str, at: datetime | None) -> PriceRow | None:
    """The model's prices of that day as a row, where a row can hold them; no price for a size of context."""
    # The package's own arithmetic takes a third of the time of an iteration.
    from genai_prices.data_snapshot import get_snapshot

    _, info = get_snapshot().find_provider_model(model, None, provider, None)
    prices = {k: v for k, v in vars(info.get_prices(at or datetime.now(UTC))).items() if v is not None}
    if prices.pop(_SEARCHES, None) != WEB_SEARCH_USD * 1000 or prices.keys() != set(_USUAL_PRICES):
        return None
    row = [prices[name] for name in _USUAL_PRICES]
    return row if all(isinstance(value, Decimal) for value in row) else None


def _is_usual(usage: Mapping[str, Any]) -> bool:
    """Whether the report has the shape that the API gives it today."""
    counts = [usage.get(name) for name in ("input_tokens", "output_tokens")]
    counts += [usage.get(name) or 0 for name in ("cache_read_input_tokens", "cache_creation_input_tokens")]
    # A split of what was written that is more than the whole makes no sense.
    split, written = usage.get("cache_creation"), counts[-1]
    parts = [_count(part) for part in split.values()] if isinstance(split, Mapping) else []
    return all(type(count) is int and count >= 0 for count in counts) and sum(parts) <= _count(written)
