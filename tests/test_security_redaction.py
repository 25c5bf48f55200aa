"""Secrets are hidden from people and from nothing else: what runs, is stored and sent are the originals."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.core import checks
from django.core.management import CommandError, call_command
from django.test import Client as Browser

from anvil_django import Agent, ApprovalRequiredError, ToolContext, approvals, redaction, register, tool
from anvil_django.agents import unregister
from anvil_django.checkpoint import AgentCheckpoint
from anvil_django.drive import start_run
from anvil_django.errors import RedactedCheckpointError
from anvil_django.models import Approval
from anvil_django.stores import DjangoStateStore
from anvil_django.tasks import advance
from anvil_django.testing import ScriptedMessagesAPI, say, tool_call

from .rest import APPROVALS, RUNS, client_of, person, problem

pytestmark = pytest.mark.django_db(transaction=True)

SECRET = "hunter2-correct-horse"
CASE = "/admin/anvil_django/approval/"
ARGUMENTS = {"host": "db.example.com", "password": SECRET, "cards": [{"card_number": 4111111111111111}]}
ran: list[dict[str, Any]] = []


@tool(side_effect=True)
def connect(host: str, password: str, cards: list[dict[str, Any]], ctx: ToolContext) -> dict[str, str]:
    """Connect to a host, once a person has agreed."""
    if not ctx.approved:
        raise ApprovalRequiredError({"for": host, "apiKey": SECRET})
    ran.append({"host": host, "password": password, "cards": cards})
    return {"host": host, "accessToken": f"{SECRET}-session"}


@pytest.fixture(autouse=True)
def agent() -> Iterator[None]:
    ran.clear()
    register(Agent(name="dba", model="claude-sonnet-5-5", tools=[connect]))
    yield
    unregister("dba")


@pytest.fixture
def carla() -> Any:
    return person("carla", "add_run")


@pytest.fixture
def rita() -> Any:
    user = person("rita", "decide_approval", "view_run")
    type(user).objects.filter(pk=user.pk).update(is_staff=True)
    return type(user).objects.get(pk=user.pk)


@pytest.fixture
def case(messages_api: ScriptedMessagesAPI, carla: Any) -> Approval:
    """A call with secrets that waits."""
    messages_api.script(say(tool_call("connect", ARGUMENTS, id="toolu_1")), match="[r]")
    start_run("dba", "Connect. [r]", user=carla, run_id="r", metadata={"team": "ops", "api-key": SECRET})
    assert advance("r") == "suspended"
    return Approval.objects.get()


def finish(api: ScriptedMessagesAPI, run_id: str = "r") -> None:
    """Advance a decided run to its end."""
    api.script(say("Connected."), match=f"[{run_id}]")
    assert advance(run_id) == "done"


def browser(user: Any) -> Browser:
    client = Browser()
    client.force_login(user)
    return client


def shown_everywhere(case: Approval, carla: Any, rita: Any) -> dict[str, str]:
    """What each channel shows of a case and its run."""
    owner, reviewer, admin = client_of(carla), client_of(rita), browser(rita)
    parts = ("", "messages/", "calls/", "checkpoint/", "events/")
    texts = {f"run {part}": owner.get(f"{RUNS}r/{part}").content.decode() for part in parts}
    stream = owner.get(f"{RUNS}r/events/", headers={"Accept": "text/event-stream"})
    if case.run.finished_at is not None:
        texts["stream"] = b"".join(stream.streaming_content).decode()
    stream.close()
    texts["runs"] = owner.get(RUNS).content.decode()
    texts["cases"] = reviewer.get(f"{APPROVALS}?status=all").content.decode()
    texts["case"] = reviewer.get(f"{APPROVALS}{case.pk}/").content.decode()
    pages = [
        f"{CASE}?status=all",
        f"{CASE}{case.pk}/change/",
        f"/admin/anvil_django/run/{case.run_id}/change/",
    ]
    if case.decided_at is None:
        pages += [f"{CASE}{case.pk}/decide/{action}/" for action in ("approve", "edit", "answer", "reject")]
    for page in pages:
        response = admin.get(page)
        assert response.status_code == 200, page
        texts[page] = response.text
    for options in (["list", "--status", "all"], ["list", "--status", "all", "--json"]):
        out = io.StringIO()
        call_command("anvil_approvals", *options, stdout=out)
        texts[" ".join(options)] = out.getvalue()
    return texts


def test_secrets_are_shown_in_no_channel_and_the_originals_run(
    case: Approval, carla: Any, rita: Any, messages_api: ScriptedMessagesAPI
) -> None:
    before = shown_everywhere(case, carla, rita)
    approvals.approve(case, user=rita)
    finish(messages_api)
    case.refresh_from_db()
    case.run.refresh_from_db()
    after = shown_everywhere(case, carla, rita)

    for channel, text in [*before.items(), *after.items()]:
        assert SECRET not in text, channel
        assert "4111111111111111" not in text, channel
        if not channel.startswith(("stream", "run events/")) or channel in before:
            assert "[redacted" in text, channel
    assert ran == [ARGUMENTS]
    result = json.dumps(messages_api.requests[-1].body["messages"][-1])
    assert f"{SECRET}-session" in result  # The model is told the tool's result as it is.
    assert json.loads(case.call.input) == ARGUMENTS


def test_an_edit_of_something_else_keeps_the_original_secret_in_the_admin(
    case: Approval, rita: Any, messages_api: ScriptedMessagesAPI
) -> None:
    admin, url = browser(rita), f"{CASE}{case.pk}/decide/edit/"
    text = admin.get(url).context["form"].initial["arguments"]
    edited = json.dumps(json.loads(text) | {"host": "db2.example.com"})

    preview = admin.post(url, {"arguments": edited, "reason": ""})
    assert SECRET not in preview.text
    assert "db2.example.com" in preview.text
    assert admin.post(url, {"arguments": edited, "reason": "", "confirmed": "yes"}).status_code == 302

    finish(messages_api)
    assert ran == [ARGUMENTS | {"host": "db2.example.com"}]


def test_an_edit_of_something_else_keeps_the_original_secret_over_rest_and_in_a_shell(
    case: Approval, rita: Any, messages_api: ScriptedMessagesAPI
) -> None:
    client = client_of(rita)
    seen = client.get(f"{APPROVALS}{case.pk}/").json()
    assert seen["redacted"] == ["password", "cards.0.card_number"]
    out = io.StringIO()
    call_command("anvil_approvals", "list", "--json", stdout=out)
    assert json.loads(out.getvalue())[0]["input"] == seen["input"]

    edited = seen["input"] | {"host": "db2.example.com", "cards": [{"n": 1}, *seen["input"]["cards"]]}
    response = client.post(f"{APPROVALS}{case.pk}/approve/", {"edited_input": edited}, format="json")

    assert response.status_code == 200, response.content
    assert SECRET not in response.content.decode()
    finish(messages_api)
    # Each mark stands for its value, wherever it is moved to.
    assert ran == [{"host": "db2.example.com", "password": SECRET, "cards": [{"n": 1}, *ARGUMENTS["cards"]]}]


@pytest.mark.parametrize("mark", ["[redacted]", "[redacted 0123456789ab]", "x {} y"])
def test_a_mark_that_stands_for_nothing_is_never_run(case: Approval, rita: Any, mark: str) -> None:
    client = client_of(rita)
    seen = client.get(f"{APPROVALS}{case.pk}/").json()["input"]
    edited = seen | {"password": mark.format(seen["password"])}

    response = client.post(f"{APPROVALS}{case.pk}/approve/", {"edited_input": edited}, format="json")

    assert problem(response, 422, "decision_unfit")
    case.refresh_from_db()
    assert case.status == "pending"
    with pytest.raises(CommandError):
        call_command("anvil_approvals", "approve", str(case.pk), user="rita", edit=json.dumps(edited))
    assert ran == []


def test_a_secret_that_a_reviewer_changes_is_hidden_too_and_is_what_runs(
    case: Approval, rita: Any, carla: Any, messages_api: ScriptedMessagesAPI
) -> None:
    approvals.approve(case, user=rita, edited_input=ARGUMENTS | {"password": "brand-new-secret"})
    texts = shown_everywhere(case, carla, rita)
    finish(messages_api)
    texts |= {f"after {name}": text for name, text in shown_everywhere(case, carla, rita).items()}

    assert [name for name, text in texts.items() if "brand-new-secret" in text or SECRET in text] == []
    assert ran[0]["password"] == "brand-new-secret"


def test_text_that_looks_like_a_mark_is_told_apart_and_runs_as_it_is(
    messages_api: ScriptedMessagesAPI, rita: Any
) -> None:
    forged = {"host": "[redacted 0123456789ab]", "password": "", "cards": []}
    messages_api.script(say(tool_call("connect", forged)), match="[f]")
    start_run("dba", "Connect. [f]", run_id="f")
    advance("f")
    case = Approval.objects.get(run__run_id="f")
    assert client_of(rita).get(f"{APPROVALS}{case.pk}/").json()["redacted"] == []
    assert "Hidden here" not in browser(rita).get(f"{CASE}{case.pk}/change/").text

    approvals.approve(case, user=rita, edited_input=forged | {"cards": [{"n": 1}]})
    finish(messages_api, "f")
    assert ran == [forged | {"cards": [{"n": 1}]}]


def test_a_mark_says_what_is_hidden_next_to_the_arguments(case: Approval, rita: Any) -> None:
    page = browser(rita).get(f"{CASE}{case.pk}/change/").text
    assert "Hidden here, but run as it is: password, cards.0.card_number" in page


def test_no_run_can_go_on_with_a_checkpoint_in_which_something_is_hidden(case: Approval, carla: Any) -> None:
    shown = client_of(carla).get(f"{RUNS}r/checkpoint/").json()
    assert shown["redacted"] is True
    with pytest.raises(RedactedCheckpointError):
        AgentCheckpoint.from_dict(shown)
    stored = DjangoStateStore().load("r")
    assert stored is not None
    assert stored.messages[1]["content"][0]["input"] == ARGUMENTS


def hide_hosts(tool: str, path: tuple[str | int, ...], value: Any) -> Any:
    if tool == "connect" and path == ("password",):
        raise KeyError(value)
    return value.split(".")[0] if path == ("host",) else value


def test_a_function_of_the_site_decides_instead_and_hides_what_it_fails_for(
    case: Approval, rita: Any, settings: Any, messages_api: ScriptedMessagesAPI
) -> None:
    settings.ANVIL = {"REDACT": f"{__name__}.hide_hosts"}
    assert checks.run_checks(tags=["compatibility"]) == []
    seen = client_of(rita).get(f"{APPROVALS}{case.pk}/").json()
    assert seen["redacted"] == ["host", "password"]
    assert seen["input"]["host"].startswith("db [redacted ")
    assert seen["input"]["cards"] == ARGUMENTS["cards"]

    edited = seen["input"] | {"cards": []}
    approvals.approve(case, user=rita, edited_input=edited)
    finish(messages_api)
    assert ran == [ARGUMENTS | {"cards": []}]


def test_nothing_is_hidden_where_the_site_says_so(
    case: Approval, rita: Any, carla: Any, settings: Any
) -> None:
    settings.ANVIL = {"REDACT": []}
    assert client_of(rita).get(f"{APPROVALS}{case.pk}/").json()["input"] == ARGUMENTS
    shown = client_of(carla).get(f"{RUNS}r/checkpoint/").json()
    assert AgentCheckpoint.from_dict(shown).messages[1]["content"][0]["input"] == ARGUMENTS


@pytest.mark.parametrize("value", ["password", 7, ["a", ""], "no.such.module.function", "os.sep"])
def test_a_bad_setting_is_reported(settings: Any, value: Any) -> None:
    settings.ANVIL = {"REDACT": value}
    found = [message for message in checks.run_checks(tags=["compatibility"]) if "REDACT" in message.msg]
    assert [message.id for message in found] in (["anvil_django.E001"], ["anvil_django.E007"])
    assert found[0].hint


@pytest.mark.parametrize(
    "key",
    [
        *(
            "password",
            "PASSWORD",
            "dbPassword",
            "new-password",
            "oldpassword",
            "apiKey",
            "X-Api-Key",
            "APIKey",
        ),
        *("accessToken", "Authorization", "client_secret", "card number", "Set-Cookie", "private_key"),
    ],
)
def test_a_key_that_names_a_secret_is_found_in_any_spelling(key: str) -> None:
    assert redaction.shown("", {"a": [{key: "x"}]}) == {"a": [{key: redaction.MARK}]}
    text = f"It was run with: {json.dumps({key: 'x', 'n': 1})}"
    assert redaction.shown("", text) == text.replace('"x"', f'"{redaction.MARK}"')


@pytest.mark.parametrize("key", ["max_tokens", "tokens", "author", "secretary", "compass", "keyboard", "pin"])
def test_other_keys_are_left_alone(key: str) -> None:
    assert redaction.shown("", {key: "x"}) == {key: "x"}


def test_a_result_that_was_cut_hides_its_secrets_too() -> None:
    cut = json.dumps({"rows": [{"password": "abc", "n": 1}, {"password": "abcdef"}]})[:-6]
    assert "abc" not in redaction.shown("", cut)
    assert redaction.shown("", {"password": None, "token": False, "secret": ""}) == {
        "password": None,
        "token": False,
        "secret": "",
    }
