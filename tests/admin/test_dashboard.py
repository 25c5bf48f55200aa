"""The dashboard: who may see it, what stands on the page, and its tables as files."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest
from asgiref.sync import async_to_sync
from django.db import connection
from django.test import AsyncClient, Client
from django.test.utils import CaptureQueriesContext

from anvil_django.models import Run
from tests import past

from .dashboards import DASHBOARD, DAY, NOW, downloaded, rows
from .teller import HOSTILE, logged_in, person

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("noon")]


# Who.


@pytest.mark.parametrize("permissions", [[], ["view_approval", "decide_approval"], ["add_run"]])
def test_it_is_for_those_who_may_view_all_runs(permissions: list[str]) -> None:
    client = logged_in(person("olga", *permissions))
    Run.objects.filter(pk=past.run("clerk", NOW).pk).update(user=client.session["_auth_user_id"])
    assert client.get(DASHBOARD).status_code == 403
    assert client.get(f"{DASHBOARD}runs.csv").status_code == 403


def test_who_is_not_of_the_staff_has_to_log_in() -> None:
    client = logged_in(person("carl", "view_run", is_staff=False))
    for url in (DASHBOARD, f"{DASHBOARD}runs.csv"):
        assert "/admin/login/" in client.get(url).headers["Location"]


def test_those_who_may_find_it_from_the_list_of_runs_and_the_page_of_the_app(vera: Client) -> None:
    link = f'href="{DASHBOARD}"'
    assert link in vera.get("/admin/anvil_django/run/").text
    assert link in vera.get("/admin/anvil_django/").text
    rita = logged_in(person("rita", "decide_approval", "view_approval"))
    assert link not in rita.get("/admin/anvil_django/").text


# The page.


def test_however_many_runs_it_takes_the_same_statements(vera: Client) -> None:
    def statements() -> int:
        with CaptureQueriesContext(connection) as queries:
            assert vera.get(DASHBOARD).status_code == 200
        return len(queries)

    def busy(agent: str) -> None:
        of = past.run(agent, NOW - DAY)
        past.call(of, "wire", NOW, 1)
        past.case(of, "wire", NOW, None)
        past.case(of, "wire", NOW, 5, kind="in_doubt")
        past.stretch(of, 1, NOW, 1, recovered=True)
        past.run(agent, NOW, "queued")

    busy("clerk")
    few = statements()
    for number in range(5):
        busy(f"agent-{number}")
    assert statements() == few
    # Session, person and permissions, the agents to choose from; then what is read.
    assert few <= 20


def test_every_chart_stands_above_the_table_of_its_numbers(vera: Client) -> None:
    of = past.run("clerk", NOW, cost_usd=1, input_tokens=5)
    past.call(of, "wire", NOW, 1)
    past.case(of, "wire", NOW, 1)
    page = vera.get(DASHBOARD)
    shown = json.loads(
        page.text.split('<script id="anvil-charts" type="application/json">')[1].split("</script>")[0]
    )
    tables = {section.table.slug: section for section in page.context["page"].sections}
    assert list(shown) == ["runs", "success", "costs", "tokens", "agents", "approvals", "tools"]
    for name, chart in shown.items():
        assert tables[name].has_chart
        if chart["shape"] != "ranking":
            assert len(chart["labels"]) == len(tables[name].table.rows) == 7
    assert shown["runs"]["series"] == [{"style": "done", "label": "Done", "values": [0, 0, 0, 0, 0, 0, 1]}]
    assert shown["agents"]["labels"] == ["clerk"]
    assert "<style" not in page.text
    assert " style=" not in page.text


def test_numbers_are_in_the_digits_of_the_reader(vera: Client) -> None:
    past.run("clerk", NOW, cost_usd=Decimal("1234.5"), input_tokens=1_234_567)
    text = vera.get(DASHBOARD, headers={"accept-language": "en"}).text
    assert "$1,234.50" in text
    assert "1,234,567" in text


# Names that models and callers wrote.


def test_names_are_escaped_and_what_cannot_be_seen_is_shown(vera: Client) -> None:
    of = past.run(HOSTILE, NOW, cost_usd=1)
    past.call(of, HOSTILE, NOW, 1)
    past.call(of, "wire\u202etxt", NOW, 1, seq=2)
    past.case(of, HOSTILE, NOW, 1)
    past.case(of, HOSTILE, NOW, 1, kind="in_doubt")
    past.stretch(of, 1, NOW, 1, recovered=True)
    for query in ("", f"?agent={HOSTILE}"):
        text = vera.get(f"{DASHBOARD}{query}").text
        assert "<script>alert" not in text
        assert "<img" not in text
        assert "\u202e" not in text
        assert "⟦U+202E⟧" in text


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("  =1", "  '=1"),
        ("\t=1", " '=1"),
        ("＝1", "'＝1"),
        ('a";=1+1', "a\";'=1+1"),
        ("a\r\n=1", "a  '=1"),
        ("a\u202eb", "a b"),
        ("a-b", "a-b"),
    ],
)
def test_no_name_is_a_formula_to_a_spreadsheet(vera: Client, name: str, cell: str) -> None:
    of = past.run(name, NOW, cost_usd=1)
    past.call(of, name, NOW, 1)
    assert rows(vera, "tools")[0][0] == cell
    assert downloaded(vera, "costs")[0][1] == f"{cell} (USD)"


def test_a_table_is_a_file_that_is_streamed_and_not_kept(vera: Client) -> None:
    past.run("clerk", NOW)
    response = vera.get(f"{DASHBOARD}agents.csv?period=24h")
    assert response.streaming
    assert response.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert response.headers["Content-Disposition"] == (
        'attachment; filename="anvil-agents-2026-03-09-2026-03-10.csv"'
    )
    assert "no-store" in response.headers["Cache-Control"]
    assert vera.get(f"{DASHBOARD}secrets.csv").status_code == 404


def test_a_table_is_streamed_under_asgi(vera: Client) -> None:
    async def first() -> bytes:
        client = AsyncClient()
        client.cookies = vera.cookies
        response = await client.get(f"{DASHBOARD}agents.csv")
        assert response.is_async
        return b"".join([chunk async for chunk in response])

    assert async_to_sync(first)().startswith(b'"Agent","Runs"')


def test_nul_in_a_question_is_no_error(vera: Client) -> None:
    assert vera.get(f"{DASHBOARD}?agent=%00").status_code == 200
