"""docs/quickstart.md: its commands are typed, its files written, its workers killed; the run goes on."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from anvil_django.testing import ScriptedMessagesAPI, say, tool_call

from .blocks import ROOT, every, find

PAGE = "docs/quickstart.md"
BLOCKS = [block for block in every() if block.page == PAGE]
TURNS = (
    say(tool_call("find_account", {"email": "clerk@example.com"})),
    say(tool_call("write", {"to": "clerk@example.com", "subject": "Hello", "body": "A greeting."})),
    say("I have sent the greeting."),
)


class Site:
    """A folder in which the page's commands are typed."""

    def __init__(self, folder: Path, api: ScriptedMessagesAPI) -> None:
        self.folder = folder
        names = {"DJANGO_SETTINGS_MODULE", "ANVIL_TEST_DB", "ANVIL_TEST_DB_NAME"}
        self.environment = {key: value for key, value in os.environ.items() if key not in names}
        self.environment |= {
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
            "ANTHROPIC_BASE_URL": api.url,
            "ANTHROPIC_API_KEY": "test-key",
            "DJANGO_SUPERUSER_PASSWORD": "secret",
        }
        self.log = folder / "workers.log"
        self.begun: list[subprocess.Popen[bytes]] = []

    def write(self, path: str, *, append: bool = False) -> None:
        text = find(PAGE, path).text
        with (self.folder / path).open("a" if append else "w") as file:
            file.write(f"\n{text}")

    def command(self, start: str) -> list[str]:
        """The line of the page that starts so, for this interpreter."""
        typed = [line.strip() for b in BLOCKS if not b.language for line in b.text.splitlines()]
        line = next(line for line in typed if line.startswith(start))
        words = shlex.split(line, comments=True)
        if words[0] == "django-admin":
            return [sys.executable, "-m", "django", *words[1:]]
        assert words[0] == "python"
        return [sys.executable, *words[1:]]

    def type(self, start: str, *more: str) -> str:
        words = [*self.command(start), *more]
        done = subprocess.run(
            words, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def begin(self, start: str, log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as out:
            begun = subprocess.Popen(
                self.command(start),
                cwd=self.folder,
                env=self.environment,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.begun.append(begun)
        return begun

    def processes(self) -> dict[int, str]:
        """The command lines of all processes of this site, by their pids."""
        found = {}
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                if entry.name.isdigit() and (entry / "cwd").resolve() == self.folder:
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found[int(entry.name)] = line
        return found

    def kill_workers(self) -> None:
        """What the page's ``pkill`` does, for the processes of this site alone."""
        patterns = re.findall(r"pkill -9 -f (\w+)", "".join(block.text for block in BLOCKS))
        for pid, line in self.processes().items():
            if any(pattern in line for pattern in patterns):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


@pytest.fixture
def site(tmp_path: Path, messages_api: ScriptedMessagesAPI) -> Iterator[Site]:
    messages_api.script(*TURNS)
    found = Site(tmp_path.resolve(), messages_api)
    yield found
    for pid in found.processes():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for process in found.begun:
        process.wait(10)


def wait_for(what: Callable[[], Any], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "it has not come to that"
        time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="looks for processes in /proc")
def test_the_quickstart_works_word_for_word(site: Site, messages_api: ScriptedMessagesAPI) -> None:
    site.type("django-admin startproject")
    site.type("python manage.py startapp")
    site.write("mysite/settings.py", append=True)
    site.write("accounts/agents.py")
    site.write("mysite/urls.py")
    site.type("python manage.py migrate")
    site.type("python manage.py createsuperuser", "--noinput")

    site.begin("python manage.py anvil_worker", site.log)
    followed = site.folder / "followed.log"
    follower = site.begin("python manage.py anvil_run", followed)
    wait_for(lambda: "find_account" in followed.read_text())
    site.kill_workers()
    wait_for(lambda: all("anvil_run " in line for line in site.processes().values()), 10)
    assert "first" in site.type("python manage.py anvil_runs")
    listed = site.type("python manage.py anvil_runs", "--json")
    assert json.loads(listed.splitlines()[0])["status"] == "running"

    site.begin("python manage.py anvil_worker", site.log)
    assert follower.wait(60) == 0, followed.read_text()

    assert "I have sent the greeting." in followed.read_text()
    assert len(re.findall(r"^Reference: first:", site.log.read_text(), re.MULTILINE)) == 1
    assert [billed.turn for billed in messages_api.billed] == [0, 1, 2]
    check = [sys.executable, "manage.py", "check", "--database", "default"]
    said = subprocess.run(check, cwd=site.folder, env=site.environment, capture_output=True, text=True)
    assert "anvil_django.E" not in said.stderr
