"""Tokens are counted once whatever shape the report has, and an unknown price is never zero."""

from __future__ import annotations

import random
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from anvil_django.cost import Usage, add_cost, is_priced, price

REPORT = {
    "input_tokens": 100,
    "cache_creation_input_tokens": 1000,
    "cache_read_input_tokens": 2000,
    "output_tokens": 50,
}
#: Sonnet 5.5's list price, as a site would write it.
ROW = (2, 10, "0.1", Decimal("2.5"), 4)


# Usage


def test_usage_of_a_call_keeps_the_four_counts_apart() -> None:
    usage = Usage.from_api(REPORT)
    assert usage == Usage(100, 50, 2000, 1000)
    assert usage.total == 3150


@pytest.mark.parametrize(
    "report",
    [
        None,
        {},
        [],
        "usage",
        {"input_tokens": None, "output_tokens": "12", "cache_read_input_tokens": -1},
        {"input_tokens": True, "output_tokens": 1.5, "cache_creation": "x", "iterations": "x"},
        {"input_tokens": float("nan"), "output_tokens": float("inf"), "iterations": [None, 1]},
    ],
)
def test_usage_that_makes_no_sense_counts_as_zero(report: Any) -> None:
    assert Usage.from_api(report) == Usage()


def test_usage_of_a_compaction_stands_in_its_iterations_only() -> None:
    report = {
        "input_tokens": 0,
        "output_tokens": 0,
        "iterations": [
            {"type": "compaction", "input_tokens": 180_000, "output_tokens": 3_500},
            {"type": "message", "input_tokens": 23_000, "output_tokens": 1_000},
        ],
    }
    assert Usage.from_api(report) == Usage(203_000, 4_500)


def test_usage_is_not_counted_twice_when_iterations_repeat_the_top_level() -> None:
    assert Usage.from_api({**REPORT, "iterations": [{**REPORT, "type": "message"}]}) == Usage.from_api(REPORT)


def test_usage_of_iterations_that_report_less_than_the_top_level_is_the_top_level() -> None:
    report = {**REPORT, "iterations": [{"type": "message", "input_tokens": 1, "output_tokens": 1}]}
    assert Usage.from_api(report) == Usage.from_api(REPORT)


def test_cache_writes_known_only_by_their_split_are_counted() -> None:
    report = {"cache_creation": {"ephemeral_5m_input_tokens": 40, "ephemeral_1h_input_tokens": 60}}
    assert Usage.from_api(report).cache_write_tokens == 100


def test_usage_adds_up() -> None:
    assert Usage(1, 2, 3, 4) + Usage(10, 20, 30, 40) == Usage(11, 22, 33, 44)
    with pytest.raises(TypeError):
        Usage() + 1


def test_usage_survives_json() -> None:
    usage = Usage(1, 2, 3, 4)
    assert usage.to_dict() == {
        "input_tokens": 1,
        "output_tokens": 2,
        "cache_read_tokens": 3,
        "cache_write_tokens": 4,
    }
    assert Usage.from_dict(usage.to_dict()) == usage
    assert Usage.from_dict(None) == Usage.from_dict({"input_tokens": None, "other": 1}) == Usage()


# Prices


def test_a_call_is_priced_by_its_kinds_of_tokens() -> None:
    assert price("claude-sonnet-5-5", REPORT) == Decimal("0.0034")


def test_a_dated_snapshot_costs_what_its_model_costs() -> None:
    assert price("claude-sonnet-5-5-20261015", REPORT) == Decimal("0.0034")
    assert price("claude-sonnet-5-5-20261015", REPORT, prices={"claude-sonnet-5-5": ROW}) == Decimal("0.0034")


def test_one_hour_cache_writes_cost_more() -> None:
    split = {"ephemeral_5m_input_tokens": 400, "ephemeral_1h_input_tokens": 600}
    assert price("claude-sonnet-5-5", {**REPORT, "cache_creation": split}) == Decimal("0.0043")


def test_web_searches_and_fast_mode_are_in_the_price() -> None:
    searched = {**REPORT, "server_tool_use": {"web_search_requests": 3}}
    assert price("claude-sonnet-5-5", searched) == Decimal("0.0334")
    fast = price("claude-opus-5-5", {**REPORT, "speed": "fast"})
    assert fast == 2 * (price("claude-opus-5-5", REPORT) or 0)


def test_each_iteration_is_priced_as_the_model_that_ran_it() -> None:
    tokens = {"input_tokens": 1_000_000, "output_tokens": 0}
    report = {
        "input_tokens": 0,
        "output_tokens": 0,
        "server_tool_use": {"web_search_requests": 1},
        "iterations": [{**tokens, "type": "message"}, {**tokens, "model": "claude-opus-5-5"}],
    }
    assert price("claude-sonnet-5-5", report) == Decimal("2") + Decimal("4") + Decimal("0.01")


