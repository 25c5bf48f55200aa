"""Each figure of the dashboard, of runs made by hand."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from html import unescape
from zoneinfo import ZoneInfo

import pytest
from django.test import Client
from django.utils import timezone

from anvil_django import durations, statistics
from anvil_django.periods import between, last_days, last_hours
from anvil_django.statistics import Scope
from tests import past
from tests.docs.blocks import find, names

from .dashboards import DASHBOARD, DAY, HOUR, NOW, downloaded, rows, tiles

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("noon")]


@pytest.fixture
def week() -> Scope:
    return Scope(last_days(7, NOW, UTC))


# Runs.


def test_runs_are_counted_by_day_and_by_where_they_stand_now(vera: Client) -> None:
    past.run("clerk", NOW - 6 * DAY)
    past.run("clerk", NOW - 6 * DAY, "failed")
    past.run("clerk", NOW - DAY, "queued")
    past.run("other", NOW - DAY, "cancelled")
    past.run("clerk", NOW - 8 * DAY)
    heading, *lines = downloaded(vera, "runs")
    assert heading == ["Day", "Done", "Failed", "Cancelled", "Waiting for a decision", "Paused", "Running",
                       "Queued", "All"]  # fmt: skip
    assert [line[0] for line in lines] == [f"2026-03-{day:02}" for day in range(4, 11)]
    assert lines[0][1:] == ["1", "1", "0", "0", "0", "0", "0", "2"]
    assert lines[5][1:] == ["0", "0", "1", "0", "0", "0", "1", "2"]
    assert tiles(vera.get(DASHBOARD))["Runs"] == "4 3 ended"


def test_a_run_succeeds_if_its_agent_comes_to_an_end(vera: Client) -> None:
    for reason in ("end_turn", "stop_sequence", "max_iterations", "refusal"):
        past.run("clerk", NOW, stop_reason=reason)
    past.run("clerk", NOW, "failed")
    for status in ("cancelled", "paused", "running"):
        past.run("clerk", NOW, status)
    assert rows(vera, "success")[-1] == ["2026-03-10", "5", "2", "0.4"]
    assert tiles(vera.get(DASHBOARD))["Success rate"] == "40 % 2 of 5"
    assert [line[3] for line in rows(vera, "success")[:-1]] == [""] * 6


def test_costs_and_tokens_are_added_up_by_agent_and_by_day(vera: Client) -> None:
    used = {"input_tokens": 10, "output_tokens": 20, "cache_read_tokens": 300, "cache_write_tokens": 40}
    past.run("clerk", NOW, cost_usd=Decimal("1.25"), **used)
    past.run("clerk", NOW - DAY, cost_usd=Decimal("0.50"), **used)
    past.run("other", NOW, cost_usd=None, input_tokens=7)
    past.run("other", NOW, cost_usd=Decimal("3"))
    heading, *lines = downloaded(vera, "costs")
    assert heading == ["Day", "other (USD)", "clerk (USD)", "All (USD)", "Runs of unknown price"]
    assert [list(map(float, line[1:])) for line in lines[-2:]] == [[0, 0.5, 0.5, 0], [3, 1.25, 4.25, 1]]
    assert rows(vera, "tokens")[-2:] == [
        ["2026-03-09", "10", "20", "300", "40", "370"],
        ["2026-03-10", "17", "20", "300", "40", "377"],
    ]
    agents = rows(vera, "agents")
    assert [line[:5] for line in agents] == [["other", "2", "2", "0", "1.0"], ["clerk", "2", "2", "0", "1.0"]]
    assert [list(map(float, line[5:7])) for line in agents] == [[3, 3], [1.75, 0.875]]
    assert [line[7:] for line in agents] == [["7", "0", "0", "0"], ["20", "40", "600", "80"]]
    page = vera.get(DASHBOARD)
    assert tiles(page)["Cost"] == "$4.75 $1.58 a run"
    assert page.text.count("The price of 1 run is not known; it is left out.") == 2


def test_agents_that_a_chart_cannot_tell_apart_are_added_up(vera: Client) -> None:
    for number in range(1, 8):
        past.run(f"agent-{number}", NOW, cost_usd=number)
    heading, *lines = downloaded(vera, "costs")
    named = [f"agent-{number} (USD)" for number in (7, 6, 5, 4, 3)]
    assert heading[1:-1] == [*named, "Others (USD)", "All (USD)"]
    assert list(map(float, lines[-1][1:-1])) == [7, 6, 5, 4, 3, 3, 28]
    assert len(rows(vera, "agents")) == 7


# How long things took.


def test_a_median_is_the_middle_and_nine_of_ten_took_no_longer() -> None:
    spread = durations.Spread.of(range(1, 11))
    assert (spread.count, spread.median, spread.p90, spread.longest) == (10, 5.5, 9, 10)
    assert durations.Spread.of([]) == durations.Spread(0, None, None, None)
    assert durations.Spread.of([-3.0]).longest == 0


def test_people_are_timed_from_the_question_to_the_decision(vera: Client) -> None:
    of = past.run("clerk", NOW - 2 * DAY, "suspended")
    for seconds in (60, 120, 600):
        past.case(of, "wire", NOW - DAY, seconds)
    past.case(of, "wire", NOW - DAY, 5, status="rejected")
    past.case(of, "wire", NOW - DAY, 9_999, status="expired")
    past.case(of, "wire", NOW - DAY, 9_999, status="void")
    past.case(of, "wire", NOW - HOUR, None)
    past.case(of, "max_cost", NOW - DAY, 30, kind="limit")
    assert rows(vera, "approvals") == [
        ["wire", "permission to run a tool", "7", "4", "1", "1", "90.0", "600.0", "600.0"],
        ["max_cost", "limit reached", "1", "1", "0", "0", "30.0", "30.0", "30.0"],
    ]
    found = tiles(vera.get(DASHBOARD))
    assert found["Wait for a decision"] == "1"
    assert found["Waits for people"] == "1 min 0 s median; 90 % within 10 min 0 s"


def test_side_effects_are_timed_from_their_start_and_failures_counted(vera: Client) -> None:
    of = past.run("clerk", NOW - DAY)
    for seconds in (1, 2, 9):
        past.call(of, "wire", NOW - DAY, 100 + seconds, begun=100)
    past.call(of, "wire", NOW - DAY, 105, begun=100, outcome="failed")
    for outcome in ("refused", "rejected", "answered", "unknown"):
        past.call(of, "wire", NOW - DAY, 999, outcome=outcome)
    past.call(of, "max_cost", NOW - DAY, 999, effect="limit")
    assert rows(vera, "tools") == [["wire", "4", "1", "3.5", "9.0", "9.0"]]


def test_reading_tools_are_timed_from_what_came_before_them(vera: Client) -> None:
    of, began = past.run("clerk", NOW - DAY), NOW - DAY
    past.call(of, "first", began, 4)
    past.call(of, "second", began, 10)
    # Stored together: an equal share of the time.
    past.call(of, "pair", began, 20, seq=3)
    past.call(of, "pair", began, 20, seq=3)
    # The run waited for another worker in between.
    past.stretch(of, 1, began - HOUR, 1)
    past.stretch(of, 2, began, 100)
    past.call(of, "later", began, 103, seq=5)
    found = {line[0]: float(line[3]) for line in rows(vera, "tools")}
    assert found == {"first": 4, "second": 6, "pair": 10, "later": 3}


def test_waits_for_a_worker_are_timed(vera: Client) -> None:
    of = past.run("clerk", NOW - DAY)
    for token, waited in enumerate((1, 2, 30), 1):
        past.stretch(of, token, NOW - DAY, waited)
    past.stretch(past.run("clerk", NOW - 9 * DAY), 1, NOW - 9 * DAY, 999)
    page = vera.get(DASHBOARD).context["page"]
    waits = [tile for tile in page.totals if tile.label == "Waits for a worker"]
    assert [(tile.value, tile.about) for tile in waits] == [
        ("2.0 s", "median; 90 % within 30.0\N{NO-BREAK SPACE}s")
    ]


def test_medians_are_of_the_latest_runs_and_the_page_says_so(
    vera: Client, week: Scope, monkeypatch: pytest.MonkeyPatch
) -> None:
    for days in (3, 2, 1):
        of = past.run("clerk", NOW - days * DAY)
        past.call(of, "wire", NOW, days, begun=0)
        past.case(of, "wire", NOW, days)
        past.stretch(of, 1, NOW, days)
    said = "Only the latest runs of the period were looked at"
    assert said not in vera.get(DASHBOARD).text
    monkeypatch.setattr(durations, "SAMPLE", 2)
    assert durations.read_tools(week).total == durations.Spread.of([1, 2])
    assert durations.read_questions(week).total == durations.Spread.of([1, 2])
    assert durations.read_queue(week).total == durations.Spread.of([1, 2])
    text = vera.get(DASHBOARD).text
    assert text.count(f"{said}, as far as 2 rows reach.") == 2
    assert "Waits for a worker: of the latest 2." in text


# What went wrong.


def test_recoveries_and_doubts_are_counted(vera: Client) -> None:
    of = past.run("clerk", NOW - DAY)
    past.stretch(of, 1, NOW - DAY, 1, ended_as="lost")
    past.stretch(of, 2, NOW - DAY, 1, recovered=True)
    past.stretch(of, 3, NOW - DAY, 1, recovered=True)
    past.stretch(past.run("other", NOW), 1, NOW, 1, recovered=True)
    past.stretch(past.run("other", NOW - 9 * DAY), 1, NOW, 1, recovered=True)
    assert rows(vera, "recoveries") == [["clerk", "2", "1"], ["other", "1", "1"]]
    for seconds, status in ((9, "approved"), (9, "rejected"), (9, "expired"), (9, "void"), (None, "pending")):
        past.case(of, "wire", NOW, seconds, kind="in_doubt", status=status)
    past.case(of, "wire", NOW, 9)
    past.case(past.run("clerk", NOW - 9 * DAY), "wire", NOW, 9, kind="in_doubt")
    assert rows(vera, "doubts") == [["wire", "5", "1", "1", "2", "1"]]
    found = tiles(vera.get(DASHBOARD))
    assert (found["Recoveries"], found["Calls in doubt"]) == ("3", "1")


def test_what_waits_now_does_not_depend_on_the_period(vera: Client) -> None:
    live, dead = NOW + HOUR, NOW - HOUR
    long_ago = NOW - 50 * DAY
    past.run("clerk", long_ago, "running", lease_owner="a", lease_until=live)
    past.run("clerk", long_ago, "running", lease_owner="b", lease_until=dead)
    past.run("clerk", long_ago, "paused")
    oldest = past.run("clerk", long_ago, "queued", updated_at=NOW - 3 * HOUR)
    past.run("other", long_ago, "queued", updated_at=NOW - 2 * HOUR)
    past.run("clerk", long_ago, "queued", next_attempt_at=NOW + HOUR)
    past.case(past.run("other", long_ago, "suspended"), "wire", NOW - 5 * HOUR, None)
    page = vera.get(DASHBOARD)
    assert "No run in this period." in page.text
    shown = page.context["page"].now
    assert {str(tile.label): (f"{tile.value} {tile.about}".strip(), tile.since) for tile in shown} == {
        "Wait for a decision": ("1", NOW - 5 * HOUR),
        "Calls in doubt": ("0", None),
        "Wait for a worker": ("2 of 3 queued", NOW - 3 * HOUR),
        "Interrupted": ("1", dead),
        "Running": ("1", None),
        "Paused": ("1", None),
    }
    assert f"/admin/anvil_django/run/{oldest.pk}/change/" in page.text
    assert statistics.read_now("other").due_since == NOW - 2 * HOUR
    assert statistics.read_now("clerk").waiting == 0


# Periods and agents.


@pytest.mark.parametrize(
    ("query", "first", "count"),
    [
        ("period=24h", "2026-03-09T13:00:00+00:00", 24),
        ("", "2026-03-04", 7),
        ("period=30d", "2026-02-09", 30),
        ("period=90d", "2025-12-11", 90),
        ("since=2026-03-01&until=2026-03-03", "2026-03-01", 3),
        ("since=2026-03-01&until=2026-03-02", "2026-03-01T00:00:00+00:00", 48),
        ("since=2026-03-08", "2026-03-08", 3),
        ("since=2026-03-08&until=2027-01-01", "2026-03-08", 3),
    ],
)
def test_a_period_is_divided_into_hours_or_days(vera: Client, query: str, first: str, count: int) -> None:
    lines = rows(vera, "runs", query)
    assert (lines[0][0], len(lines)) == (first, count)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("until=2026-03-03", "From: Say from when, too."),
        ("since=2026-03-03&until=2026-03-01", "To: It ends before it begins."),
        ("since=2025-01-01&until=2026-03-01", "At most 366 days at once."),
        ("since=yesterday", "Enter a valid date."),
        ("period=1y", "Period: Select a valid choice. 1y is not one of the available choices."),
    ],
)
def test_a_period_that_is_none_is_refused(vera: Client, query: str, said: str) -> None:
    page = vera.get(f"{DASHBOARD}?{query}")
    assert page.status_code == 200
    assert said in page.text
    assert page.context["page"] is None
    assert vera.get(f"{DASHBOARD}runs.csv?{query}").status_code == 404


def test_days_are_those_of_the_current_time_zone(vera: Client) -> None:
    past.run("clerk", datetime(2026, 3, 9, 22, 30, tzinfo=UTC))
    past.run("clerk", datetime(2026, 3, 3, 23, 30, tzinfo=UTC))
    with timezone.override("Europe/Berlin"):
        lines = rows(vera, "runs")
        page = vera.get(DASHBOARD)
    assert [line[-1] for line in lines] == ["1", "0", "0", "0", "0", "1", "0"]
    assert "times in Europe/Berlin" in page.text


def test_a_day_of_23_hours_has_23_and_hours_may_begin_at_half_past() -> None:
    berlin, kolkata = ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Kolkata")
    day = datetime(2026, 3, 29).date()  # noqa: DTZ001
    spring = between(day, day, berlin)
    assert (len(spring.begins), spring.end - spring.begins[-1].astimezone(UTC)) == (23, HOUR)
    assert spring.place(datetime(2026, 3, 29, 1, 5, tzinfo=UTC)) == 2
    hours = last_hours(3, NOW, kolkata)
    assert [f"{at.astimezone(UTC):%H:%M}" for at in hours.begins] == ["10:30", "11:30", "12:30"]
    assert hours.place(NOW) == 2
    assert hours.place(NOW + HOUR) is None


def test_the_database_puts_runs_where_python_does(week: Scope) -> None:
    moments = [week.period.begin, week.period.begin - DAY / 10**9, week.period.end, week.period.begins[3]]
    moments += [begin - timedelta(microseconds=1) for begin in week.period.begins[1:]]
    for moment in moments:
        past.run("clerk", moment)
    placed = [place for place in map(week.period.place, moments) if place is not None]
    counted = [sums.count for sums in statistics.read_runs(week).times]
    assert counted == [placed.count(place) for place in range(7)]


def test_an_agent_can_be_chosen(vera: Client) -> None:
    for agent in ("clerk", "other"):
        of = past.run(agent, NOW - DAY, cost_usd=1)
        past.call(of, f"{agent}-tool", NOW, 1, begun=0)
        past.case(of, f"{agent}-tool", NOW, 1)
        past.case(of, f"{agent}-doubt", NOW, 1, kind="in_doubt")
        past.stretch(of, 1, NOW, 1, recovered=True)
    for table in ("agents", "tools", "approvals", "doubts", "recoveries"):
        for line in rows(vera, table, "agent=other"):
            assert line[0].startswith("other")
        assert len(rows(vera, table)) >= 2
    assert tiles(vera.get(f"{DASHBOARD}?agent=other"))["Runs"] == "1 1 ended"
    nobody = vera.get(f"{DASHBOARD}?agent=nobody")
    assert "No run in this period." in nobody.text
    assert '<option value="nobody" selected>' in nobody.text


def test_links_keep_the_period_and_the_agent(vera: Client) -> None:
    past.run("a&b", NOW)
    text = unescape(vera.get(f"{DASHBOARD}?period=24h&agent=a%26b").text)
    assert "runs.csv?period=24h&agent=a%26b" in text
    assert 'href="?period=30d&agent=a%26b"' in text
    text = unescape(vera.get(f"{DASHBOARD}?since=2026-03-01&until=2026-03-10").text)
    assert "runs.csv?since=2026-03-01&until=2026-03-10" in text


def test_the_figures_are_there_for_code() -> None:
    for days, status in ((1, "done"), (2, "failed"), (9, "done")):
        of = past.run("clerk", timezone.now() - days * DAY, status, cost_usd=Decimal("0.5"))
        past.call(of, f"tool-{days}", NOW, days)
    past.run("other", timezone.now())
    report = names(find("docs/dashboard.md", "operations/reports.py"))["last_week"]
    assert report("clerk") == "1 of 2 succeeded for $1.00. Slowest: tool-2, tool-1."
