"""Every line that a reader is told to type: it calls what there is, with options that there are."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
from django.core.exceptions import ValidationError
from django.core.management import CommandError, get_commands, load_command_class
from django.http import QueryDict
from django.urls import resolve

from anvil_django.api.lists import ApprovalQuery, RunQuery
from anvil_django.api.views import AgentViewSet, ApprovalViewSet, RunViewSet
from anvil_django.testing import killpoints

from .blocks import ROOT, Block, every
from .test_block_rules import is_shell

GENERATED = "docs/reference/commands.md"
"""Its lines are patterns (``AGENT TEXT [options]``), written from the parsers themselves."""
KNOWN = {"export", "pkill", "django-admin"}
"""What is the reader's own: the test of the quickstart runs it."""


def lines() -> Iterator[tuple[Block, str]]:
    """Each command line, with what continues it."""
    for block in every():
        if is_shell(block) and block.page != GENERATED:
            for line in re.sub(r"\\\n\s*", "", block.text).splitlines():
                if line.strip():
                    yield block, line.strip()


def words_of(line: str) -> list[str]:
    return shlex.split(line, comments=True)


LINES = sorted({(block.page, line) for block, line in lines()})


@pytest.mark.parametrize(("page", "line"), LINES)
def test_a_line_can_be_typed(page: str, line: str) -> None:
    for part in re.split(r"\s*;\s+", line) if "pkill" in line else [line]:
        words = words_of(part)
        while words and re.fullmatch(r"[A-Za-z_]+=.*", words[0], re.DOTALL):
            check_variable(words.pop(0))
        if words:
            CHECKS.get(words[0], check_known)(words)


def check_variable(word: str) -> None:
    name, _, value = word.partition("=")
    if name == killpoints.AT:
        assert killpoints.read_points(value)
    else:
        assert name in {killpoints.ONCE, "Q_CLUSTER_NAME", "runs", "api", "approvals", "json"}, word


def check_known(words: list[str]) -> None:
    assert words[0] in KNOWN, words


def check_python(words: list[str]) -> None:
    if words[1] == "-m":
        name = words[2].replace(".", "/")
        assert (ROOT / f"{name}.py").is_file() or (ROOT / name / "__main__.py").is_file(), words
        return
    assert words[1] == "manage.py"
    name = words[2]
    app = get_commands().get(name, "")
    assert app, f"there is no command {name}"
    if not name.startswith("anvil_"):
        return  # Django's and django-q2's own.
    if ">" in words:
        words = words[: words.index(">")]
    parser = load_command_class("anvil_django", name).create_parser("manage.py", name)
    parser.parse_args(words[3:])


def check_make(words: list[str]) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    asked = [word for word in words[1:] if "=" not in word]
    assert asked, words
    assert set(asked) <= set(targets), words
    for word in words[1:]:
        if "=" in word:
            assert word.partition("=")[0] in (ROOT / "Makefile").read_text(), word


OTHERS = {"anthropic", "opentelemetry-sdk", "opentelemetry-exporter-otlp"}
"""Packages of others that a page has the reader install."""


def check_pip(words: list[str]) -> None:
    assert words[1] == "install"
    project = (ROOT / "pyproject.toml").read_text()
    for word in words[2:]:
        name, _, extra = word.rstrip("]").partition("[")
        assert name in {"anvil-django", "--upgrade", *OTHERS}, word
        if name == "anvil-django" and extra:
            assert re.search(rf"^{extra} = \[", project, re.MULTILINE), word


VARIABLES = {
    "$runs": "https://mysite.example/api/agents/v1/runs",
    "$api": "https://mysite.example/api/agents/v1/approvals",
    "$approvals": "https://mysite.example/api/agents/v1/approvals",
}


def check_curl(words: list[str]) -> None:
    body = words[words.index("-d") + 1] if "-d" in words else None
    method = words[words.index("-X") + 1] if "-X" in words else "GET" if body is None else "POST"
    (address,) = [word for word in words if word.startswith(("https://", *VARIABLES))]
    for variable, value in VARIABLES.items():
        address = address.replace(variable, value)
    parts = urlsplit(address)
    found = resolve(parts.path.replace("/ID/", "/some-run/"))
    view = {"agent": AgentViewSet, "run": RunViewSet, "approval": ApprovalViewSet}[
        str(found.url_name).partition("-")[0]
    ]
    action = found.func.actions.get(method.lower())  # type: ignore[attr-defined]
    assert action, f"{method} {parts.path} is not allowed"
    if method == "POST":
        request = view.request_serializers[action](data=json.loads(body or "{}"))
        if not request.is_valid():
            raise ValidationError(f"{body}: {request.errors}")
    if parts.query:
        assert view is not AgentViewSet
        query = (RunQuery if view is RunViewSet else ApprovalQuery)(data=QueryDict(parts.query))
        assert query.is_valid(), query.errors


CHECKS = {
    "python": check_python,
    "make": check_make,
    "pip": check_pip,
    "curl": check_curl,
}


def test_lines_of_each_kind_are_read() -> None:
    kinds = {words[0] for _, line in LINES if (words := words_of(line))}
    assert set(CHECKS) <= kinds
    assert len(LINES) > 50


@pytest.mark.parametrize(
    "line",
    [
        "python manage.py anvil_runs --nonsense",
        "python manage.py anvil_nonsense",
        "make nonsense",
        "pip install anvil-django[nonsense]",
        "curl -u a:b -d '{\"nonsense\": 1}' https://mysite.example/api/agents/v1/runs/",
        "curl -X DELETE https://mysite.example/api/agents/v1/runs/ID/",
        "curl 'https://mysite.example/api/agents/v1/runs/?status=nonsense'",
        "nonsense",
    ],
)
def test_a_line_that_is_wrong_is_found(line: str) -> None:
    with pytest.raises((AssertionError, CommandError, ValidationError)):
        test_a_line_can_be_typed("", line)
