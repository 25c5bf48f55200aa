"""The page of one case: what it shows, and the verdicts given from it."""

from __future__ import annotations

import html
import re
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from anvil_django import Agent, approvals, register, start_run, tasks
from anvil_django.admin.diffs import MOST_LINES, compare, diff
from anvil_django.admin.rendering import editable
from anvil_django.agents import unregister
from anvil_django.clock import get_clock
from anvil_django.models import Approval, Decision
from anvil_django.testing import ScriptedMessagesAPI, say, tool_call

from .teller import APPROVALS, HOSTILE, Ask, done, goes_on, logged_in, person, status, told, wire

pytestmark = pytest.mark.django_db

ACTIONS = ["approve", "edit", "answer", "reject"]


def url(approval: Approval, page: str = "change") -> str:
    return f"{APPROVALS}{approval.pk}/{page}/"


def give(client: Client, approval: Approval, action: str, **data: Any) -> Any:
    """Send the form of a verdict as its page does."""
    client.cookies.pop("messages", None)
    values = {"confirmed": "yes", "seen": f"{approval.pk}:{approval.digest}", "reason": "", **data}
    return client.post(url(approval, f"decide/{action}"), values)


def plain(response: Any) -> str:
    """The text of a page without its tags."""
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", response.text)))


# Who.


@pytest.mark.parametrize("action", [*(f"decide/{action}" for action in ACTIONS), "claim", "release"])
@pytest.mark.parametrize(
    ("who", "message"),
    [
        ("anonymous", ""),
        ("no permission", ""),
        ("not staff", ""),
        ("view only", "You need the permission “Can decide approvals”."),
        ("the requester", "You started this run, so somebody else has to decide."),
        ("an outsider", "This case is for treasury."),
        ("a superuser", "This case is for treasury."),
    ],
)
def test_whoever_may_not_decide_has_no_effect_and_is_told_why(
    ask: Ask, who: str, message: str, action: str
) -> None:
    requester = person("carl", "decide_approval", "view_approval", group="treasury")
    approval = ask(name="borrow", user=requester)
    clara = person("clara", "decide_approval", group="treasury")
    if action == "release":
        approvals.claim(approval, user=clara)
    match who:
        case "anonymous":
            client = Client()
        case "no permission":
            client = logged_in(person("sam"))
        case "not staff":
            client = logged_in(person("nora", "decide_approval", group="treasury", is_staff=False))
        case "view only":
            client = logged_in(person("vera", "view_approval", "change_approval", group="treasury"))
        case "the requester":
            client = logged_in(requester)
        case "an outsider":
            client = logged_in(person("olaf", "decide_approval", "view_approval"))
        case _:
            client = logged_in(get_user_model().objects.create_superuser("root"))
    data = {
        "confirmed": "yes",
        "reason": "because",
        "answer": "x",
        "arguments": '{"account": "X", "amount": 1}',
        "seen": f"{approval.pk}:{approval.digest}",
    }
    client.get(url(approval, action))
    client.cookies.pop("messages", None)
    response = client.post(url(approval, action), data)
    if message:
        assert told(response) == [message]
        assert response["Location"] == url(approval)
        assert "/decide/" not in client.get(url(approval)).text
    elif who == "no permission":
        assert response.status_code == 403
    else:
        assert response["Location"].startswith("/admin/login/")
    assert status(approval) == "pending"
    assert approval.claimed_name == ("clara" if action == "release" else "")
    assert not Decision.objects.exists()


@pytest.mark.parametrize("action", [*(f"decide/{action}" for action in ACTIONS), "claim"])
def test_following_a_link_decides_and_claims_nothing(ask: Ask, rita: Any, action: str) -> None:
    approval = ask()
    logged_in(rita).get(url(approval, action), {"confirmed": "yes", "reason": "x", "answer": "x"})
    assert status(approval) == "pending"
    assert approval.claimed_by is None


def test_a_forged_request_from_another_site_is_refused(ask: Ask, rita: Any) -> None:
    approval = ask()
    client = Client(enforce_csrf_checks=True)
    client.force_login(rita)
    for action in ("decide/approve", "claim"):
        assert client.post(url(approval, action), {"confirmed": "yes", "reason": ""}).status_code == 403
    assert status(approval) == "pending"


