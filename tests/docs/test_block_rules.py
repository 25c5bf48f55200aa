"""No block of code in the README or in docs/ is only for show: each has a rule by which it is run or checked.

- Settings are applied, and must pass our own checks.
- Other Python has a test that runs it, named here; what cannot be run is compiled, and listed with why.
- Each line of a shell is read by what it calls: our commands' own parsers, the Makefile, the API's routes.
- Whatever is in another language has a test of its own, named here.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from typing import Any
from unittest.mock import patch

import pytest
from django.db import ConnectionHandler
from django.test import override_settings

from anvil_django import checks
from anvil_django.conf import problems

from .blocks import ROOT, Block, every, names

RUN_BY = {
    "README.md": {
        "accounts/agents.py": "test_the_view_starts_a_run_of_the_agent",
        "urls.py": "test_the_urls_lead_to_the_admin_and_the_api",
        "accounts/views.py": "test_the_view_starts_a_run_of_the_agent",
        "tests/test_agents.py": "test_the_test_of_an_agent_passes",
    },
    "docs/approvals.md": {
        "chat/receivers.py": "test_a_chat_hears_of_a_case_and_decides_it",
        "chat/buttons.py": "test_a_chat_hears_of_a_case_and_decides_it",
    },
    "docs/concepts/one-idea.md": {
        "one_idea.py": "test_the_one_idea",
    },
    "docs/dashboard.md": {
        "operations/reports.py": "test_the_figures_are_there_for_code",
    },
    "docs/deploy.md": {
        "urls.py": "test_the_health_pages_are_where_the_docs_say",
        "urls.py, with django-health-check": "test_the_health_pages_are_where_the_docs_say",
    },
    "docs/howto/approvals.md": {
        "payments/agents.py": "test_the_review_options_of_a_tool_are_as_the_readme_says",
    },
    "docs/howto/clients.md": {
        "mysite/gateway.py": "test_a_gateway_is_called_with_its_key_and_header",
    },
    "docs/howto/drive.md": {
        "anywhere.py": "test_a_run_without_workers_is_approved_and_finished",
        "streaming.py": "test_the_words_of_a_run_are_streamed",
    },
    "docs/howto/exactly-once.md": {
        "shop/agents.py": "test_no_crash_does_anything_twice",
        "tests/test_refunds.py": "test_no_crash_does_anything_twice",
    },
    "docs/howto/fork.md": {
        "support/forking.py": "test_a_run_is_forked",
    },
    "docs/howto/limits.md": {
        "research/agents.py": "test_a_limit_is_raised_from_code",
        "research/raising.py": "test_a_limit_is_raised_from_code",
    },
    "docs/howto/redeploy.md": {
        "operations/resuming.py": "test_failed_runs_are_resumed_by_their_reason",
    },
    "docs/howto/slack.md": {
        "slack/receivers.py": "test_a_case_is_posted_and_decided_in_slack",
        "slack/views.py": "test_a_case_is_posted_and_decided_in_slack",
        "urls.py": "test_a_case_is_posted_and_decided_in_slack",
    },
    "docs/howto/steer.md": {
        "support/steering.py": "test_a_run_is_held_told_something_and_ended",
    },
    "docs/howto/store.md": {
        "notes/filestore.py": "TestFileStateStore",
        "tests/test_filestore.py": "TestFileStateStore",
    },
    "docs/quickstart.md": {
        "accounts/agents.py": "test_the_quickstart_works_word_for_word",
        "mysite/settings.py": "test_the_quickstart_works_word_for_word",
        "mysite/urls.py": "test_the_quickstart_works_word_for_word",
    },
    "docs/signals.md": {
        "shop/signals.py": "test_the_example_tells_of_failures",
    },
    "docs/testing.md": {
        "tests/test_support.py": "test_every_example_is_collected",
        "tests/test_support_waits.py": "test_every_example_is_collected",
        "tests/test_support_crashes.py": "test_every_example_is_collected",
        "tests/test_support_crashes_one_by_one.py": "test_every_example_is_collected",
        "tests/test_support_dies.py": "test_every_example_is_collected",
        "tests/test_store.py": "test_every_example_is_collected",
    },
    "docs/upgrading.md": {
        "shop/agents.py": ("test_the_docs_name_every_warning_and_their_example_can_be_registered"),
    },
}
"""The test that runs a block of Python, by page and by what the block's first line says it is."""

