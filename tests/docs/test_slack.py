"""docs/howto/slack.md: a case is posted to a channel, and its buttons decide in a person's own name."""

from __future__ import annotations

import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client, override_settings

from anvil_django.models import Approval, Decision
from anvil_django.signals import approval_requested
from anvil_django.testing import ScriptedMessagesAPI

from .. import cases
from ..rest import person
from . import blocks

PAGE = "docs/howto/slack.md"
SECRET = "8f742231b10e8888abcd99yyyzzz85a5"

pytestmark = pytest.mark.django_db(transaction=True)


class Channel(BaseHTTPRequestHandler):
    """What Slack's incoming webhook takes."""

    posted: list[dict[str, Any]] = []

    def do_POST(self) -> None:
        self.posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def browser(monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A client of a site that is set up as the page says."""
    server = HTTPServer(("127.0.0.1", 0), Channel)
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.setenv("SLACK_WEBHOOK", f"http://127.0.0.1:{server.server_port}/")
    monkeypatch.setenv("SLACK_SIGNING_SECRET", SECRET)
    Channel.posted.clear()
    settings = blocks.names(blocks.find(PAGE, "settings.py"))
    labels = ("slack/receivers.py", "slack/views.py", "urls.py")
    with blocks.modules(PAGE, *labels) as (receivers, _, urls):
        changed = {key: value for key, value in settings.items() if key.isupper()}
        try:
            with override_settings(ROOT_URLCONF=tuple(urls.urlpatterns), **changed), cases.bank():
                yield Client(enforce_csrf_checks=True)
        finally:
            approval_requested.disconnect(receivers.ask)
            server.shutdown()
            server.server_close()


def press(browser: Client, action: str, value: str, *, slack_user: str = "U024BE7LH", **changed: Any) -> Any:
    payload = {"user": {"id": slack_user}, "actions": [{"action_id": action, "value": value}]}
    sent = str(changed.get("sent", int(time.time())))
    body = urlencode({"payload": json.dumps(payload)})
    secret = changed.get("secret", SECRET).encode()
    signature = hmac.new(secret, f"v0:{sent}:{body}".encode(), hashlib.sha256).hexdigest()
    headers = {"X-Slack-Request-Timestamp": sent, "X-Slack-Signature": f"v0={signature}"}
    return browser.post("/slack/", body, content_type="application/x-www-form-urlencoded", headers=headers)


def button(action: str) -> str:
    """The value of a button of the last message."""
    elements = Channel.posted[-1]["blocks"][1]["elements"]
    (value,) = [each["value"] for each in elements if each["action_id"] == action]
    return str(value)


def test_a_case_is_posted_and_decided_in_slack(browser: Client, messages_api: ScriptedMessagesAPI) -> None:
    person("rita", "decide_approval")
    case = cases.ask(messages_api)

    (message,) = Channel.posted
    assert f"https://mysite.example/admin/anvil_django/approval/{case.pk}/change/" in json.dumps(message)
    assert "deploy" in message["text"]
    assert '"version": "1.2"' in message["blocks"][0]["text"]["text"]

    answer = press(browser, "approve", button("approve"))
    again = press(browser, "reject", button("reject"))

    assert answer.json()["text"] == f"Case {case.pk}: approved by rita."
    assert "already" in again.json()["text"]
    (decision,) = Decision.objects.all()
    assert (decision.reviewer, decision.verdict, decision.channel) == ("rita", "approved", "code")


def test_a_case_is_rejected_in_slack(browser: Client, messages_api: ScriptedMessagesAPI) -> None:
    person("rita", "decide_approval")
    case = cases.ask(messages_api)

    assert press(browser, "reject", button("reject")).json()["text"] == f"Case {case.pk}: rejected by rita."


def test_what_slack_has_not_signed_just_now_decides_nothing(
    browser: Client, messages_api: ScriptedMessagesAPI
) -> None:
    person("rita", "decide_approval")
    cases.ask(messages_api)
    value = button("approve")

    assert press(browser, "approve", value, secret="another").status_code == 403
    assert press(browser, "approve", value, sent=int(time.time()) - 301).status_code == 403
    assert press(browser, "approve", value, sent="now").status_code == 403
    assert browser.post("/slack/", {"payload": "{}"}).status_code == 403
    assert not Decision.objects.exists()


def test_an_account_that_is_not_linked_or_may_not_decide_decides_nothing(
    browser: Client, messages_api: ScriptedMessagesAPI
) -> None:
    cases.ask(messages_api)
    value = button("approve")

    assert "not linked" in press(browser, "approve", value).json()["text"]  # There is no rita.
    person("rita")
    assert "permission" in press(browser, "approve", value).json()["text"]
    assert "not linked" in press(browser, "approve", value, slack_user="U1").json()["text"]
    assert not Decision.objects.exists()


def test_a_yes_to_something_else_than_was_read_is_refused(
    browser: Client, messages_api: ScriptedMessagesAPI
) -> None:
    person("rita", "decide_approval")
    case = cases.ask(messages_api)

    answer = press(browser, "approve", f"{case.pk}:{'0' * 64}")

    assert "Read it again" in answer.json()["text"]
    assert Approval.objects.get().status == "pending"