def test_the_page_says_why_the_requester_cannot_decide(ask: Ask) -> None:
    carl = person("carl", "decide_approval", "view_approval")
    page = plain(logged_in(carl).get(url(ask(user=carl))))
    assert "You cannot decide this case: You started this run, so somebody else has to decide." in page
    assert "The tool is run once, with exactly these arguments." in page


# What it shows.


def test_the_page_shows_what_a_person_decides_by(ask: Ask, rita: Any) -> None:
    approval = ask("DE-9", 900, text="Please pay what we owe.", user=person("carl"))
    page = plain(logged_in(rita).get(url(approval)))
    for shown in (
        "teller wants to run wire (account: DE-9, amount: 900)",
        "The tool is run once, with exactly these arguments.",
        "with arguments that you change",
        "The tool is not run; the agent is told so",
        "This case is for everybody who may decide.",
        "Nobody has claimed it.",
        '"account": "DE-9"',
        "Please pay what we owe.",
        "carl",
        "Iterations: 1 of 50",
        "Cost: $",
        "One person decides.",
        "I will.",  # the conversation
    ):
        assert shown in page


def test_a_decided_case_offers_no_verdict_and_says_what_was_decided(ask: Ask, rita: Any) -> None:
    approval = ask()
    client = logged_in(rita)
    assert [a in client.get(url(approval)).text for a in ACTIONS] == [True] * 4
    approvals.reject(approval, user=person("otto", "decide_approval"), reason="Too much.")
    page = client.get(url(approval))
    assert "/decide/" not in page.text
    assert "Rejected by otto" in plain(page)
    response = client.get(url(approval, "decide/approve"))
    assert told(response) == ["It is already rejected, by otto."]


def test_a_verdict_that_does_not_fit_the_kind_or_does_not_exist_is_refused(ask: Ask, rita: Any) -> None:
    approval = ask("a@example.com", name="mail")
    client = logged_in(rita)
    response = give(client, approval, "edit", arguments='{"to": "b@example.com"}')
    assert told(response) == ["Cases of this kind cannot be decided so."]
    assert told(give(client, approval, "delete")) == ["There is no such verdict."]
    assert status(approval) == "pending"
    assert client.get(f"{APPROVALS}999999/decide/approve/")["Location"] == APPROVALS


@pytest.mark.parametrize("name", ["wire", "gift", "mail"])
def test_what_the_model_wrote_is_never_markup_on_the_pages_that_ask(ask: Ask, rita: Any, name: str) -> None:
    approval = ask(HOSTILE, name=name, text=HOSTILE)
    client = logged_in(rita)
    pages = [client.get(url(approval, f"decide/{action}")) for action in ACTIONS]
    if name == "wire":
        arguments = f'{{"account": "{HOSTILE}", "amount": 51}}'
        sent = {"arguments": arguments, "reason": "", "seen": f"{approval.pk}:{approval.digest}"}
        pages.append(client.post(url(approval, "decide/edit"), sent))
        assert "anvil-added" in pages[-1].text
    for page in pages:
        if page.status_code == 200:
            assert "&lt;script&gt;alert" in page.text
        assert "<script>alert" not in page.text
        assert "<img src=x" not in page.text
        assert " style=" not in page.text


def test_deceptive_characters_are_seen_next_to_the_arguments_that_are_edited_and_inside(
    ask: Ask, rita: Any
) -> None:
    approval = ask("DE-1\u202e7-ED p\u0430ypal")
    page = logged_in(rita).get(url(approval, "decide/edit"))
    assert "⟦U+202E⟧" in page.text
    assert "\u0430⟦U+0430⟧" in re.sub(r"<[^>]*>", "", page.text)
    assert "\\u202e7-ED" in page.text
    assert "\u202e" not in page.text


@pytest.mark.parametrize("text", ["a\u200bb", "\U000e0041", "no⟦U⟧", "Müller", "\ud800", "a\nb"])
def test_an_escape_in_the_arguments_reads_back_as_what_was_stored(text: str) -> None:
    import json

    shown = editable({"a": [text]})
    assert json.loads(shown) == {"a": [text]}
    assert not set("\u200b\U000e0041⟦\ud800") & set(shown)


def test_the_pages_of_a_case_take_a_bounded_number_of_queries(ask: Ask, rita: Any) -> None:
    client = logged_in(rita)
    approval = ask(name="transfer")
    client.get(url(approval))
    for page in ("change", "decide/edit"):
        with CaptureQueriesContext(connection) as captured:
            assert client.get(url(approval, page)).status_code == 200
        assert len(captured) <= 20, [query["sql"][:100] for query in captured]


