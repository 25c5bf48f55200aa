"""The admin, over HTTP: what each person sees, may do, and what a request without the right changes."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from anvil_django import (
    approvals,
    runs,
    start_run,
    tasks,
)
from anvil_django.admin import conversation, readonly, run_page
from anvil_django.admin.rendering import pretty, summary, visible
from anvil_django.clock import FixedClock, get_clock, set_clock
from anvil_django.models import Approval, Decision, Run
from anvil_django.testing import ScriptedMessagesAPI, say, tool_call

from .teller import (
    APPROVALS,
    HOSTILE,
    RUNS,
    Ask,
    confirm,
    done,
    goes_on,
    logged_in,
    person,
    post,
    status,
    told,
)

pytestmark = pytest.mark.django_db


# Who may see.


@pytest.mark.parametrize("url", [APPROVALS, RUNS])
def test_an_anonymous_visitor_is_sent_to_the_login(url: str) -> None:
    response = Client().get(url)
    assert response.status_code == 302
    assert response["Location"].startswith("/admin/login/")


@pytest.mark.parametrize("url", [APPROVALS, RUNS])
def test_staff_without_permission_see_neither_list(url: str) -> None:
    assert logged_in(person("sam")).get(url).status_code == 403


def test_view_only_staff_read_everything_and_are_offered_no_action(ask: Ask) -> None:
    approval = ask()
    client = logged_in(person("vera", "view_approval", "view_run"))
    for url in (APPROVALS, RUNS):
        page = client.get(url)
        assert page.status_code == 200
        assert 'name="action"' not in page.text
    for url in (f"{APPROVALS}{approval.pk}/change/", f"{RUNS}{approval.run_id}/change/"):
        page = client.get(url)
        assert "DE-1" in page.text
        assert "anvil-buttons" not in page.text
        assert "/decide/" not in page.text
        assert 'name="CHANGE_FORM-action"' not in page.text


def test_whoever_may_decide_sees_the_approvals_without_the_view_permission(ask: Ask) -> None:
    approval = ask()
    client = logged_in(person("dora", "decide_approval"))
    assert "DE-1" in client.get(APPROVALS).text
    page = client.get(f"{APPROVALS}{approval.pk}/change/")
    assert "Please pay the bill." in page.text
    assert f"{RUNS}{approval.run_id}/" not in page.text
    assert client.get(RUNS).status_code == 403


def test_nothing_can_be_added_changed_or_deleted_even_by_a_superuser(ask: Ask) -> None:
    approval = ask()
    client = logged_in(get_user_model().objects.create_superuser("root"))
    for base, pk in ((APPROVALS, approval.pk), (RUNS, approval.run_id)):
        assert client.get(f"{base}add/").status_code == 403
        assert client.post(f"{base}{pk}/delete/", {"post": "yes"}).status_code == 403
        assert client.post(f"{base}{pk}/change/", {"status": "done"}).status_code == 403
        assert "delete_selected" not in client.get(base).text
    assert status(approval) == "pending"


# Deciding.


@pytest.mark.parametrize("action", ["approve", "reject", "answer", "claim", "release"])
@pytest.mark.parametrize("who", ["anonymous", "no permission", "view only", "not staff", "inactive"])
def test_a_forged_decision_has_no_effect(ask: Ask, who: str, action: str) -> None:
    approval = ask(name="mail") if action == "answer" else ask()
    match who:
        case "anonymous":
            client = Client()
        case "no permission":
            client = logged_in(person("sam"))
        case "view only":
            client = logged_in(person("vera", "view_approval", "change_approval", "view_run"))
        case "not staff":
            client = logged_in(person("nora", "decide_approval", "view_approval", is_staff=False))
        case _:
            user = person("ina", "decide_approval", "view_approval")
            client = logged_in(user)
            get_user_model().objects.filter(pk=user.pk).update(is_active=False)
    if action == "release":
        Approval.objects.filter(pk=approval.pk).update(
            claimed_by=person("clara"), claimed_name="clara", claimed_at=get_clock().now()
        )
    data = {"reason": "because", "answer": "r-1"}
    post(client, APPROVALS, action, approval, **data)
    confirm(client, APPROVALS, action, approval, **data)
    change = f"{APPROVALS}{approval.pk}/change/"
    confirm(client, change, action, approval, **data)
    client.post(
        change, {"CHANGE_FORM-action": action, ACTION_CHECKBOX_NAME: approval.pk, "confirmed": "yes", **data}
    )
    assert status(approval) == "pending"
    assert approval.claimed_name == ("clara" if action == "release" else "")
    assert not Decision.objects.exists()
    assert not LogEntry.objects.exists()


def test_the_permission_is_asked_again_in_the_body_of_each_action(ask: Ask, rf: Any) -> None:
    from django.contrib.admin import site
    from django.core.exceptions import PermissionDenied

    approval = ask()
    request = rf.post(APPROVALS, {"confirmed": "yes", "reason": "x", ACTION_CHECKBOX_NAME: approval.pk})
    request.user = person("vera", "view_approval", "view_run")
    for model, actions in (
        (Approval, ["approve", "reject", "answer", "claim", "release"]),
        (Run, ["cancel", "pause", "resume", "retry"]),
    ):
        model_admin = site.get_model_admin(model)
        for action in actions:
            with pytest.raises(PermissionDenied):
                getattr(model_admin, action)(request, model.objects.all())
    assert status(approval) == "pending"


def test_approve_shows_the_case_first_and_changes_nothing_until_it_is_confirmed(ask: Ask, rita: Any) -> None:
    approval = ask("DE-7", 700)
    page = post(logged_in(rita), APPROVALS, "approve", approval)
    assert page.status_code == 200
    assert "teller wants to run wire (account: DE-7, amount: 700)" in page.text
    assert "&quot;amount&quot;: 700" in page.text
    assert "run once, with exactly these arguments" in page.text
    assert status(approval) == "pending"


def test_an_approval_is_attributed_to_the_person_logged_in_and_the_run_goes_on(
    ask: Ask, rita: Any, messages_api: ScriptedMessagesAPI
) -> None:
    approval = ask(user=person("carl", is_staff=False))
    response = confirm(
        logged_in(rita), APPROVALS, "approve", approval, reason="It is due.", user="carl", reviewer="carl"
    )
    assert response["Location"] == APPROVALS
    assert told(response) == ["1 case was approved."]
    decision = Decision.objects.get()
    assert (decision.user, decision.reviewer, decision.channel) == (rita, "rita", "admin")
    assert (decision.approved, decision.reason) == (True, "It is due.")
    assert status(approval.run) == "queued"
    assert goes_on(messages_api, approval) == '"wired 50"'
    assert done == ["wired 50 to DE-1"]


def test_a_decision_is_told_on_the_history_page_of_the_approval(ask: Ask, rita: Any) -> None:
    approval = ask()
    client = logged_in(rita)
    confirm(client, APPROVALS, "reject", approval, reason=f"Wrong account {HOSTILE}")
    entry = LogEntry.objects.get()
    assert (entry.user, entry.object_id, entry.is_change()) == (rita, str(approval.pk), True)
    page = client.get(f"{APPROVALS}{approval.pk}/history/")
    assert "rejected (admin): Wrong account &lt;script&gt;" in page.text


def test_a_rejection_takes_a_reason_and_tells_it_to_the_agent(
    ask: Ask, rita: Any, messages_api: ScriptedMessagesAPI
) -> None:
    approval = ask()
    client = logged_in(rita)
    for reason in ("", "   ", "\0"):
        page = confirm(client, APPROVALS, "reject", approval, reason=reason)
        assert page.status_code == 200
        assert "errorlist" in page.text
        assert status(approval) == "pending"
    response = confirm(client, APPROVALS, "reject", approval, reason="Wrong account.")
    assert told(response) == ["1 case was rejected."]
    assert "Reason given: Wrong account." in goes_on(messages_api, approval)
    assert done == []


def test_a_case_decided_meanwhile_is_reported_with_who_decided_and_the_others_go_on(
    ask: Ask, rita: Any
) -> None:
    first, second, late = ask("DE-1"), ask("DE-2"), ask("DE-3")
    client = logged_in(rita)
    page = post(client, f"{APPROVALS}?status=pending", "approve", first, second, late)
    assert page.text.count('class="module anvil-case"') == 3
    approvals.reject(first, user=person("otto", "decide_approval"), reason="No.")
    Approval.objects.filter(pk=late.pk).update(expires_at=get_clock().now() - timedelta(minutes=1))
    # The list is filtered by now such that the first is not in it: it is reported all the same.
    response = confirm(client, f"{APPROVALS}?status=pending", "approve", first, second, late)
    messages = told(response)
    assert messages[:2] == ["1 case was approved.", "2 were skipped and left as they are."]
    assert any("DE-1" in m and "is already rejected by otto" in m for m in messages)
    assert any("DE-3" in m and "it counts as a no" in m for m in messages)
    assert [status(a) for a in (first, second, late)] == ["rejected", "approved", "pending"]


def test_the_page_that_asks_names_what_will_be_left_as_it_is(ask: Ask, rita: Any) -> None:
    first, second = ask("DE-1"), ask("DE-2")
    approvals.reject(first, user=person("otto", "decide_approval"), reason="No.")
    page = post(logged_in(rita), APPROVALS, "approve", first, second)
    assert page.text.count('class="module anvil-case"') == 1
    assert "It is already rejected, by otto." in page.text


def test_nothing_is_asked_when_no_selected_case_can_be_decided(ask: Ask, rita: Any) -> None:
    approval = ask()
    approvals.approve(approval, user=rita)
    response = post(logged_in(rita), APPROVALS, "reject", approval)
    assert response.status_code == 302
    assert "It is already approved, by rita." in told(response)[1]


def test_a_second_click_decides_nothing_twice(ask: Ask, rita: Any) -> None:
    approval = ask()
    client = logged_in(rita)
    confirm(client, APPROVALS, "approve", approval)
    response = confirm(client, APPROVALS, "approve", approval)
    assert "is already approved by rita" in told(response)[-1]
    assert Decision.objects.count() == LogEntry.objects.count() == 1


def test_too_many_cases_at_once_are_refused_before_anything_is_decided(
    ask: Ask, rita: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(readonly, "MOST_SELECTED", 1)
    response = confirm(logged_in(rita), APPROVALS, "approve", ask("DE-1"), ask("DE-2"))
    assert told(response) == ["Select at most 1 at once."]
    assert not Decision.objects.exists()


# In doubt.


def test_for_a_call_in_doubt_the_page_says_what_approve_and_reject_mean(ask: Ask, rita: Any) -> None:
    approval = ask("a@example.com", name="mail")
    client = logged_in(rita)
    page = client.get(f"{APPROVALS}{approval.pk}/change/").text
    assert "teller started mail and was interrupted: did it happen? (to: a@example.com)" in page
    for says in (
        "it did NOT happen: the tool is run again",
        "told that the outcome is unknown",
        "it DID happen",
    ):
        assert says in page
    assert "the tool is run again" in post(client, APPROVALS, "approve", approval).text
    assert "told that the outcome is unknown" in post(client, APPROVALS, "reject", approval).text


@pytest.mark.parametrize(
    ("action", "data", "result", "effects"),
    [
        ("approve", {}, "sent to a@example.com", ["mailed a@example.com"]),
        ("reject", {"reason": "Nobody knows."}, "Whether it took effect is unknown.", []),
        ("answer", {"answer": "message 17"}, "message 17", []),
    ],
)
def test_each_verdict_on_a_call_in_doubt_does_what_it_says(
    ask: Ask,
    rita: Any,
    messages_api: ScriptedMessagesAPI,
    action: str,
    data: dict[str, str],
    result: str,
    effects: list[str],
) -> None:
    approval = ask("a@example.com", name="mail")
    confirm(logged_in(rita), APPROVALS, action, approval, **data)
    assert result in goes_on(messages_api, approval)
    assert done == effects


def test_a_result_in_the_tools_place_cannot_be_left_out_and_is_told_to_the_agent(
    ask: Ask, rita: Any, messages_api: ScriptedMessagesAPI
) -> None:
    client = logged_in(rita)
    ordinary, doubtful = ask(), ask("a@example.com", name="mail")
    for case in (ordinary, doubtful):
        assert confirm(client, APPROVALS, "answer", case, answer="").status_code == 200
    assert not Decision.objects.exists()
    confirm(client, APPROVALS, "answer", ordinary, answer="Paid by hand.")
    assert "Paid by hand." in goes_on(messages_api, ordinary)
    assert done == []


# What is shown.


def test_of_what_waits_the_oldest_is_at_the_top_and_of_all_cases_the_latest(ask: Ask, rita: Any) -> None:
    rows = [ask(f"DE-{n}") for n in range(4)]
    approvals.approve(rows[0], user=rita)
    approvals.approve(rows[2], user=rita)
    client = logged_in(rita)
    assert list(client.get(APPROVALS).context["cl"].result_list) == [rows[1], rows[3]]
    page = client.get(f"{APPROVALS}?status=all")
    assert list(page.context["cl"].result_list) == rows[::-1]


@pytest.mark.parametrize(
    "query", ["status=pending", "kind__exact=tool", "agent=teller", "tool=wire", "q=wire", "q=carl"]
)
def test_the_queue_can_be_filtered_and_searched(ask: Ask, rita: Any, query: str) -> None:
    ask("FOUND", user=person("carl"))
    other = ask("OTHER", name="mail")
    approvals.approve(other, user=rita)
    Run.objects.filter(pk=other.run_id).update(agent="another")
    Approval.objects.filter(pk=other.pk).update(agent="another")
    page = logged_in(rita).get(
        f"{APPROVALS}?status=all&{query}" if "status" not in query else f"{APPROVALS}?{query}"
    )
    assert "FOUND" in page.text
    assert "OTHER" not in page.text


@pytest.mark.parametrize("query", ["status__exact=suspended", "agent=teller", "q=find-me", "q=carl"])
def test_runs_can_be_filtered_and_searched(ask: Ask, operator: Any, query: str) -> None:
    ask(run_id="find-me", user=person("carl"))
    other = ask(run_id="other-2").run
    runs.cancel(other.run_id)
    Run.objects.filter(pk=other.pk).update(agent="another")
    page = logged_in(operator).get(f"{RUNS}?{query}")
    assert "find-me" in page.text
    assert "other-2" not in page.text


def test_a_person_whose_account_is_gone_keeps_their_name_in_both_lists(ask: Ask, rita: Any) -> None:
    carl = person("carl")
    approval = ask(user=carl)
    approvals.approve(approval, user=person("otto", "decide_approval"), reason="Fine.")
    get_user_model().objects.filter(username__in=["carl", "otto"]).delete()
    client = logged_in(rita)
    assert "carl" in client.get(RUNS).text
    page = client.get(f"{APPROVALS}{approval.pk}/change/").text
    assert "carl" in page
    assert "Approved by otto" in page


def test_the_page_of_a_run_shows_the_conversation_the_calls_and_the_decisions(
    ask: Ask, rita: Any, messages_api: ScriptedMessagesAPI
) -> None:
    approval = ask()
    approvals.approve(approval, user=rita, reason="It is due.", channel="admin")
    goes_on(messages_api, approval)
    page = logged_in(rita).get(f"{RUNS}{approval.run_id}/change/").text
    for shown in (
        "Please pay the bill.",
        "I will.",
        "&quot;account&quot;: &quot;DE-1&quot;",
        "done: returned",
        "wired 50",
        "Approved by rita",
        "It is due.",
        "Understood.",
    ):
        assert shown in page


def test_a_long_run_shows_its_end_and_says_so(
    ask: Ask, rita: Any, messages_api: ScriptedMessagesAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    approval = ask()
    approvals.reject(approval, user=rita, reason="No.")
    goes_on(messages_api, approval)
    monkeypatch.setattr(run_page, "MOST_MESSAGES", 1)
    page = logged_in(rita).get(f"{RUNS}{approval.run_id}/change/").text
    assert "Understood." in page
    assert "I will." not in page
    assert "The run is long" in page


def test_all_texts_of_a_run_together_are_capped(ask: Ask, rita: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    approval = ask("x" * 5000, text="y" * 5000)
    monkeypatch.setattr(conversation, "MOST_CHARACTERS", 1000)
    read = conversation.read(approval.run)
    shown = "".join(
        str(p.body or "") + str(p.call.arguments if p.call else "") for t in read.turns for p in t.parts
    )
    assert len(shown) < 2500
    assert "more characters are not shown" in shown


@pytest.mark.parametrize("name", ["wire", "gift", "mail"])
def test_what_the_model_and_the_tools_wrote_is_never_markup(ask: Ask, rita: Any, name: str) -> None:
    approval = ask(HOSTILE, name=name, text=HOSTILE)
    client = logged_in(rita)
    pages = [
        client.get(APPROVALS),
        client.get(f"{APPROVALS}{approval.pk}/change/"),
        client.get(f"{RUNS}{approval.run_id}/change/"),
        post(client, APPROVALS, "approve", approval),
        post(client, APPROVALS, "reject", approval),
    ]
    for page in pages:
        assert page.status_code == 200
        assert "&lt;script&gt;alert" in page.text
        assert "<script>alert" not in page.text
        assert "<img src=x" not in page.text
    after = confirm(client, APPROVALS, "answer" if name != "mail" else "approve", approval, answer="x")
    shown = client.get(after["Location"]).text
    assert "<script>alert" not in shown


def test_pages_need_no_inline_script_or_style(ask: Ask, rita: Any) -> None:
    rita.user_permissions.add(Permission.objects.get(codename="control_run"))
    approval = ask()
    client = logged_in(rita)
    pages = [
        client.get(APPROVALS),
        client.get(RUNS),
        client.get(f"{APPROVALS}{approval.pk}/change/"),
        client.get(f"{RUNS}{approval.run_id}/change/"),
        *(post(client, APPROVALS, action, approval) for action in ("approve", "reject")),
        post(client, RUNS, "cancel", approval.run),
    ]
    for page in pages:
        assert page.status_code == 200
        assert "anvil_django/admin.css" in page.text
        content = page.text
        for tag in re.findall(r"<script[^>]*>", content):
            assert "src=" in tag or 'type="application/json"' in tag
        assert " style=" not in content
        assert "<style" not in content
        assert not re.search(r"<[^>]* on[a-z]+=", content)


def test_a_bidirectional_override_in_the_arguments_is_seen_wherever_they_are(ask: Ask, rita: Any) -> None:
    approval = ask("DE-1\u202e7-ED")
    client = logged_in(rita)
    for page in (
        client.get(APPROVALS),
        client.get(f"{APPROVALS}{approval.pk}/change/"),
        client.get(f"{RUNS}{approval.run_id}/change/"),
        post(client, APPROVALS, "approve", approval),
    ):
        assert "⟦U+202E⟧" in page.text
        assert "\u202e" not in page.text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\u200bb", "a⟦U+200B⟧b"),
        ("a\u2066b", "a⟦U+2066⟧b"),
        ("a\x07b", "a⟦U+0007⟧b"),
        ("a\u00a0b", "a⟦U+00A0⟧b"),
        ("a\U000e0041b", "a⟦U+E0041⟧b"),
        ("a\ufe01b", "a⟦U+FE01⟧b"),
        ("a\u3164b", "a⟦U+3164⟧b"),
        ("p\u0430ypal", "p\u0430⟦U+0430⟧ypal"),
        ("\u0440\u0430\u0443.com", "\u0440⟦U+0440⟧\u0430⟦U+0430⟧\u0443⟦U+0443⟧.com"),
        ("\uff50\uff41\uff59", "\uff50⟦U+FF50⟧\uff41⟦U+FF41⟧\uff59⟦U+FF59⟧"),
        ("bank.com\u2044evil", "bank.com\u2044⟦U+2044⟧evil"),
        ("pa\u0337y", "pa\u0337⟦U+0337⟧y"),
        ("no ⟦U+202E⟧ here", "no ⟦U+27E6⟧U+202E⟦U+27E7⟧ here"),
    ],
)
def test_deceptive_characters_are_marked(text: str, shown: str) -> None:
    html = visible(text)
    assert 'class="anvil-mark"' in html
    assert re.sub(r"<[^>]*>", "", html) == shown


@pytest.mark.parametrize(
    "text",
    ["Müller & Søn\n\tIżabela", "e\u0301te", "Привет, мир", "使用API调用", "שלום", "10 °C – „quoted“…", "👍"],
)
def test_ordinary_text_of_many_languages_is_left_alone(text: str) -> None:
    assert visible(text) == text.replace("&", "&amp;")


def test_a_text_that_is_cut_says_how_much_is_missing() -> None:
    assert re.sub(r"<[^>]*>", "", visible("x" * 12, 10)) == "xxxxxxxxxx [… 2 more characters are not shown]"


def test_json_is_indented_and_a_text_shown_as_it_is() -> None:
    assert ">{\n  &quot;a&quot;: &quot;é&quot;\n}<" in pretty({"a": "é"})
    assert ">line\nline<" in pretty("line\nline")
    assert summary({"a": "x\ny", "b": [1, None]}) == "a: x y, b: [1,null]"


# Cost of the pages.


@pytest.mark.parametrize("url", [APPROVALS, RUNS])
def test_a_list_takes_the_same_queries_however_many_rows_it_has(ask: Ask, rita: Any, url: str) -> None:
    client = logged_in(rita)

    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert client.get(url).status_code == 200
        return len(captured)

    ask(user=person("carl"))
    client.get(url)
    one = queries()
    for n in range(5):
        ask(f"DE-{n}", user=person(f"carl{n}"))
    assert queries() == one


def test_the_pages_of_a_case_and_a_run_take_a_bounded_number_of_queries(
    rita: Any, messages_api: ScriptedMessagesAPI
) -> None:
    client = logged_in(rita)

    def queries(calls: int) -> tuple[int, int]:
        turn = say(*(tool_call("wire", {"account": f"A{n}", "amount": n}) for n in range(calls)))
        text = f"Pay the bill of {get_clock().monotonic()}."
        messages_api.script(turn, match=text)
        run = start_run("teller", text)
        tasks.advance(run.run_id)
        approval = Approval.objects.filter(run=run)[0]
        approvals.approve(approval, user=rita)
        counts = []
        for url in (f"{RUNS}{run.pk}/change/", f"{APPROVALS}{approval.pk}/change/"):
            with CaptureQueriesContext(connection) as captured:
                assert client.get(url).status_code == 200
            counts.append(len(captured))
        return counts[0], counts[1]

    queries(2)
    assert queries(2) == queries(12)


# Runs.


@pytest.mark.parametrize("action", ["cancel", "pause", "resume", "retry"])
@pytest.mark.parametrize("who", ["anonymous", "no permission", "view only", "not staff"])
def test_a_forged_action_on_a_run_has_no_effect(ask: Ask, who: str, action: str) -> None:
    run = start_run("teller", "Wait.")
    if action == "resume":
        runs.pause(run.run_id)
    if action == "retry":
        Run.objects.filter(pk=run.pk).update(status="failed", error_code="refused")
    before = status(run)
    match who:
        case "anonymous":
            client = Client()
        case "no permission":
            client = logged_in(person("sam"))
        case "view only":
            client = logged_in(person("vera", "view_run", "change_run", "view_approval"))
        case _:
            client = logged_in(person("nora", "control_run", "view_run", is_staff=False))
    confirm(client, RUNS, action, run)
    change = f"{RUNS}{run.pk}/change/"
    client.post(change, {"CHANGE_FORM-action": action, ACTION_CHECKBOX_NAME: run.pk, "confirmed": "yes"})
    assert status(run) == before
    assert (run.cancel_requested, run.pause_requested) == (False, False)


def test_cancelling_asks_first_and_is_attributed(operator: Any) -> None:
    run = start_run("teller", "Wait.", run_id="run-1")
    client = logged_in(operator)
    assert "cannot be resumed" in post(client, RUNS, "cancel", run).text
    assert status(run) == "queued"
    assert told(confirm(client, RUNS, "cancel", run)) == ["1 run was cancelled."]
    assert status(run) == "cancelled"
    entry = LogEntry.objects.get()
    assert (entry.user, entry.object_id, entry.change_message) == (operator, str(run.pk), "Cancelled.")


def test_pause_and_resume_count_what_they_did_and_say_why_the_rest_was_left(operator: Any) -> None:
    client = logged_in(operator)
    first, second, ended = (start_run("teller", "Wait.", run_id=name) for name in ("run-1", "run-2", "run-3"))
    runs.cancel("run-3")
    response = post(client, RUNS, "pause", first, second, ended)
    assert told(response) == [
        "2 runs were paused.",
        "1 was skipped and left as it is.",
        "run-3: Run &#x27;run-3&#x27; is cancelled; it cannot become paused.",
    ]
    runs.resume("run-2")
    response = post(client, RUNS, "resume", first, second, ended)
    assert told(response) == [
        "1 run goes on.",
        "2 were skipped and left as they are.",
        "run-3: It is already cancelled; there is nothing to do.",
        "run-2: It is already queued; there is nothing to do.",
    ]
    assert [status(run) for run in (first, second, ended)] == ["queued", "queued", "cancelled"]


def test_resuming_a_run_that_waits_for_a_decision_says_so(ask: Ask, operator: Any) -> None:
    approval = ask()
    response = post(logged_in(operator), RUNS, "resume", approval.run)
    assert "suspended until a person decides" in told(response)[-1]
    assert status(approval) == "pending"


def test_a_run_that_is_being_advanced_is_only_asked_to_stop(operator: Any) -> None:
    run = start_run("teller", "Wait.")
    until = get_clock().now() + timedelta(hours=1)
    Run.objects.filter(pk=run.pk).update(status="running", lease_owner="somebody", lease_until=until, token=1)
    client = logged_in(operator)
    assert told(post(client, RUNS, "pause", run)) == ["1 run is being advanced; it pauses at its next step."]
    assert told(confirm(client, RUNS, "cancel", run)) == [
        "1 run is being advanced; it ends at its next step."
    ]
    run.refresh_from_db()
    assert (run.status, run.pause_requested, run.cancel_requested) == ("running", True, True)


# On the page of one row.


def test_the_page_of_a_run_offers_only_what_leads_somewhere(rita: Any, operator: Any) -> None:
    run = start_run("teller", "Wait.")
    client = logged_in(operator)

    def offered() -> list[str]:
        return re.findall(r'name="action" value="(\w+)"', client.get(f"{RUNS}{run.pk}/change/").text)

    assert offered() == ["pause", "cancel"]
    runs.pause(run.run_id)
    assert offered() == ["resume", "cancel"]
    runs.cancel(run.run_id)
    assert offered() == []
    assert 'name="action"' not in logged_in(rita).get(f"{RUNS}{run.pk}/change/").text


def test_a_case_whose_time_is_over_says_so(ask: Ask, rita: Any) -> None:
    clock = FixedClock(get_clock().now())
    approval = ask()
    Approval.objects.filter(pk=approval.pk).update(expires_at=clock.now() + timedelta(hours=1))
    client = logged_in(rita)
    previous = set_clock(clock)
    try:
        assert "time is over" not in client.get(APPROVALS).text
        clock.advance(3601)
        assert "time is over" in client.get(APPROVALS).text
        response = post(client, APPROVALS, "approve", approval)
    finally:
        set_clock(previous)
    assert "it counts as a no" in told(response)[-1]
