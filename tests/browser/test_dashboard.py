"""The dashboard in a real browser, under a strict Content-Security-Policy, with a busy month of runs."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db.models import F

from anvil_django.clock import get_clock
from anvil_django.models import Approval, Run, Slice, ToolCall
from tests import past

from .conftest import Shoot, until
from .test_approvals import PASSWORD, log_in

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

DASHBOARD = "/admin/anvil_django/run/dashboard/"
DAYS = 30
AGENTS = {"support": (0.05, 34), "invoices": (0.11, 14), "research": (0.42, 6), "moderation": (0.004, 22),
          "translations": (0.02, 9), "onboarding": (0.03, 4), "reports": (0.09, 3)}  # fmt: skip
"""Dollars a run, and runs a working day."""
TOOLS = {"lookup_order": 0.4, "search_catalogue": 2.5, "refund_order": 1.1, "send_mail": 0.8,
         "export_report": 48, "ocr_scan": 14, "web_archive": 95}  # fmt: skip
"""Seconds a call."""
BEGUN = timedelta(minutes=5)
"""After which a run was last saved."""
DRAWN = """
Array.from(document.querySelectorAll("canvas[data-chart]"), (canvas) => {
    const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    return [canvas.dataset.chart, new Set(new Uint32Array(pixels.buffer)).size];
})
"""


@pytest.fixture
def month() -> None:
    """What some agents did in a month: rows like those that they would have left."""
    dice, now = Random(7), get_clock().now()
    runs = []
    for agent, (price, busy) in AGENTS.items():
        template = past.run(agent, now - timedelta(days=DAYS + 5))
        for days in range(DAYS):
            weekday = (now - timedelta(days=days)).weekday()
            many = max(0, round(dice.gauss(busy * (0.35 if weekday > 4 else 1), busy / 7)))
            for number in range(many):
                age = timedelta(days=days, seconds=abs(dice.gauss(30_000, 14_000)) % 86_400)
                runs.append((now - age, _run(template, f"{agent}-{days}-{number}", price, age, dice)))
    runs.sort(key=lambda each: each[0])
    made = Run.objects.bulk_create([run for _created_at, run in runs])
    # When a row is inserted it says so itself.
    Run.objects.filter(updated_at__isnull=False).update(created_at=F("updated_at") - BEGUN)
    for created_at, run in runs:
        run.created_at = created_at
    _work(made, dice)


def _run(template: Run, run_id: str, price: float, age: timedelta, dice: Random) -> Run:
    ended = (
        [("done", "end_turn")] * 88
        + [("done", "max_cost")] * 3
        + [("failed", "")] * 5
        + [("cancelled", "")] * 4
    )
    open_ones = [("suspended", ""), ("paused", ""), ("running", ""), ("queued", "")]
    status, reason = dice.choice(open_ones if age < timedelta(hours=9) and dice.random() < 0.4 else ended)
    tokens = round(price * 90_000 * dice.lognormvariate(0, 0.4))
    return Run(
        run_id=run_id,
        agent=template.agent,
        version=template.version,
        request_digest="0" * 64,
        status=status,
        stop_reason=reason,
        error_code="overloaded" if status == "failed" else "",
        cost_usd=Decimal(price * dice.lognormvariate(0, 0.5)).quantize(Decimal("1e-6")),
        input_tokens=tokens,
        output_tokens=tokens // 4,
        cache_read_tokens=tokens * 3,
        cache_write_tokens=tokens // 2,
        updated_at=get_clock().now() - age + BEGUN,
        lease_until=get_clock().now() + timedelta(minutes=1 if dice.random() < 0.9 else -4),
        lease_owner="web-1:4242" if status == "running" else "",
    )


def _work(runs: list[Run], dice: Random) -> None:
    calls, cases, slices = [], [], []
    for run in runs:
        at = run.created_at + timedelta(seconds=3)
        recovered = dice.random() < 0.012
        for token in (1, 2) if recovered else (1,):
            since = at + timedelta(minutes=6 * (token - 1))
            waited = dice.lognormvariate(0, 1)
            claimed = since + timedelta(seconds=waited)
            slices.append(Slice(run=run, token=token, owner="web-1:4242", waited_since=since,
                                claimed_at=claimed, recovered=token == 2))  # fmt: skip
        for seq, name in enumerate(dice.sample(sorted(TOOLS), 2), 1):
            took = timedelta(seconds=TOOLS[name] * dice.lognormvariate(0, 0.6))
            calls.append(ToolCall(run=run, seq=seq, index=0, call_id=f"c{seq}", name=name, input="{}",
                                  status="done", outcome="failed" if dice.random() < 0.03 else "returned",
                                  effect="external", result="1", started_token=1, created_at=at,
                                  started_at=at, finished_at=at + took))  # fmt: skip
            at += took
    ToolCall.objects.bulk_create(calls, batch_size=60)
    Slice.objects.bulk_create(slices, batch_size=100)
    for call in calls:
        if call.name in ("refund_order", "send_mail") and (
            call.run.status == "suspended" or dice.random() < 0.1
        ):
            waits = call.run.status == "suspended"
            waited = timedelta(minutes=dice.lognormvariate(3, 1))
            cases.append(Approval(run=call.run, call=call, agent=call.run.agent, tool=call.name,
                                  kind="in_doubt" if dice.random() < 0.06 else "tool",
                                  status="pending" if waits else "approved",
                                  open_key=str(call.pk) if waits else None, digest="0" * 64,
                                  requested_at=call.created_at,
                                  decided_at=None if waits else call.created_at + waited))  # fmt: skip
    Approval.objects.bulk_create(cases, batch_size=60)


@pytest.fixture
def opened(page: Any, month: None) -> Any:
    get_user_model().objects.create_superuser("vera", password=PASSWORD)
    log_in(page, "vera")
    page.goto(f"{DASHBOARD}?period=30d")
    page.get_by_role("heading", name="Runs by status").wait_for()
    return page


def test_charts_are_drawn_and_their_numbers_stand_beneath(opened: Any, shoot: Shoot) -> None:
    drawn = dict(opened.evaluate(DRAWN))
    assert list(drawn) == ["runs", "success", "tokens", "costs", "agents", "approvals", "tools"]
    # A blank canvas has one color.
    assert min(drawn.values()) > 20
    shoot("dashboard")
    card = opened.get_by_role("region", name="Slowest tools").first
    card.get_by_text("Numbers").click()
    assert card.get_by_role("rowheader").first.inner_text() == "web_archive"
    _walk(opened.locator("canvas[data-chart=success]"))


def _walk(canvas: Any) -> None:
    """Points are reached by keys, and said."""
    canvas.focus()
    canvas.press("ArrowRight")
    canvas.press("ArrowRight")
    said = canvas.locator("xpath=following-sibling::p")
    assert "Success rate: " in said.inner_text()
    weekday, *_date = said.inner_text().split(", ")
    assert weekday.endswith("day")
    canvas.press("Escape")
    assert said.inner_text() == ""


def test_charts_follow_the_theme_and_fit_a_narrow_screen(opened: Any, shoot: Shoot) -> None:
    def darkest() -> int:
        card = "getComputedStyle(document.querySelector('.anvil-card'))"
        return int(opened.evaluate(f"{card}.backgroundColor.match(/\\d+/g)[0]"))

    def color() -> str:
        return str(
            opened.evaluate("Chart.getChart(document.querySelector('canvas')).options.plugins.numbers.color")
        )

    light = color()
    assert darkest() > 200
    opened.locator(".theme-toggle:visible").click()
    assert darkest() < 60
    until(
        opened,
        f"Chart.getChart(document.querySelector('canvas')).options.plugins.numbers.color !== {light!r}",
    )
    shoot("dashboard-dark")
    opened.set_viewport_size({"width": 400, "height": 900})
    until(opened, "document.documentElement.scrollWidth <= window.innerWidth")
    shoot("dashboard-narrow")


def test_without_scripts_the_tables_are_open(browser: Any, site: str) -> None:
    past.run("support", get_clock().now())
    get_user_model().objects.create_superuser("vera", password=PASSWORD)
    context = browser.new_context(base_url=site, java_script_enabled=False, locale="en-US")
    page = context.new_page()
    log_in(page, "vera")
    page.goto(DASHBOARD)
    assert page.get_by_role("table", name="Runs by status").is_visible()
    assert not page.locator("canvas").first.is_visible()
    context.close()