# Verdicts.


def test_approve_from_the_page_names_the_person_and_shows_the_outcome(
    ask: Ask, rita: Any, messages_api: ScriptedMessagesAPI
) -> None:
    approval = ask()
    client = logged_in(rita)
    assert "exactly these arguments" in client.get(url(approval, "decide/approve")).text
    response = give(client, approval, "approve", reason="It is due.", user="carl")
    assert response["Location"] == url(approval)
    assert told(response) == ["1 case was approved."]
    decision = Decision.objects.get()
    assert (decision.user, decision.channel, decision.verdict) == (rita, "admin", "approved")
    goes_on(messages_api, approval)
    assert done == ["wired 50 to DE-1"]


def test_edited_arguments_are_shown_as_a_diff_first_and_run_once_confirmed(
    ask: Ask, rita: Any, messages_api: ScriptedMessagesAPI
) -> None:
    approval = ask("DE-1", 5000)
    client = logged_in(rita)
    form = client.get(url(approval, "decide/edit")).context["form"]
    assert form["arguments"].value() == '{\n  "account": "DE-1",\n  "amount": 5000\n}'
    edited = '{"account": "DE-1", "amount": 500}'
    sent = {"arguments": edited, "reason": "A typo.", "seen": f"{approval.pk}:{approval.digest}"}
    preview = client.post(url(approval, "decide/edit"), sent)
    assert '<del class="anvil-removed">-   &quot;amount&quot;: 5000</del>' in preview.text
    assert '<ins class="anvil-added">+   &quot;amount&quot;: 500</ins>' in preview.text
    assert status(approval) == "pending"
    again = client.post(url(approval, "decide/edit"), {**sent, "confirmed": "yes", "again": "yes"})
    assert again.context["form"]["arguments"].value() == edited
    assert status(approval) == "pending"
    response = give(client, approval, "edit", arguments=edited, reason="A typo.")
    assert told(response) == ["1 case was approved with edited arguments."]
    assert "reviewer" in goes_on(messages_api, approval)
    assert done == ["wired 500 to DE-1"]
    page = plain(client.get(url(approval)))
    assert "Approved with edited arguments by rita" in page
    assert '"amount": 5000' in page
    assert '"amount": 500 ' in page


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("", "Give the arguments as a JSON object."),
        ('{"account": "DE-1", "amount": }', "This is not JSON: Expecting value, in line 1 at character 31."),
        ('{"account": "DE-1", "amount": NaN}', "This is not JSON"),
        ("[" * 100_000, "This is not JSON"),
        ('["DE-1", 5]', "The arguments must be a JSON object, in braces."),
        ('{"account": "DE-1", "amount": "much"}', "The edited arguments do not fit the tool: "),
        ('{"account": "DE-1"}', "The edited arguments do not fit the tool: "),
        ('{"account": "DE-1", "amount": 50, "to": "me"}', "The edited arguments do not fit the tool: "),
        ('{"amount": 50, "account": "DE-1"}', "Nothing is changed"),
    ],
)
def test_arguments_that_do_not_fit_are_an_error_of_their_field_and_nothing_is_lost(
    ask: Ask, rita: Any, arguments: str, error: str
) -> None:
    approval = ask()
    for confirmed in ({}, {"confirmed": "yes"}):
        sent = {"arguments": arguments, "reason": "My reason.", **confirmed}
        page = logged_in(rita).post(url(approval, "decide/edit"), sent)
        assert page.status_code == 200
        assert page.context["form"].errors["arguments"][0].startswith(error)
        assert page.context["form"]["arguments"].value() == arguments
        assert "My reason." in page.text
    assert status(approval) == "pending"


def test_a_rejection_without_a_reason_is_asked_again(ask: Ask, rita: Any) -> None:
    approval = ask()
    page = give(logged_in(rita), approval, "reject", reason="  ")
    assert "Give a reason for the rejection; it is told to the agent." in page.text
    assert status(approval) == "pending"


