"""The page of a run: where it stands, where its time went, its steps, and what can be done about it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from anvil_django import runs, start_run, tasks
from anvil_django.clock import FixedClock
from anvil_django.models import Approval, Run, Slice, ToolCall
from anvil_django.testing import ScriptedMessagesAPI, fault, fixed_clock, say

from ..hostile import TEXTS
from ..hostile_checks import markup_of_content
from .long_runs import ask_about, at, long_run
from .teller import HOSTILE, RUNS, Ask, logged_in, person, status, told

pytestmark = pytest.mark.django_db


@pytest.fixture
def clock() -> Iterator[FixedClock]:
    with fixed_clock(at(0)) as fixed:
        yield fixed


@pytest.fixture
def operator() -> Any:
    return person("olga", "control_run", "view_run", "add_run")


@pytest.fixture
def client(operator: Any) -> Client:
    return logged_in(operator)


def page(client: Client, run: Run, query: str = "") -> str:
    response = client.get(f"{RUNS}{run.pk}/change/{query}")
    assert response.status_code == 200
    return str(response.text)


def text_of(html: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", html).replace("&#x27;", "'").split())


def offered(html: str) -> list[str]:
    found = re.findall(r'name="action" value="(\w+)"|class="button" href="[^"]*/(fork)/"', html)
    return [button or link for button, link in found]


def steer(client: Client, run: Run, action: str, **data: Any) -> Any:
    client.cookies.pop("messages", None)
    return client.post(f"{RUNS}{run.pk}/steer/", {"action": action, "_selected_action": run.pk, **data})


# Where it stands.


def test_a_failed_run_says_why_and_what_to_do(client: Client) -> None:
    run = long_run(2, status="failed", stop_reason="", error_code="refused", error="The key was revoked.")
    said = text_of(page(client, run))
    assert "Failed teller The key was revoked." in said
    assert "then retry it from its last stored step" in said


def test_a_run_that_waits_for_people_leads_to_what_they_decide(ask: Ask, client: Client, rita: Any) -> None:
    approval = ask("DE-7", 700)
    link = f"/admin/anvil_django/approval/{approval.pk}/change/"
    assert f'href="{link}"' in page(logged_in(rita), approval.run)
    html = page(client, approval.run)
    assert "teller wants to run wire (account: DE-7, amount: 700)" in html
    assert link not in html  # Who may not see cases is not led to one.


def test_a_run_that_backs_off_says_when_it_tries_again(
    client: Client, clock: FixedClock, messages_api: ScriptedMessagesAPI
) -> None:
    messages_api.script(say("Done.").after(fault.overloaded()))
    run = start_run("teller", "Wait.")
    tasks.advance(run.run_id)
    html = page(client, run)
    assert "it tries again at" in html
    assert "An attempt failed (overloaded); it left the run queued." in html
    run.refresh_from_db()
    assert text_of(run.error) in text_of(html)
    clock.advance(3600)
    assert "a worker takes it as soon as one is free" in page(client, run)
    assert tasks.advance(run.run_id) == "done"


def test_a_lost_worker_is_told_of(client: Client, clock: FixedClock) -> None:
    run = long_run(
        2, status="running", stop_reason="", finished_at=None, lease_owner="host", lease_until=at(9)
    )
    Slice.objects.update(ended_at=None, ended_as="")
    clock.advance(60)
    assert "Its worker has not been heard of for too long." in page(client, run)
    Slice.objects.update(ended_at=at(9), ended_as="lost")
    assert "The worker was lost. Another one goes on" in page(client, run)


def test_who_asked_for_a_pause_is_named_until_it_is_heeded(client: Client, clock: FixedClock) -> None:
    run = long_run(1, status="running", stop_reason="", lease_owner="host", lease_until=at(60), token=1)
    assert told(steer(client, run, "pause")) == ["1 run is being advanced; it pauses at its next step."]
    html = page(client, run)
    assert "olga has asked to pause it: it pauses at its next step." in html
    assert offered(html) == ["cancel"]


# Where the time went.


def test_the_totals_say_where_the_time_went(client: Client) -> None:
    said = text_of(page(client, long_run(25)))
    assert "Where the time went: 1 min 50 s" in said
    assert "Asking the model 1 min 15 s 68 %" in said
    assert "Running tools 25.0 s 23 %" in said
    assert "Waiting for a worker 10.0 s 9 %" in said


def test_each_step_says_what_it_took(client: Client) -> None:
    said = text_of(page(client, long_run(2)))
    assert (
        "Step 2 Agent #3 · Dec 1, 09:00:07 · 3.0 s · 4,900 tokens in (4,000 from the cache), 60 out" in said
    )
    assert "$0.0123 · end_turn" in said
    assert "finished Dec. 1, 2026, 9 a.m. · 1.0 s" in said


def test_what_is_drawn_is_said_and_stands_there_as_a_table(client: Client) -> None:
    html = page(client, long_run(3))
    assert '<svg class="anvil-drawing" width="100%" height="96" aria-hidden="true">' in html
    assert '<p class="visually-hidden">Waiting for a worker: 10.0 s. Asking the model: 9.0 s.' in html
    assert (
        len(re.findall(r'<rect class="anvil-bar anvil-bar-(?:model|tool)"', html)) == 6 + 2
    )  # and the legend
    rows = re.findall(r"<tr><td>Dec 1.*?</tr>", html, re.DOTALL)
    assert [text_of(row) for row in rows][:3] == [
        "Dec 1, 08:59:50 Waiting for a worker 10.0 s",
        "Dec 1, 09:00:00 Asking the model 3.0 s 1",
        "Dec 1, 09:00:03 Running tools: mail 1.0 s 1",
    ]


def test_a_long_wait_does_not_hide_the_work(client: Client) -> None:
    run = long_run(3)
    Run.objects.filter(pk=run.pk).update(created_at=at(-86_400))
    Slice.objects.update(waited_since=at(-86_400))
    html = page(client, run)
    assert "Waits marked // are drawn shorter than they were." in html
    widths = [float(w) for w in re.findall(r'anvil-bar-model" x="[\d.]+%" y="\d+" width="([\d.]+)%"', html)]
    assert min(widths) > 15
    assert "Waiting for a worker 1 d 0 h" in text_of(html)


# Long runs.


def test_the_page_of_a_run_of_1000_steps_is_bounded(client: Client) -> None:
    short, long = long_run(60), long_run(1000)

    def queries(run: Run) -> int:
        with CaptureQueriesContext(connection) as captured:
            page(client, run)
        return len(captured)

    page(client, short)
    assert queries(long) == queries(short) < 25
    html = page(client, long)
    assert html.count('<article class="anvil-turn"') == 50
    assert 100 < html.count('<rect class="anvil-bar') < 400
    assert len(html) < 400_000
    assert "Steps 951 to 1000 of 1000" in text_of(html).replace(",", "")


def test_a_long_run_is_read_in_pages(client: Client) -> None:
    run = long_run(120)
    html = page(client, run)
    assert "Step 71." in html
    assert "Step 70." not in html
    assert '<a href="?from=21" rel="prev">' in html
    assert 'rel="next"' not in html
    html = page(client, run, "?from=21")
    assert "Steps 21 to 70 of 120" in text_of(html)
    assert '<a href="?from=71" rel="next">' in html
    assert '<a href="?from=1" rel="prev">' in html
    html = page(client, run, "?from=1")
    assert 'rel="prev"' not in html
    assert "Pay all bills." in html


@pytest.mark.parametrize("asked", ["0", "-1", "x", "99999999999999999999", "", "٣", "<script>"])
def test_a_page_that_is_not_there_shows_one_that_is(client: Client, asked: str) -> None:
    assert "Steps" in text_of(page(client, long_run(60), f"?from={asked}"))


def test_a_segment_leads_to_its_step_wherever_that_is_told(client: Client) -> None:
    run = long_run(120)
    html = page(client, run)
    here = re.findall(r'href="#(m\d+)"', html)
    assert here
    assert all(f'id="{anchor}"' in html for anchor in here)
    other = re.search(r'href="\?from=1#m(\d+)"', html)
    assert other is not None
    assert f'id="m{other[1]}"' in page(client, run, "?from=1")


# What can be done.


@pytest.mark.parametrize(
    ("values", "buttons"),
    [
        ({"status": "queued"}, ["pause", "cancel"]),
        ({"status": "running"}, ["pause", "cancel"]),
        ({"status": "suspended"}, ["cancel"]),
        ({"status": "paused"}, ["resume", "cancel"]),
        ({"status": "failed", "error_code": "refused"}, ["retry", "fork", "cancel"]),
        ({"status": "done", "stop_reason": "end_turn"}, ["fork"]),
        ({"status": "cancelled"}, ["fork"]),
    ],
)
def test_only_what_leads_somewhere_is_offered(
    client: Client, values: dict[str, str], buttons: list[str]
) -> None:
    run = long_run(1, **values)
    assert offered(page(client, run)) == buttons
    assert offered(page(logged_in(person("vera", "view_run")), run)) == []


def test_a_fork_is_offered_only_to_those_who_may_start_the_agent(client: Client) -> None:
    run = long_run(1)
    cora = logged_in(person("cora", "control_run", "view_run"))
    assert (offered(page(client, run)), offered(page(cora, run))) == (["fork"], [])
    assert "add_run" in cora.post(f"{RUNS}{run.pk}/fork/", {"iteration": "0"}).text
    assert Run.objects.count() == 1


def test_each_button_does_what_it_says_and_comes_back_to_the_page(client: Client) -> None:
    run = start_run("teller", "Wait.")
    response = steer(client, run, "pause")
    assert response["Location"] == f"{RUNS}{run.pk}/change/"
    assert (told(response), status(run)) == (["1 run was paused."], "paused")
    assert run.requested_by == "olga"
    assert told(steer(client, run, "resume")) == ["1 run goes on."]
    assert status(run) == "queued"
    Run.objects.filter(pk=run.pk).update(status="failed", error_code="refused")
    assert told(steer(client, run, "retry")) == ["1 run goes on from its last stored step."]
    assert (status(run), run.requested_by) == ("queued", "olga")
    asks = steer(client, run, "cancel")
    assert "cannot be resumed" in asks.text
    assert f'action="{RUNS}{run.pk}/steer/"' in asks.text
    assert status(run) == "queued"
    response = steer(client, run, "cancel", confirmed="yes")
    assert response["Location"] == f"{RUNS}{run.pk}/change/"
    assert status(run) == "cancelled"
    assert [entry.change_message for entry in LogEntry.objects.order_by("id")] == [
        "Paused.",
        "Resumed.",
        "Retried.",
        "Cancelled.",
    ]


def test_what_leads_nowhere_any_more_is_refused_with_a_reason(client: Client) -> None:
    run = long_run(1)
    for action in ("pause", "cancel"):
        response = steer(client, run, action, confirmed="yes")
        assert "is done; it cannot become" in told(response)[-1]
    assert told(steer(client, run, "retry"))[-1].startswith("long-1: ")
    assert steer(client, run, "delete")["Location"] == f"{RUNS}{run.pk}/change/"
    assert status(run) == "done"


def test_steering_takes_a_post_and_the_token_of_its_form(operator: Any, client: Client) -> None:
    run = start_run("teller", "Wait.")
    assert client.get(f"{RUNS}{run.pk}/steer/", {"action": "pause"}).status_code == 405
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(operator)
    for url in (f"{RUNS}{run.pk}/steer/", f"{RUNS}{run.pk}/fork/"):
        assert strict.post(url, {"action": "pause", "iteration": 0}).status_code == 403
    assert status(run) == "queued"


WITHOUT_RIGHT = ["anonymous", "no permission", "view only", "not staff", "blind"]


def somebody(who: str) -> Client:
    match who:
        case "anonymous":
            return Client()
        case "no permission":
            return logged_in(person("sam"))
        case "view only":
            return logged_in(person("vera", "view_run", "change_run", "view_approval", "decide_approval"))
        case "blind":
            return logged_in(person("bob", "control_run"))
    return logged_in(person("nora", "control_run", "view_run", is_staff=False))


@pytest.mark.parametrize("action", ["pause", "resume", "retry", "cancel", "fork"])
@pytest.mark.parametrize("who", WITHOUT_RIGHT)
def test_a_button_does_nothing_for_whoever_may_not_steer_runs(who: str, action: str) -> None:
    values = {"resume": {"status": "paused"}, "retry": {"status": "failed", "error_code": "refused"}}
    run = long_run(1, **values.get(action, {"status": "queued"}), stop_reason="")
    if action == "fork":
        Run.objects.update(status="done", stop_reason="end_turn")
    before = Run.objects.values().get()
    client = somebody(who)
    if action == "fork":
        assert client.get(f"{RUNS}{run.pk}/fork/").status_code in (302, 403)
        response = client.post(f"{RUNS}{run.pk}/fork/", {"iteration": 0})
    else:
        response = steer(client, run, action, confirmed="yes")
    assert response.status_code in (302, 403)
    assert Run.objects.values().get() == before
    assert not LogEntry.objects.exists()


@pytest.mark.parametrize("page", ["steer", "fork", "live"])
def test_a_run_that_is_gone_is_said_to_be(client: Client, page: str) -> None:
    response = client.post(f"{RUNS}99999/{page}/", {"action": "pause"})
    assert response.status_code in (302, 404)


# Forks.


def test_a_fork_begins_after_the_chosen_iteration_and_is_shown(client: Client, operator: Any) -> None:
    run = long_run(3)
    form = client.get(f"{RUNS}{run.pk}/fork/").text
    assert 'name="iteration" value="3"' in form
    assert 'max="3"' in form
    response = client.post(f"{RUNS}{run.pk}/fork/", {"iteration": "1", "message": ""})
    fork = Run.objects.latest("id")
    assert response["Location"] == f"{RUNS}{fork.pk}/change/"
    assert (fork.forked_from_id, fork.forked_at, fork.user) == (run.pk, 1, operator)
    shown = client.get(response["Location"]).text
    assert "This is the new run, forked from" in shown
    assert f'<a href="{RUNS}{run.pk}/change/">long-3</a> after iteration 1' in shown
    assert f'<a href="{RUNS}{fork.pk}/change/">{fork.run_id}</a>' in page(client, run)
    assert LogEntry.objects.get().change_message == f"Forked as {fork.run_id}."


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ({"iteration": "9"}, "is not one of 0 to 3"),
        ({"iteration": "-1"}, "greater than or equal to 0"),
        ({"iteration": "x"}, "Enter a whole number"),
        ({}, "This field is required"),
    ],
)
def test_a_fork_that_cannot_be_says_why(client: Client, data: dict[str, str], why: str) -> None:
    run = long_run(3)
    assert why in text_of(client.post(f"{RUNS}{run.pk}/fork/", data).text)
    assert Run.objects.count() == 1


def test_a_run_that_has_not_ended_is_not_forked(client: Client) -> None:
    run = long_run(1, status="suspended", stop_reason="")
    assert "until it has ended" in text_of(client.post(f"{RUNS}{run.pk}/fork/", {"iteration": "0"}).text)
    assert Run.objects.count() == 1


# Live.


def mark(html: str) -> str:
    found = re.search(r'data-mark="(\w+)"', html)
    assert found is not None
    return found[1]


def live(client: Client, run: Run, **query: str) -> Any:
    return client.get(f"{RUNS}{run.pk}/live/", query)


def test_nothing_is_sent_while_nothing_changes_and_it_takes_one_query(
    client: Client, clock: FixedClock
) -> None:
    run = start_run("teller", "Wait.")
    seen = mark(page(client, run))
    with CaptureQueriesContext(connection) as captured:
        response = live(client, run, mark=seen)
    assert (response.status_code, response.content) == (204, b"")
    assert sum("anvil_django" in query["sql"] for query in captured.captured_queries) == 1


def test_what_changed_is_sent_with_its_new_mark(
    client: Client, clock: FixedClock, messages_api: ScriptedMessagesAPI
) -> None:
    run = start_run("teller", "Wait.")
    html = page(client, run)
    assert 'anvil_django/run.js" defer' in html
    seen = mark(html)
    for change in (runs.pause, runs.resume):
        change(run.run_id)
        response = live(client, run, mark=seen)
        assert response.status_code == 200
        seen = mark(response.text)
        assert live(client, run, mark=seen).status_code == 204
    messages_api.script(say("Here you are."))
    assert tasks.advance(run.run_id) == "done"
    response = live(client, run, mark=seen)
    assert "Here you are." in response.text
    assert "data-finished" in response.text
    assert "<html" not in response.text
    assert "anvil_django/run.js" not in page(client, run)


def test_the_buttons_of_what_is_sent_are_those_of_the_page(client: Client) -> None:
    run = start_run("teller", "Wait.")
    assert offered(live(client, run).text) == offered(page(client, run)) == ["pause", "cancel"]
    assert "csrfmiddlewaretoken" in live(client, run).text
    assert offered(live(logged_in(person("vera", "view_run")), run).text) == []


def test_what_is_sent_is_of_the_page_that_is_looked_at(client: Client) -> None:
    run = long_run(120, status="paused", stop_reason="")
    told_of = live(client, run, **{"from": "1"}).text
    assert "Step 50." in told_of
    assert "Step 51." not in told_of


def test_a_run_that_is_advanced_is_drawn_anew_now_and_then(client: Client, clock: FixedClock) -> None:
    run = long_run(1, status="running", stop_reason="", lease_owner="host", lease_until=at(600))
    seen = mark(page(client, run))
    clock.advance(1)
    assert live(client, run, mark=seen).status_code == 204
    clock.advance(60)
    assert live(client, run, mark=seen).status_code == 200


@pytest.mark.parametrize("who", ["anonymous", "no permission", "not staff", "blind"])
def test_whoever_may_not_see_runs_is_sent_nothing(who: str) -> None:
    run = start_run("teller", "Secret.")
    response = live(somebody(who), run)
    assert response.status_code in (302, 403)
    assert "Secret." not in response.text


# Content of others.


@pytest.mark.parametrize("first", range(0, len(TEXTS), 8))
def test_what_others_wrote_is_never_markup_anywhere_on_the_page(
    client: Client, rita: Any, first: int
) -> None:
    texts = [HOSTILE, *list(TEXTS.values())[first : first + 8]]
    text = " ".join(texts).replace("\0", "").encode("utf-8", "ignore").decode()
    run = long_run(
        2,
        status="suspended",
        stop_reason="",
        error=text,
        error_code="x",
        user_name=text[:200],
        requested_by=text[:200],
        pause_requested=True,
        text=text,
        tool=text[:128],
    )
    ask_about(run, 1, tool=text[:128])
    Slice.objects.update(owner=text[:200], error_code=text[:64], error=text, ended_as="lost")
    for html in (page(client, run), page(logged_in(rita), run), live(client, run).text):
        assert "hostile" in html
        assert markup_of_content(html) == []
        assert "<script>alert" not in html


def test_the_page_needs_no_inline_script_or_style(client: Client) -> None:
    html = page(client, long_run(3, status="paused", stop_reason=""))
    assert not re.search(r"<(?:script|style)\b[^>]*>\s*[^\s<]", html.replace('type="application/json">', ""))
    assert not re.search(r"\s(?:style|on\w+)=", html)


def test_thinking_is_folded(ask: Ask, rita: Any) -> None:
    approval = ask()
    html = page(logged_in(rita), approval.run)
    assert re.search(r'<details class="anvil-thinking" data-key="\d+"><summary>Thinking</summary>', html)


def test_an_approval_tells_who_decided_when_and_why(
    ask: Ask, rita: Any, client: Client, messages_api: ScriptedMessagesAPI
) -> None:
    from anvil_django import approvals

    approval = ask()
    approvals.reject(approval, user=rita, reason="Not this account.")
    html = page(client, approval.run)
    assert "Rejected by rita" in html
    assert "Not this account." in html
    assert "Waiting for a person: wire" in html


def test_the_spans_of_a_run_that_people_and_workers_delayed_are_all_told(
    ask: Ask, rita: Any, client: Client, clock: FixedClock, messages_api: ScriptedMessagesAPI
) -> None:
    from anvil_django import approvals

    approval = ask()
    Run.objects.update(created_at=at(0))
    clock.advance(timedelta(hours=1).total_seconds())
    approvals.approve(approval, user=rita)
    clock.advance(60)
    messages_api.script(say("Paid."), match=f"[{approval.run.run_id}]")
    assert tasks.advance(approval.run.run_id) == "done"
    said = text_of(page(client, approval.run))
    assert "Waiting for a person 1 h 0 min 98 %" in said
    assert "Waiting for a worker 1 min 0 s 2 %" in said
    assert ToolCall.objects.get().outcome == "returned"
    assert Approval.objects.get().status == "approved"
