"""The code of the how-to pages is run: clients.md, drive.md, exactly-once.md, fork.md, limits.md,
redeploy.md, rest.md, steer.md, store.md; and that of concepts/one-idea.md."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from types import ModuleType
from typing import Any

import pytest

from anvil_django import Agent, register, runs, start_run, tasks
from anvil_django.agents import unregister
from anvil_django.models import Approval, Run
from anvil_django.testing import ScriptedMessagesAPI, fault, say, tool_call

from .. import cases, sse
from ..rest import client_of, person
from . import blocks

# Its tests are those of the conformance suite, for the store of the page store.md.
with blocks.modules("docs/howto/store.md", "notes/filestore.py", "tests/test_filestore.py") as _made:
    TestFileStateStore = _made[1].TestFileStateStore


@contextmanager
def page(name: str, *labels: str, agent: str = "") -> Iterator[list[ModuleType]]:
    """The modules of a page of docs/howto; the agent that they register is gone afterwards."""
    try:
        with blocks.modules(f"docs/howto/{name}", *labels) as made:
            yield made
    finally:
        if agent:
            unregister(agent)


@pytest.fixture
def helper() -> Iterator[None]:
    register(Agent(name="helper", model="claude-sonnet-5-5"))
    yield
    unregister("helper")


def test_the_one_idea() -> None:
    blocks.names(blocks.find("docs/concepts/one-idea.md", "one_idea.py"))


@pytest.mark.django_db
def test_no_crash_does_anything_twice(messages_api: ScriptedMessagesAPI) -> None:
    with page("exactly-once.md", "shop/agents.py", "tests/test_refunds.py", agent="refunds") as made:
        made[1].test_no_crash_does_anything_twice(messages_api)


@pytest.mark.django_db
def test_a_limit_is_raised_from_code(messages_api: ScriptedMessagesAPI) -> None:
    read = say(tool_call("read_page", {"address": "x"}), usage={"input_tokens": 400_000, "output_tokens": 10})
    messages_api.script(read, say("It says nothing."))
    with page("limits.md", "research/agents.py", "research/raising.py", agent="research") as made:
        run = start_run("research", "Read x.")
        tasks.advance(run.run_id)
        case = Approval.objects.get()
        assert (case.kind, case.run.status) == ("limit", "suspended")

        made[1].let_it_spend(run.run_id, Decimal("1.25"), person("rita", "decide_approval"))
        tasks.advance(run.run_id)

    run.refresh_from_db()
    assert run.status == "done"
    assert json.loads(run.limits)["max_cost_usd"] == "1.75"


@pytest.mark.django_db
def test_a_run_is_held_told_something_and_ended(messages_api: ScriptedMessagesAPI, helper: None) -> None:
    messages_api.script(say("A new lamp is on its way."))
    user = person("clerk")
    with page("steer.md", "support/steering.py") as (steering,):
        run = start_run("helper", "Refund the lamp.")
        assert steering.hold(run.run_id, user) == "queued"
        tasks.advance(run.run_id)
        ended = start_run("helper", "Another one.")
        assert steering.end(ended.run_id, user) == "cancelled"

    sent = messages_api.requests[-1].body["messages"]
    assert "new lamp, not the money" in json.dumps(sent)
    assert Run.objects.get(run_id=ended.run_id).requested_by == "clerk"


@pytest.mark.django_db
def test_a_run_is_forked(messages_api: ScriptedMessagesAPI, helper: None) -> None:
    messages_api.script(say("I refund it."))
    user = person("clerk")
    run = start_run("helper", "The lamp is broken.", run_id="lamp")
    tasks.advance(run.run_id)

    with page("fork.md", "support/forking.py") as (forking,):
        before = runs.get(forking.try_again("lamp", user))
        after = runs.get(forking.go_on_from("lamp", 1, user))

    assert (before.forked_at, before.user) == (0, user)
    assert (after.run_id, after.forked_at) == ("lamp-again", 1)
    assert [message.role for message in after.messages.order_by("seq")] == ["user", "assistant", "user"]


@pytest.mark.django_db
def test_failed_runs_are_resumed_by_their_reason(
    messages_api: ScriptedMessagesAPI, helper: None, settings: Any
) -> None:
    settings.ANVIL = settings.ANVIL | {"MAX_MODEL_ATTEMPTS": 1}
    messages_api.script(say("Hello.").after(fault.overloaded()))
    run = start_run("helper", "Hello?")
    tasks.advance(run.run_id)
    run.refresh_from_db()
    assert (run.status, run.error_code) == ("failed", "overloaded")

    with page("redeploy.md", "operations/resuming.py") as (operations,):
        assert operations.resume_after_outage("timeout") == 0
        assert operations.resume_after_outage() == 1
    tasks.advance(run.run_id)

    run.refresh_from_db()
    assert run.status == "done"


def test_the_words_of_a_run_are_streamed(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say(tool_call("look", {})), say("All is well."))
    register(Agent(name="accounts", model="claude-sonnet-5-5", tools=[cases.look]))
    try:
        with page("drive.md", "streaming.py") as (streaming,):
            assert "".join(streaming.words("How is it?")) == "[look]All is well. (done)"
    finally:
        unregister("accounts")


class _Gateway(BaseHTTPRequestHandler):
    headers_seen: list[dict[str, str]] = []

    def do_POST(self) -> None:
        self.headers_seen.append({key.lower(): value for key, value in self.headers.items()})
        self.send_response(418)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


def test_a_gateway_is_called_with_its_key_and_header(monkeypatch: pytest.MonkeyPatch) -> None:
    server = HTTPServer(("127.0.0.1", 0), _Gateway)
    Thread(target=server.handle_request, daemon=True).start()
    monkeypatch.setenv("LLM_GATEWAY_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("LLM_GATEWAY_KEY", "of-the-gateway")
    with page("clients.md", "mysite/gateway.py") as (gateway,), gateway.client() as client:
        assert client.timeout == 600
        with pytest.raises(Exception, match="418"):
            client.with_options(max_retries=0).messages.create(
                model="m", max_tokens=1, messages=[{"role": "user", "content": "Hello"}]
            )
    server.server_close()
    (seen,) = _Gateway.headers_seen
    assert any("of-the-gateway" in value for value in seen.values())
    assert seen["x-team"] == "support"


@pytest.mark.django_db(transaction=True)
def test_the_events_that_a_browser_listens_to_are_sent(
    messages_api: ScriptedMessagesAPI, settings: Any
) -> None:
    (block,) = [b for b in blocks.every() if b.page == "docs/howto/rest.md" and b.language == "html"]
    settings.ANVIL = {"EVENTS_POLL_SECONDS": 0.02}
    carla = person("carla", "add_run")
    with cases.bank():
        case = cases.ask(messages_api, user=carla)
        runs.cancel(case.run.run_id)

    address = re.findall(r'EventSource\("([^"]+)"', block.text)[0].replace("/ID/", f"/{case.run.run_id}/")
    answer = client_of(carla).get(address, headers={"Accept": "text/event-stream"})
    text = b"".join(answer.streaming_content).decode("ascii")
    sent = {event.name for event in sse.parse(iter(text.split("\n")))}

    assert set(re.findall(r'addEventListener\("([\w.]+)"', block.text)) <= sent