@pytest.mark.parametrize(
    ("action", "data", "verdict", "told_to_agent"),
    [
        ("approve", {}, "not_happened", "sent to a@example.com"),
        ("answer", {"answer": "message 17"}, "happened", "message 17"),
        ("reject", {"reason": "Nobody knows."}, "unknown", "Whether it took effect is unknown."),
    ],
)
def test_a_call_in_doubt_is_settled_in_words_of_its_own(
    ask: Ask,
    rita: Any,
    messages_api: ScriptedMessagesAPI,
    action: str,
    data: dict[str, str],
    verdict: str,
    told_to_agent: str,
) -> None:
    approval = ask("a@example.com", name="mail")
    client = logged_in(rita)
    titles = re.findall(r'class="button[^"]*" href="[^"]*">([^<]*)<', client.get(url(approval)).text)
    assert [html.unescape(title) for title in titles] == [
        "It did not happen: run it",
        "It happened: give its result",
        "Tell the agent that it is unknown",
    ]
    give(client, approval, action, **data)
    assert Decision.objects.get().verdict == verdict
    assert told_to_agent in goes_on(messages_api, approval)


# A limit.


@pytest.fixture
def limit(messages_api: ScriptedMessagesAPI) -> Any:
    """A run that has reached its limit and asks for more."""
    register(
        Agent(
            name="spender",
            model="claude-sonnet-5-5",
            system="Be good.",
            tools=[wire],
            max_iterations=1,
            on_limit="ask",
        )
    )
    messages_api.script(say(tool_call("nothing", {})), match="[limit]")
    run = start_run("spender", "Go on. [limit]", run_id="limit")
    tasks.advance("limit")
    yield Approval.objects.get(run=run)
    unregister("spender")


def test_a_limit_is_raised_by_the_amount_that_is_given(
    limit: Approval, rita: Any, messages_api: ScriptedMessagesAPI
) -> None:
    client = logged_in(rita)
    page = plain(client.get(url(limit)))
    assert "spender has used 1 of 1 iterations: may it use 1 more?" in page
    assert "Raise the limit" in page
    assert "Stop here" in page
    assert "Approve with edits" not in page
    assert client.get(url(limit, "decide/approve")).context["form"]["raise_by"].value() == "1"
    for wrong in ("", "0", "-3", "1.5", "many"):
        assert give(client, limit, "approve", raise_by=wrong).context["form"].errors["raise_by"]
    assert status(limit) == "pending"
    give(client, limit, "approve", raise_by="7")
    decision = Decision.objects.get()
    assert (decision.verdict, decision.edited_input) == ("edited", '{"raise_by":"7"}')
    messages_api.script(say("Done."), match="[limit]")
    assert tasks.advance("limit") == "done"


def test_a_run_is_stopped_at_its_limit(limit: Approval, rita: Any) -> None:
    give(logged_in(rita), limit, "reject", reason="Enough.")
    tasks.advance("limit")
    limit.run.refresh_from_db()
    assert (limit.run.status, limit.run.stop_reason) == ("done", "max_iterations")


# Several people.


def test_with_a_quorum_the_page_shows_who_has_agreed_and_to_what(
    ask: Ask, rita: Any, messages_api: ScriptedMessagesAPI
) -> None:
    approval = ask("DE-1", 5000, name="transfer")
    otto = person("otto", "decide_approval")
    client = logged_in(rita)
    assert "2 people have to agree; nobody has yet." in plain(client.get(url(approval)))
    response = give(logged_in(otto), approval, "edit", arguments='{"account": "DE-1", "amount": 500}')
    assert told(response) == ["1 case has your agreement and waits for another person's."]
    approval.refresh_from_db()
    page = client.get(url(approval))
    assert "2 people have to agree; these have: otto." in plain(page)
    assert '<del class="anvil-removed">-   &quot;amount&quot;: 5000</del>' in page.text
    assert '<ins class="anvil-added">+   &quot;amount&quot;: 500</ins>' in page.text
    assert "1 of 2" in plain(client.get(APPROVALS))
    # Who has agreed waits for the other.
    assert told(give(logged_in(otto), approval, "approve")) == [
        "You have agreed to this already; it needs another person too."
    ]
    assert told(give(client, approval, "approve")) == ["1 case was approved."]
    goes_on(messages_api, approval)
    assert done == ["moved 500 to DE-1"]


