"""Every record about a run carries its id, and the docs show how to print it."""

from __future__ import annotations

import ast
import logging
import logging.config
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anvil_django import start_run, tasks
from anvil_django.testing import ScriptedMessagesAPI, say, tool_call

from .world import registered_agent

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "anvil_django"
LEVELS = {"debug", "info", "warning", "error", "exception", "critical", "log"}

ABOUT_NO_RUN = {
    # The whole request failed; the error says of which run, if it is about one.
    ("api/problems.py", "a request failed: %s"),
    # A cluster, its supervisor, or the site's settings.
    ("pulse.py", "the supervisor of this cluster has died; the cluster stops"),
    ("queue.py", "ANVIL['CLIENT'] could not be imported: %s"),
    ("supervised.py", "%s: %s"),
    ("supervisor.py", "a cluster is started for the queue %r"),
    ("supervisor.py", "the cluster %s (exit code %s); another one in %g s"),
    ("supervisor.py", "the cluster does not answer: %s"),
    ("supervisor.py", "the cluster ended %s times in a row shortly after its start; given up"),
    ("supervisor.py", "the cluster hangs without work; it is killed"),
    ("supervisor.py", "the cluster is told to stop; it has %g s"),
    ("supervisor.py", "the cluster was not done after %g s and is killed"),
    ("supervisor.py", "the database or the broker does not answer: %s"),
    ("supervisor.py", "told again: the cluster is killed at once"),
    # The sweep as a whole, and signs of life.
    ("queue.py", "the recovery sweep of a starting worker failed; the schedule will repeat it"),
    ("tasks.py", "a part of the sweep failed; the next sweep repeats it"),
    ("tasks.py", "a recovery sweep failed; the schedule will repeat it"),
    ("tasks.py", "a sign of life was not stored"),
    # Where the run is not known: what hides values is given values, a thread its function, and a store's
    # transaction nothing.
    ("redaction.py", "ANVIL['REDACT'] failed, so a value is hidden: %s"),
    ("stores/django.py", "a function left for after the commit of an atomic tool failed"),
    ("tool_runs.py", "The database connections of a tool's thread could not be closed"),
}
"""Module and message of each record that has no run_id, and why that is right."""


def calls() -> Iterator[tuple[tuple[str, str], ast.Call]]:
    """Every call of a logger in the package, with its module and its message."""
    for path in sorted(PACKAGE.rglob("*.py")):
        where = path.relative_to(PACKAGE).as_posix()
        if where.startswith("testing/"):  # For tests of sites; it runs in none of their workers.
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            owner = ast.unparse(node.func.value)
            if node.func.attr in LEVELS and (owner == "logger" or owner.startswith("logging.getLogger")):
                message = node.args[0]
                assert isinstance(message, ast.Constant), (
                    f"{where}:{node.lineno}: the message is put together"
                )
                yield (where, message.value), node


def carries_run_id(call: ast.Call, source: str) -> bool:
    (extra,) = [keyword.value for keyword in call.keywords if keyword.arg == "extra"] or [None]
    if isinstance(extra, ast.Name):  # The same for two records.
        return f'{extra.id} = {{"run_id": ' in source
    return isinstance(extra, ast.Dict) and any(
        isinstance(key, ast.Constant) and key.value == "run_id" for key in extra.keys
    )


def test_every_record_about_a_run_carries_its_id() -> None:
    without = {place for place, call in calls() if not carries_run_id(call, (PACKAGE / place[0]).read_text())}

    assert without == ABOUT_NO_RUN


@pytest.mark.django_db
def test_a_run_can_be_followed_through_the_log(
    messages_api: ScriptedMessagesAPI, caplog: pytest.LogCaptureFixture
) -> None:
    messages_api.script(say(tool_call("broken", {"why": "smoke"})), say("Done."))
    with caplog.at_level(logging.INFO, logger="anvil_django"), registered_agent():
        start_run("worldly", "Break it.", run_id="r1")
        tasks.advance("r1")

    about = [record for record in caplog.records if getattr(record, "run_id", None) == "r1"]
    assert [record.msg.partition(":")[0] for record in about] == [
        "Model call answered",
        "Tool %s failed in call %s",
        "Model call answered",
    ]
    assert "smoke" not in "".join(record.getMessage() for record in about)


def test_the_documented_settings_print_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs" / "logs.md").read_text()
    (code,) = re.findall(r"```python\n# settings.py\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    logger = logging.getLogger("anvil_django.documented")
    ours = logging.getLogger("anvil_django")
    before = ours.level, ours.handlers[:]
    try:
        logging.config.dictConfig(names["LOGGING"])
        logger.info("hello", extra={"run_id": "r1"})
        logger.info("all is well")
    finally:
        ours.level, ours.handlers[:] = before

    said = capsys.readouterr().err.splitlines()
    assert [line.partition("documented ")[2] for line in said] == ["hello run_id=r1", "all is well run_id=-"]
    assert all(level in text for level in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"))
