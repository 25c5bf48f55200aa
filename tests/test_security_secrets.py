"""API keys and Authorization headers are in no log, no error and no table, whatever goes wrong."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import anthropic
import pytest
from django.apps import apps
from django.core import serializers
from django.core.management import CommandError, call_command
from django.test import Client as Browser

from anvil_django import Agent, register, start_run, tasks, tool
from anvil_django.agents import unregister
from anvil_django.clients import get_client, reset_clients
from anvil_django.errors import AgentDefinitionError
from anvil_django.model_errors import ModelCallError
from anvil_django.models import Run
from anvil_django.testing import ScriptedMessagesAPI, fault, say, tool_call
from anvil_django.testing.loopback import loopback_http

from .rest import RUNS, client_of, person

pytestmark = pytest.mark.django_db(transaction=True)

# Neither looks like a key of any vendor: it is known by its value alone.
KEY = "correcthorse42battery"
HEADER = "staple77gateway"
MAKES: dict[str, Any] = {}


def made() -> Any:
    return MAKES["client"]()


@tool
def leaky() -> str:
    """Fails with a secret of its own."""
    raise RuntimeError("the vault said: open-sesame")


@pytest.fixture(autouse=True)
def site(messages_api: ScriptedMessagesAPI, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[None]:
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    settings.ANVIL = {"CLIENT": f"{__name__}.made", "MAX_MODEL_ATTEMPTS": 1, "REDACT": []}
    headers = {"x-gateway-key": HEADER, "Authorization": f"Bearer {HEADER}-bearer"}
    MAKES["client"] = lambda: anthropic.Anthropic(http_client=loopback_http(), default_headers=headers)
    register(Agent(name="keys", model="claude-sonnet-5-5", tools=[leaky]))
    yield
    unregister("keys")
    if (client := reset_clients()) is not None:
        client.close()


@pytest.fixture
def heard() -> Iterator[list[str]]:
    """Everything that any logger says, at any level, with its traceback."""
    said: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(logging.Formatter().format(record) + repr(record.__dict__))

    root, ear = logging.getLogger(), Ear(logging.NOTSET)
    names = ["", "anvil_django", "anthropic", "httpx2", "httpcore2", "django-q"]
    levels = {name: logging.getLogger(name).level for name in names}
    root.addHandler(ear)
    for name in names:
        logging.getLogger(name).setLevel(logging.DEBUG)
    yield said
    root.removeHandler(ear)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def tables() -> str:
    """All rows of ours and of the queue."""
    models = [m for label in ("anvil_django", "django_q") for m in apps.get_app_config(label).get_models()]
    return "".join(serializers.serialize("json", model._default_manager.all()) for model in models)


def everything(heard: list[str]) -> str:
    """All that is left of a run, and all that anybody is shown of it."""
    owner = client_of(Run.objects.get().user)
    parts = ("", "messages/", "calls/", "checkpoint/", "events/")
    texts = [owner.get(f"{RUNS}r/{part}").content.decode() for part in parts]
    root = person("root")
    type(root).objects.filter(pk=root.pk).update(is_superuser=True, is_staff=True)
    browser = Browser()
    browser.force_login(type(root).objects.get(pk=root.pk))
    texts += [browser.get(f"/admin/anvil_django/run/{Run.objects.get().pk}/change/").text, tables()]
    return "".join([*texts, *heard])


def echo() -> str:
    """What a careless server may say; half a key would be left where the text is cut."""
    return f"refused: x-gateway-key {HEADER}, sent {KEY} and Bearer {HEADER}-bearer".ljust(490, "x") + KEY


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429, 500, 529])
def test_an_api_that_repeats_the_key_leaks_it_nowhere(
    messages_api: ScriptedMessagesAPI, heard: list[str], status: int
) -> None:
    failing = say("x").after(fault.http(status, message=echo()))
    messages_api.add(lambda request: failing)
    start_run("keys", "Go.", user=person("carla"), run_id="r")
    tasks.advance("r")

    assert "[removed]" in Run.objects.get().error
    found = everything(heard)
    assert KEY not in found
    assert HEADER not in found


@pytest.mark.parametrize(
    "problem",
    [
        RuntimeError(f"bad key {KEY}"),
        KeyError(f"Bearer {KEY}"),
        ValueError("sk-ant-api03-abcdefghij is no key"),
    ],
)
def test_a_client_function_that_fails_with_the_key_leaks_it_nowhere(
    heard: list[str], problem: Exception
) -> None:
    def fail() -> None:
        raise problem

    MAKES["client"] = fail
    start_run("keys", "Go.", user=person("carla"), run_id="r")
    tasks.advance("r")

    assert Run.objects.get().error_code == "not_configured"
    assert "[removed]" in Run.objects.get().error
    found = everything(heard)
    assert KEY not in found
    assert "sk-ant-api03" not in found
    with pytest.raises(ModelCallError) as caught:
        get_client()
    printed = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + str(caught.value)
    assert KEY not in printed
    assert "sk-ant-api03" not in printed


def test_a_call_that_fails_in_an_unknown_way_says_where_and_not_what(heard: list[str]) -> None:
    def stream(**request: Any) -> Any:
        raise LookupError(f"no entry for {KEY}")

    MAKES["client"] = lambda: SimpleNamespace(messages=SimpleNamespace(stream=stream), close=lambda: None)
    start_run("keys", "Go.", user=person("carla"), run_id="r")
    tasks.advance("r")

    assert Run.objects.get().error_code == "unexpected"
    assert any("LookupError at" in line and "test_security_secrets.py" in line for line in heard)
    assert KEY not in everything(heard)


def test_a_run_that_goes_well_leaves_no_key_behind(
    messages_api: ScriptedMessagesAPI, heard: list[str]
) -> None:
    messages_api.script(say("Done."))
    start_run("keys", "Go.", user=person("carla"), run_id="r")
    assert tasks.advance("r") == "done"
    found = everything(heard)
    assert KEY not in found
    assert HEADER not in found


def test_a_command_that_fails_shows_no_key(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise RuntimeError(f"bad key {KEY}")

    MAKES["client"] = fail
    with pytest.raises(CommandError) as caught:
        call_command("anvil_run", "keys", "Go.", here=True)
    printed = capsys.readouterr()
    assert KEY not in printed.out + printed.err + "".join(traceback.format_exception(caught.value))


def test_what_a_tool_fails_with_is_its_result_and_is_logged_only_for_debugging(
    messages_api: ScriptedMessagesAPI, heard: list[str]
) -> None:
    messages_api.script(say(tool_call("leaky", {})), say("Oh."))
    logging.getLogger("anvil_django").setLevel(logging.INFO)
    start_run("keys", "Go.", user=person("carla"), run_id="r")
    assert tasks.advance("r") == "done"

    # By design: the message of a tool's exception is for the model. A tool must not put secrets there.
    assert "open-sesame" in str(messages_api.requests[-1].body["messages"][-1])
    ours = [line for line in heard if "'name': 'anvil_django" in line]
    assert ours
    assert not any("open-sesame" in line for line in ours)


@pytest.mark.parametrize(
    "params",
    [
        {"extra_headers": {"Authorization": "Bearer x"}},
        {"extra_headers": {"x-api-key": "x"}},
        {"mcp_servers": [{"type": "url", "url": "https://x", "authorization_token": "x"}]},
    ],
)
def test_an_agent_whose_parameters_would_store_a_credential_is_refused(params: dict[str, Any]) -> None:
    with pytest.raises(AgentDefinitionError, match="is a credential"):
        Agent(name="stored", model="claude-sonnet-5-5", params=params)


def test_parameters_that_only_name_a_credential_are_fine() -> None:
    schema = {"type": "object", "properties": {"password": {"type": "string"}}, "required": ["password"]}
    params = {"output_config": {"format": {"type": "json_schema", "schema": schema}}, "betas": ["x"]}
    assert Agent(name="schema", model="claude-sonnet-5-5", params=params).prefix["params"] == params