ONLY_COMPILED = {
    "docs/howto/clients.md": {
        "mysite/bedrock.py": "needs an account at AWS",
        "mysite/vertex.py": "needs an account at Google Cloud",
    },
}
"""Python that is compiled and whose imports are resolved, and why it is not run."""

READ_BY = {
    "docs/deploy.md": {
        "/etc/systemd/system/mysite-agents.service": "test_a_unit_leaves_more_time_than_the_grace_time",
        "/etc/supervisor/conf.d/mysite-agents.conf": "test_a_unit_leaves_more_time_than_the_grace_time",
        "Dockerfile": "test_the_manifest_leaves_more_time_than_the_grace_time_and_its_probes_are_commands",
        "agents.yaml": "test_the_manifest_leaves_more_time_than_the_grace_time_and_its_probes_are_commands",
    },
    "docs/howto/rest.md": {
        "<script>": "test_the_events_that_a_browser_listens_to_are_sent",
    },
}
"""The test that reads a block in another language."""

NO_CODE = {
    "docs/concepts/one-idea.md": {
        "step = next_step(checkpoint)        # CallModel, RunTool, AskPerson, Finish, ...": "a shape",
    },
    "docs/testing.md": {
        "AssertionError: 2 of 15 crashes changed what came of the run:": "what a failure looks like",
    },
}

Rules = dict[str, dict[str, str]]


def flat(rules: Rules) -> dict[str, str]:
    """The rules by the name of the block."""
    return {f"{page}: {label}": rule for page, inner in rules.items() for label, rule in inner.items()}


DIRECTIVE = re.compile(r"\{[\w:-]+\}")
SHELL = {"", "sh", "console"}


def is_settings(block: Block) -> bool:
    return block.language == "python" and re.match(r"settings\.py\b", block.label) is not None


def is_shell(block: Block) -> bool:
    return block.language in SHELL and block.name not in flat(NO_CODE)


def test_every_block_has_exactly_one_rule() -> None:
    rules = [name for each in (RUN_BY, ONLY_COMPILED, READ_BY, NO_CODE) for name in flat(each)]
    wrong = {}
    for block in every():
        found = rules.count(block.name) + is_settings(block) + is_shell(block)
        found += DIRECTIVE.fullmatch(block.language) is not None
        if found != 1:
            wrong[block.name] = found
    assert not wrong, "give each of these blocks exactly one of the rules above"
    assert set(rules) == {b.name for b in every()} & set(rules), "a rule without a block"
    assert len(flat(ONLY_COMPILED)) == 2


def test_the_tests_that_are_named_exist_and_read_the_page() -> None:
    defined: dict[str, str] = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                defined[node.name] = text
        defined |= {name: text for name in re.findall(r"\b(?:test_|Test)\w+", text) if name not in defined}
    for name, test in (flat(RUN_BY) | flat(READ_BY)).items():
        page = name.partition(":")[0].rpartition("/")[2]
        assert test in defined, f"{name}: there is no {test}"
        assert page in defined[test], f"{test} does not read {page}"


@pytest.mark.parametrize("name", flat(ONLY_COMPILED))
def test_what_is_only_compiled_can_be_imported_from(name: str) -> None:
    (block,) = [b for b in every() if b.name == name]
    names(block)
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = node.value.id
            if importlib.util.find_spec(owner):
                assert hasattr(importlib.import_module(owner), node.attr), f"{owner}.{node.attr}"


@pytest.mark.parametrize("block", [b for b in every() if is_settings(b)], ids=lambda block: block.name)
def test_settings_can_be_applied_and_pass_our_checks(block: Block, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in re.findall(r'environ\["(\w+)"\]', block.text):
        monkeypatch.setenv(variable, "given")
    found: dict[str, Any] = {key: value for key, value in names(block).items() if key.isupper()}
    assert found
    assert problems(found.get("ANVIL", {})) == []
    if "Q_CLUSTER" in found:
        with override_settings(Q_CLUSTER=found["Q_CLUSTER"], ANVIL=found.get("ANVIL", {})):
            assert checks.queue.check_queue() == []
    if "DATABASES" in found:
        databases = ConnectionHandler(found["DATABASES"])
        assert "pool" not in databases.settings["default"]["OPTIONS"]
        # The clients of the other databases need not be there.
        if databases.settings["default"]["ENGINE"].endswith("sqlite3"):
            with patch.object(checks.databases, "connections", databases):
                assert checks.databases.check_sqlite(databases=["default"]) == []
