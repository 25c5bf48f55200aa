"""Lists longer than the admin counts, and what it can sort and filter them by."""

from __future__ import annotations

from typing import Any

import pytest

from anvil_django.admin import paging
from anvil_django.models import Approval, Run

from .teller import APPROVALS, RUNS, Ask, logged_in
from .test_queue import copies

pytestmark = pytest.mark.django_db


def shown(client: Any, url: str) -> list[Any]:
    return list(client.get(url).context["cl"].result_list)


def test_a_long_list_says_where_it_ends(ask: Ask, rita: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    copies(ask(), 4)
    client = logged_in(rita)
    assert "this list ends there" not in client.get(RUNS).text
    monkeypatch.setattr(paging, "MOST_COUNTED", 3)
    for url in (RUNS, APPROVALS, f"{APPROVALS}?status=all"):
        page = client.get(url)
        assert page.context["cl"].result_count == 3
        assert "There are more than 3; this list ends there." in page.text


def test_what_waits_can_be_sorted_by_any_column_and_the_history_by_time_alone(ask: Ask, rita: Any) -> None:
    cases = [ask(name="wire"), ask(name="borrow"), ask(name="transfer")]
    client = logged_in(rita)
    column = list(client.get(APPROVALS).context["cl"].list_display).index("tool_name")
    by_tool = sorted(cases, key=lambda case: case.tool)
    assert shown(client, f"{APPROVALS}?o={column}") == by_tool
    assert shown(client, f"{APPROVALS}?status=all&o={column + 1}") == cases[::-1]
    assert shown(client, f"{APPROVALS}?status=all&o=1") == cases


def test_runs_are_sorted_by_id_and_by_time_alone(ask: Ask, rita: Any) -> None:
    first, second = (ask(run_id=name).run for name in ("b", "a"))
    Run.objects.filter(pk=first.pk).update(user_name="z", cost_usd=9)
    client = logged_in(rita)
    columns = list(client.get(RUNS).context["cl"].list_display)
    assert shown(client, f"{RUNS}?o={columns.index('cost')}") == [second, first]
    assert shown(client, f"{RUNS}?o=-{columns.index('cost')}") == [second, first]
    assert shown(client, f"{RUNS}?o={columns.index('created_at')}") == [first, second]
    assert shown(client, f"{RUNS}?o={columns.index('run_id')}") == [second, first]


def test_each_tool_that_was_asked_about_can_be_chosen(ask: Ask, rita: Any) -> None:
    for name in ("wire", "borrow", "wire"):
        ask(name=name)
    (tools,) = (
        spec for spec in logged_in(rita).get(APPROVALS).context["cl"].filter_specs if spec.title == "tool"
    )
    assert [value for value, _label in tools.lookup_choices] == ["borrow", "wire"]


def test_filters_work_together_whichever_leads(ask: Ask, rita: Any) -> None:
    wire, borrow = ask(name="wire"), ask(name="borrow")
    client = logged_in(rita)
    assert shown(client, f"{APPROVALS}?tool=wire&agent=teller&kind__exact=tool") == [wire]
    assert shown(client, f"{APPROVALS}?status=all&agent=teller&tool=borrow") == [borrow]
    assert shown(client, f"{APPROVALS}?agent=somebody") == []
    assert shown(client, f"{RUNS}?agent=teller&status__exact=suspended") == [borrow.run, wire.run]
    assert shown(client, f"{RUNS}?agent=teller&status__exact=done") == []
    assert Approval.objects.pending().having("tool", "wire").get() == wire
