"""The README's Python blocks are run, so that what a newcomer copies works; and those of the pages that it
hands its reader on to: approvals.md, databases.md, drive.md, rest.md."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from django.contrib.auth import get_user_model
from django.core import mail
from django.core.management import load_command_class
from django.db import ConnectionHandler
from django.http import QueryDict
from django.test import RequestFactory, override_settings
from django.urls import resolve

from anvil_django import ToolContext, checks, tasks
from anvil_django.agents import get_agent, unregister
from anvil_django.api.lists import ApprovalQuery, RunQuery
from anvil_django.api.serializers import RUN_LINKS
from anvil_django.api.views import ApprovalViewSet, RunViewSet
from anvil_django.conf import Settings, problems
from anvil_django.models import Run
from anvil_django.testing import say, tool_call

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", *(f"docs/howto/{name}.md" for name in ("approvals", "databases", "drive", "rest")))
TEXTS = {page: (ROOT / page).read_text() for page in PAGES}
README = TEXTS["README.md"]
ALL = "\n".join(TEXTS.values())
BLOCKS = dict(re.findall(r"```python\n# ([^\n]+)\n(.*?)```", ALL, re.DOTALL))


def block(label: str, page: str = "README.md") -> dict[str, Any]:
    """The names that a block defines; its first line says where it belongs."""
    found = dict(re.findall(r"```python\n# ([^\n]+)\n(.*?)```", TEXTS[page], re.DOTALL))
    (title,) = [label] if label in found else [title for title in found if title.startswith(label)]
    names: dict[str, Any] = {"__name__": "readme"}
    exec(compile(found[title], f"{page} ({title})", "exec", dont_inherit=True), names)
    return names


@pytest.fixture
def accounts() -> Iterator[None]:
    block("accounts/agents.py")
    yield
    unregister("accounts")


@pytest.fixture
def carla() -> Any:
    return get_user_model().objects.create_user("carla", email="carla@example.com")


CLOSE = tool_call("close_account", {"username": "carla", "reason": "She asked for it."})


def test_every_python_block_says_where_it_belongs():
    for text in TEXTS.values():
        assert len(re.findall(r"```python\n# [^\n]+\n", text)) == text.count("```python")


def test_the_settings_pass_our_own_checks():
    names = block("settings.py")

    with override_settings(Q_CLUSTER=names["Q_CLUSTER"]):
        assert checks.queue.check_queue() == []
    assert {"rest_framework", "django_q", "anvil_django"} <= set(names["INSTALLED_APPS"])


def test_the_sqlite_settings_pass_our_own_checks():
    databases = ConnectionHandler(block("settings.py: SQLite", "docs/howto/databases.md")["DATABASES"])

    with patch.object(checks.databases, "connections", databases):
        assert checks.databases.check_sqlite(databases=["default"]) == []


def test_the_postgresql_settings_have_no_pool():
    database = block("settings.py: PostgreSQL", "docs/howto/databases.md")["DATABASES"]["default"]

    assert "pool" not in database.get("OPTIONS", {})
    assert database["CONN_HEALTH_CHECKS"]


@pytest.mark.django_db
def test_the_urls_lead_to_the_admin_and_the_api():
    with override_settings(ROOT_URLCONF=tuple(block("urls.py")["urlpatterns"])):
        assert resolve("/api/agents/v1/runs/").url_name == "run-list"
        assert resolve("/admin/anvil_django/approval/").url_name == "anvil_django_approval_changelist"


@pytest.mark.django_db
def test_the_view_starts_a_run_of_the_agent(accounts, carla, messages_api):
    messages_api.script(
        say(tool_call("find_account", {"email": "carla@example.com"})),
        say(tool_call("write", {"to": "carla@example.com", "subject": "Hello", "body": "We will."})),
        say("Done."),
    )
    request = RequestFactory().post("/close/")
    request.user = carla

    response = block("accounts/views.py")["close_my_account"](request)
    tasks.advance(f"close-{carla.pk}")

    assert response.status_code == 202
    assert Run.objects.get().status == "done"
    assert mail.outbox[0].body == f"We will.\n\nReference: close-{carla.pk}:{call_ids()[1]}"


def call_ids() -> list[str]:
    return list(Run.objects.get().tool_calls.order_by("seq").values_list("call_id", flat=True))


@pytest.mark.django_db
def test_a_run_without_workers_is_approved_and_finished(accounts, carla, messages_api):
    messages_api.script(say(CLOSE), say("Closed."))

    result = block("anywhere.py", "docs/howto/drive.md")["result"]
    carla.refresh_from_db()

    assert (result.status, result.final_text) == ("done", "Closed.")
    assert not carla.is_active


@pytest.mark.django_db
def test_the_test_of_an_agent_passes(accounts, messages_api):
    names = block("tests/test_agents.py")

    names["test_an_account_is_closed_only_after_a_person_has_agreed"](messages_api)


def test_commands_named_in_the_readme_exist_with_their_options():
    lines = re.findall(r"^    python manage\.py (anvil_\w+)([^#\n]*)", ALL, re.MULTILINE)

    assert {name for name, _ in lines} == {
        "anvil_approvals",
        "anvil_health",
        "anvil_resume",
        "anvil_run",
        "anvil_runs",
        "anvil_worker",
    }
    for name, arguments in lines:
        parser = load_command_class("anvil_django", name).create_parser("manage.py", name)
        parser.parse_args(shlex.split(arguments))


def test_the_review_options_of_a_tool_are_as_the_readme_says():
    try:
        names = block("payments/agents.py", "docs/howto/approvals.md")
        agent = get_agent("payments")
    finally:
        unregister("payments")

    pay = names["pay"]
    assert (pay.reviewers, pay.approvals, pay.escalate_to, agent.on_limit) == (
        "Tellers",
        2,
        "Managers",
        "ask",
    )
    assert (pay.approval_ttl, pay.escalate_after) == (timedelta(days=1), timedelta(hours=4))
    context = ToolContext("r", "c", "k")
    assert [pay.gate(pay.validate({"iban": "DE1", "amount": n}), context).required for n in (1000, 1001)] == [
        False,
        True,
    ]


def test_the_requests_shown_for_approvals_are_requests_of_the_api():
    shown = re.findall(r"^    curl .*?(?:-d '([^']*)')? \$api/\d+/(\w+)/", ALL, re.MULTILINE)

    assert {verb for _, verb in shown} == {"approve", "reject", "answer", "settle", "claim"}
    for body, verb in shown:
        request = ApprovalViewSet.request_serializers[verb](data=json.loads(body or "{}"))
        assert request.is_valid(), (body, request.errors)
    (query,) = re.findall(r'\$api/\?([^"]+)"', ALL)
    assert ApprovalQuery(data=dict(pair.split("=") for pair in query.split("&"))).is_valid()


def test_the_requests_shown_for_runs_are_requests_of_the_api():
    more = [(ROOT / f"docs/howto/{name}.md").read_text() for name in ("steer", "fork")]
    shown_text = "\n".join([ALL, *more])
    shown = re.findall(
        r"^    curl .*?(?:-d '([^']*)' )?(?:-X POST )?\$runs/(?:ID/(\w+)/)?", shown_text, re.MULTILINE
    )

    verbs = {verb for _, verb in shown}
    assert {"messages", "fork", "cancel"} <= verbs <= {*RUN_LINKS, ""}
    for body, verb in shown:
        if body:
            action = {"": "create", "messages": "say"}.get(verb, verb)
            request = RunViewSet.request_serializers[action](data=json.loads(body))
            assert request.is_valid(), (body, request.errors)
    (query,) = re.findall(r'\$runs/\?([^"]+)"', ALL)
    assert RunQuery(data=QueryDict(query)).is_valid()


SETTINGS = re.findall(
    r"^\| `([A-Z_]+)` \| `([^`]+)` \|", (ROOT / "docs/reference/settings.md").read_text(), re.MULTILINE
)


@pytest.mark.parametrize(("key", "value"), [row for row in SETTINGS if row[0] != "REDACT"])
def test_the_table_of_settings_is_right(key, value):
    assert getattr(Settings(), key.lower()) == ast.literal_eval(value)


def test_links_lead_to_files():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


@pytest.mark.parametrize("key", [*re.findall(r"`([A-Z]+_[A-Z_]+)` \(", ALL), "QUEUE", "CLIENT"])
def test_settings_named_in_the_readme_exist(key):
    assert not problems({key: getattr(Settings(), key.lower())})


@pytest.mark.parametrize(("key", "value"), re.findall(r"`?([A-Z]+_[A-Z_]+)`? \((\d+)\)", ALL))
def test_defaults_named_in_the_readme_are_right(key, value):
    assert getattr(Settings(), key.lower()) == int(value)