def test_a_yes_is_not_taken_for_something_else_than_was_read(ask: Ask, rita: Any) -> None:
    approval = ask("DE-1", 500, name="transfer")
    read_before = Approval.objects.get(pk=approval.pk)
    approvals.approve(
        approval,
        user=person("otto", "decide_approval"),
        edited_input={"account": "ELSEWHERE", "amount": 500},
    )
    client = logged_in(rita)
    page = give(client, read_before, "approve")
    assert "It has changed since you read it; open it again." in plain(page)
    assert "ELSEWHERE" in page.text
    unread = client.post(
        APPROVALS, {"action": "approve", "_selected_action": approval.pk, "confirmed": "yes", "reason": ""}
    )
    assert "It has changed since you read it" in told(unread)[-1]
    assert status(approval) == "pending"
    # A no is a no to whatever it is now.
    give(client, read_before, "reject", reason="Not like that.")
    assert status(approval) == "rejected"


def test_an_answer_that_others_agreed_to_is_shown_and_agreed_to(
    ask: Ask, rita: Any, messages_api: ScriptedMessagesAPI
) -> None:
    approval = ask(name="transfer")
    give(logged_in(person("otto", "decide_approval")), approval, "answer", answer="Paid in cash.")
    approval.refresh_from_db()
    client = logged_in(rita)
    page = plain(client.get(url(approval, "decide/approve")))
    assert "Paid in cash." in page
    assert "The tool is not run" in page
    give(client, approval, "approve")
    assert "Paid in cash." in goes_on(messages_api, approval)
    assert done == []


# Claims.


def test_a_claim_keeps_others_out_until_it_is_released(ask: Ask, rita: Any) -> None:
    approval = ask()
    mine, other = logged_in(rita), logged_in(person("otto", "decide_approval"))
    response = mine.post(url(approval, "claim"))
    assert told(response) == ["You have claimed this case."]
    assert "You have claimed it" in mine.get(url(approval)).text
    page = plain(other.get(url(approval)))
    assert "It is claimed by rita" in page
    assert "rita" in told(other.post(url(approval, "claim")))[0]
    other.cookies.pop("messages", None)
    assert "rita" in told(other.post(url(approval, "release")))[0]
    assert "rita" in told(give(other, approval, "approve"))[0]
    assert status(approval) == "pending"
    assert told(mine.post(url(approval, "release")))[-1] == "The case is released."
    assert told(give(other, approval, "approve")) == ["1 case was approved."]


def test_a_claim_that_is_too_old_keeps_nobody_out(ask: Ask, rita: Any) -> None:
    approval = ask()
    old = get_clock().now() - timedelta(hours=1)
    Approval.objects.filter(pk=approval.pk).update(
        claimed_by=person("clara"), claimed_name="clara", claimed_at=old
    )
    client = logged_in(rita)
    assert "clara" not in client.get(APPROVALS).text
    assert "Nobody has claimed it." in plain(client.get(url(approval)))
    assert told(give(client, approval, "approve")) == ["1 case was approved."]


def test_who_was_slower_is_told_who_decided(ask: Ask, rita: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    approval = ask()
    otto = person("otto", "decide_approval")
    first = approvals.approve

    def overtaken(case: Approval, **options: Any) -> Approval:
        approvals.reject(Approval.objects.get(pk=case.pk), user=otto, reason="No.")
        return first(case, **options)

    monkeypatch.setattr(approvals, "approve", overtaken)
    response = give(logged_in(rita), approval, "approve")
    assert "already rejected by otto" in told(response)[0]
    assert Decision.objects.get().reviewer == "otto"


# The diff.


def test_a_diff_marks_lines_by_text_and_shows_what_cannot_be_seen() -> None:
    shown = diff({"a": 1, "b": "x"}, {"a": 1, "b": "x\u200b"})
    assert '<span class="anvil-same">    &quot;a&quot;: 1,</span>' in shown
    assert "- " in shown
    assert "+ " in shown
    assert "⟦U+200B⟧" in shown


def test_a_diff_of_very_many_lines_still_shows_them_all() -> None:
    old = ["same", *(f"old {n}" for n in range(MOST_LINES + 1)), "same"]
    new = ["same", *(f"new {n}" for n in range(MOST_LINES + 1)), "same"]
    lines = list(compare(old, new))
    assert [text for sign, text in lines if sign in " -"] == old
    assert [text for sign, text in lines if sign in " +"] == new


def test_money_is_a_decimal_with_its_currency() -> None:
    from anvil_django.admin.cases import money

    assert str(money(Decimal("1.5"))) == "$1.5000"
    assert str(money(None)) == "unknown"
