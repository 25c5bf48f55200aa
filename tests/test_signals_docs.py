"""docs/signals.md says what signals there are, what they carry, and that they come after the commit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core import mail
from django.dispatch import Signal

from anvil_django import approvals, models, runs, signals, start_run, tasks
from anvil_django.models import Run
from anvil_django.testing import ScriptedMessagesAPI, say, tool_call

from .world import registered_agent, reviewer

pytestmark = pytest.mark.django_db

TEXT = (Path(__file__).resolve().parent.parent / "docs" / "signals.md").read_text()
ROWS = {
    name: (sender, set(re.findall(r"`(\w+)`", arguments)))
    for name, sender, arguments in re.findall(
        r"^\| `(\w+)` \| `(\w+)` \|[^|]*\|([^|]*)\|$", TEXT, re.MULTILINE
    )
}
SIGNALS = {name: value for name, value in vars(signals).items() if isinstance(value, Signal)}


@pytest.fixture
def heard() -> Iterator[list[tuple[str, str, set[str]]]]:
    """Signals that were sent: name, sender and arguments."""
    found: list[tuple[str, str, set[str]]] = []
    receivers = []
    for name, signal in SIGNALS.items():

        def hear(sender: Any, _name: str = name, **kwargs: Any) -> None:
            found.append((_name, sender.__name__, set(kwargs) - {"signal"}))

        receivers.append((signal, hear))
        signal.connect(hear)
    with registered_agent():
        yield found
    for signal, hear in receivers:
        signal.disconnect(hear)


def test_every_signal_is_documented_and_told_with_what_the_docs_say(
    heard: list[tuple[str, str, set[str]]],
    messages_api: ScriptedMessagesAPI,
    django_capture_on_commit_callbacks: Any,
) -> None:
    messages_api.script(say(tool_call("deploy", {"version": "1"})), say("Done."))
    with django_capture_on_commit_callbacks() as later:
        start_run("worldly", "Deploy.", run_id="r1")
        tasks.advance("r1")
        approvals.approve(models.Approval.objects.get(), user=reviewer(), channel="code")
        tasks.advance("r1")
    assert heard == []  # Nothing before the commit.
    for callback in later:
        callback()

    assert [name for name, *_ in heard] == ["approval_requested", "approval_decided", "run_ended"]
    assert {name: (sender, arguments) for name, sender, arguments in heard} == ROWS
    assert set(ROWS) == set(SIGNALS)


def test_a_run_that_the_sweep_gives_up_has_ended(
    heard: list[tuple[str, str, set[str]]], django_capture_on_commit_callbacks: Any
) -> None:
    start_run("worldly", "Hello.", run_id="r1")
    Run.objects.update(status="running", token=1, lease_owner="elsewhere/1/2/3/a", recoveries=99)
    with django_capture_on_commit_callbacks(execute=True):
        assert len(list(runs.recover())) == 1

    assert (runs.get("r1").status, heard) == ("failed", [("run_ended", "Run", {"run"})])


def test_the_example_tells_of_failures(
    heard: list[tuple[str, str, set[str]]], settings: Any, django_capture_on_commit_callbacks: Any
) -> None:
    settings.ADMINS = [("Ann", "ann@example.com")]
    (code,) = re.findall(r"```python\n# shop/signals.py\n(.*?)```", TEXT, re.DOTALL)
    names: dict[str, Any] = {"__name__": "docs"}
    exec(compile(code, "signals.md", "exec", dont_inherit=True), names)
    start_run("worldly", "Hello.", run_id="r1")
    Run.objects.update(status="running", token=1, lease_owner="elsewhere/1/2/3/a", recoveries=99)
    with django_capture_on_commit_callbacks(execute=True):
        list(runs.recover())

    assert [message.subject for message in mail.outbox] == ["[Django] Run r1 has failed"]
