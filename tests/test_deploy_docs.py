"""docs/deploy.md says what the commands do: its command lines, units, exit codes and numbers."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import load_command_class
from django.urls import resolve

from anvil_django import health, supervisor
from anvil_django.conf import Settings
from anvil_django.supervised import Options
from anvil_django.supervisor import ExitCode

TEXT = (Path(__file__).resolve().parent.parent / "docs" / "deploy.md").read_text()
BLOCKS = dict(re.findall(r"```\w+\n[#;] ([^\n]+)\n(.*?)```", TEXT, re.DOTALL))


def options_of(command: list[str]) -> dict[str, Any]:
    """The options of a command line with ``manage.py`` in it, as the command understands them."""
    at = command.index("manage.py")
    parser = load_command_class("anvil_django", command[at + 1]).create_parser("manage.py", command[at + 1])
    return vars(parser.parse_args(command[at + 2 :]))


def block(place: str) -> str:
    (name,) = [name for name in BLOCKS if place in name]
    return BLOCKS[name]


def number(text: str, key: str) -> float:
    found = re.search(rf"^{key}=(\d+)$", text, re.MULTILINE)
    assert found, f"{key} is not set"
    return float(found[1])


@pytest.mark.parametrize(
    ("place", "command", "stop"),
    [("systemd", "ExecStart", "TimeoutStopSec"), ("supervisor/", "command", "stopwaitsecs")],
)
def test_a_unit_leaves_more_time_than_the_grace_time(place: str, command: str, stop: str) -> None:
    unit = block(place)
    line = re.search(rf"^{command}=(.*)$", unit, re.MULTILINE)
    assert line
    assert options_of(shlex.split(line[1]))["grace"] < number(unit, stop)


def test_the_manifest_leaves_more_time_than_the_grace_time_and_its_probes_are_commands() -> None:
    pod = yaml.safe_load(block("agents.yaml"))["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert options_of(container["command"])["grace"] < pod["terminationGracePeriodSeconds"]
    for probe in ("startupProbe", "livenessProbe"):
        assert options_of(container[probe]["exec"]["command"])["live"] is True
    assert container["livenessProbe"]["periodSeconds"] > container["livenessProbe"]["timeoutSeconds"]
    (image,) = re.findall(r"CMD (\[.*\])", block("Dockerfile"))
    assert yaml.safe_load(image) == container["command"]


def test_the_numbers_are_those_of_the_code() -> None:
    assert f"(`--grace`, {Options.grace:g} s)" in TEXT
    assert f"for `--stall` ({Options.stall:g} s)" in TEXT
    assert f"every `--probe-every` seconds ({Options.probe_every:g})" in TEXT
    assert f"`--max-age` ({health.MAX_AGE:g} s)" in TEXT
    assert f"`--max-wait` ({health.MAX_WAIT:g} s)" in TEXT
    assert f"within {supervisor.LONG_LIFE:g} s of its start" in TEXT
    assert f"waits {', '.join(f'{s:g}' for s in supervisor.DELAYS[1:])} s in between" in TEXT
    for key in ("lease_seconds", "ticket_seconds"):
        assert f"`{key.upper()}` ({getattr(Settings(), key):g} s)" in TEXT
    assert f"`HEARTBEAT_SECONDS` ({Settings().heartbeat_seconds:g})" in TEXT


def test_every_exit_code_is_named() -> None:
    assert all(re.search(rf"code {code:d}\b", TEXT) for code in (*ExitCode, 1, 2))


def test_the_settings_for_pgbouncer_are_python() -> None:
    names: dict[str, Any] = {}
    exec(compile(block("pool_mode = transaction"), "deploy.md", "exec"), names)
    assert names["DATABASES"]["default"]["DISABLE_SERVER_SIDE_CURSORS"] is True


@pytest.mark.parametrize(
    ("place", "path"), [("urls.py", "/health/agents/"), ("urls.py, with django-health-check", "/health/")]
)
def test_the_health_pages_are_where_the_docs_say(place: str, path: str) -> None:
    names: dict[str, Any] = {}
    exec(compile(BLOCKS[place], "deploy.md", "exec"), names)
    assert resolve(path, urlconf=tuple(names["urlpatterns"])).func