def test_a_model_id_of_bedrock_is_priced() -> None:
    assert (price("us.anthropic.claude-sonnet-5-5-v1:0", REPORT) or 0) >= Decimal("0.0034")


def test_the_price_of_the_day_of_the_call_is_used() -> None:
    assert price("claude-sonnet-5-5", REPORT, at=datetime(2026, 12, 1, tzinfo=UTC)) == Decimal("0.0034")


def test_the_price_of_an_unknown_model_is_unknown() -> None:
    assert price("claude-mythos-5-1", REPORT) is None
    assert price("", REPORT) is None


@pytest.mark.parametrize("prices", [None, {"claude-sonnet-5-5": ROW}], ids=["genai-prices", "own table"])
@pytest.mark.parametrize("report", [None, {}, [], "usage", {"output_tokens": 1}])
def test_the_price_of_a_report_that_makes_no_sense_is_unknown(report: Any, prices: Any) -> None:
    assert price("claude-sonnet-5-5", report, prices=prices) is None


def test_the_sites_own_table_wins_over_the_list_price() -> None:
    doubled = {"claude-sonnet-5-5": (4, 20, "0.2", 5, 8)}
    assert price("claude-sonnet-5-5", REPORT, prices=doubled) == Decimal("0.0068")
    assert price("claude-opus-5-5", REPORT, prices=doubled) == price("claude-opus-5-5", REPORT)


def test_the_sites_own_table_prices_a_model_nobody_else_knows() -> None:
    report = {
        **REPORT,
        "cache_creation": {"ephemeral_1h_input_tokens": 600},
        "server_tool_use": {"web_search_requests": 3},
    }
    assert price("claude-mythos-5-1", report, prices={"claude-mythos-5-1": ROW}) == Decimal("0.0343")


@pytest.mark.parametrize(
    "row", [(1, 2), "12345", (1, 2, 3, 4, "x"), (1, 2, 3, 4, -5), (1, 2, 3, 4, "NaN"), 7]
)
def test_a_row_of_the_table_that_makes_no_sense_is_an_unknown_price(row: Any) -> None:
    assert price("claude-sonnet-5-5", REPORT, prices={"claude-sonnet-5-5": row}) is None


def test_whether_a_model_is_priced() -> None:
    assert is_priced("claude-haiku-5-5")
    assert not is_priced("claude-mythos-5-1")
    assert is_priced("claude-mythos-5-1", {"claude-mythos-5-1": ROW})


def test_an_unknown_cost_stays_unknown() -> None:
    assert add_cost(Decimal("0.1"), Decimal("0.2")) == Decimal("0.3")
    assert add_cost(None, Decimal("0.2")) is None
    assert add_cost(Decimal("0.1"), None) is None


def test_importing_the_module_loads_no_prices() -> None:
    program = "import sys, anvil_django.cost; sys.exit('genai_prices' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_price_is_that_of_genai_prices_for_every_model() -> None:
    from genai_prices import calc_price, extract_usage
    from genai_prices.data_snapshot import get_snapshot

    chance, at = random.Random(7), datetime(2026, 11, 30, tzinfo=UTC)
    for model in get_snapshot().find_provider(None, "anthropic", None).models:
        for _ in range(5):
            written = chance.choice([0, chance.randrange(5000)])
            hour = chance.randrange(written + 1)
            report = {
                "input_tokens": chance.randrange(1_000_000),
                "output_tokens": chance.randrange(100_000),
                "cache_read_input_tokens": chance.choice([None, 0, chance.randrange(100_000)]),
                "cache_creation_input_tokens": written,
                "cache_creation": {
                    "ephemeral_1h_input_tokens": hour,
                    "ephemeral_5m_input_tokens": written - hour,
                },
                "server_tool_use": chance.choice([None, {"web_search_requests": chance.randrange(9)}]),
            }
            try:
                usage = extract_usage({"usage": report}, provider_id="anthropic").usage
                theirs = calc_price(
                    usage, model.id, provider_id="anthropic", genai_request_timestamp=at
                ).total_price
            except Exception:
                theirs = None
            assert price(model.id, report, at=at) == theirs, (model.id, report)


@pytest.mark.parametrize(
    "odd",
    [
        {"cache_creation_input_tokens": 2, "cache_creation": {"ephemeral_1h_input_tokens": 3}},
        {"cache_creation": {"ephemeral_5m_input_tokens": 3}},
    ],
    ids=["more than the whole", "no whole"],
)
def test_a_split_that_contradicts_its_whole_has_no_price(odd: Any) -> None:
    assert price("claude-sonnet-5-5", {"input_tokens": 1, "output_tokens": 1, **odd}) is None
