"""Dying at a chosen boundary: by ``kill_at`` in a test, by the environment in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from anvil_django import boundaries
from anvil_django.boundaries import BOUNDARIES, reach
from anvil_django.testing import Kill, kill_at, killpoints

ROOT = Path(__file__).resolve().parent.parent


def go(*names: str) -> None:
    for name in names:
        reach(name)


@pytest.mark.parametrize(
    ("where", "killed_at", "reached"),
    [
        (2, "tool.before", 2),
        ("2", "tool.before", 2),
        ("tool.before", "tool.before", 2),
        ("save.done#2", "save.done", 3),
        ("save.done#3", "", 3),
        (None, "", 3),
    ],
)
def test_it_dies_at_a_number_a_name_or_a_repetition(
    where: int | str | None, killed_at: str, reached: int
) -> None:
    with kill_at(where) as life, pytest.raises(Kill, match=killed_at) if killed_at else nullcontext():
        go("save.done", "tool.before", "save.done")

    assert life.killed_at == killed_at
    assert life.names == ["save.done", "tool.before", "save.done"][:reached]


def test_a_killed_process_does_nothing_more() -> None:
    with kill_at("tool.before") as life:
        for name in ("tool.before", "save.before", "run.giving_up"):
            with pytest.raises(Kill, match=r"tool\.before"):
                reach(name)
    go("save.done")

    assert life.names == ["tool.before"]


def test_the_hook_of_an_outer_block_comes_back() -> None:
    with kill_at(None) as outer:
        with kill_at(None) as inner:
            go("save.done")
        go("tool.before")

    assert (outer.names, inner.names) == (["tool.before"], ["save.done"])
    assert boundaries._hook is None


@pytest.mark.parametrize("where", ["tool.during", "tool.during#2", "tool before", "-1", "#1", ""])
def test_an_unknown_boundary_is_refused_with_the_names_of_all(where: str) -> None:
    with pytest.raises(ValueError, match=re.escape(", ".join(BOUNDARIES))), kill_at(where):
        pass


@pytest.mark.parametrize("where", [0, "0", "tool.before#0", "tool.before#x", "tool.before#"])
def test_a_place_is_counted_from_1(where: int | str) -> None:
    with pytest.raises(ValueError, match="count from 1"), kill_at(where):
        pass


def test_an_unknown_way_to_die_is_refused() -> None:
    with pytest.raises(ValueError, match="raise, exit, sigkill"), kill_at(1, how="gently"):  # type: ignore[arg-type]
        pass


# Processes of their own.


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings", **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


BY_CONTEXT = """
from anvil_django.boundaries import reach
from anvil_django.testing import kill_at
with kill_at("save.done#2", how="{how}"):
    for _ in range(3):
        print("alive", flush=True)
        reach("save.done")
"""


@pytest.mark.parametrize(("how", "status"), [("exit", killpoints.EXIT_STATUS), ("sigkill", -signal.SIGKILL)])
def test_a_process_exits_or_is_killed_with_nothing_cleaned_up(how: str, status: int) -> None:
    ended = python(BY_CONTEXT.format(how=how))

    assert (ended.returncode, ended.stdout, ended.stderr) == (status, "alive\nalive\n", "")


STARTED = """
import os, sys, django
from django.conf import settings
from tests import settings as ours
settings.configure(**{k: v for k, v in vars(ours).items() if k.isupper()} | %s)
django.setup()
from anvil_django import boundaries
print(any(name.startswith("anvil_django.testing") for name in sys.modules), boundaries._hook)
"""


def test_without_the_variable_nothing_of_the_test_kit_is_there() -> None:
    ended = python(STARTED % {"KILL": 0})

    assert ended.stdout == "False None\n", ended.stderr


@pytest.mark.parametrize(
    ("settings", "refused"),
    [({}, True), ({"DEBUG": True}, False), ({"ANVIL": {"KILL_POINTS": True}}, False)],
    ids=["production", "debug", "test"],
)
def test_the_variable_alone_kills_no_process_in_production(
    settings: dict[str, object], refused: bool
) -> None:
    ended = python(STARTED % settings, ANVIL_KILL_AT="tool.before")

    if refused:
        assert ended.returncode == 1
        assert "ImproperlyConfigured: ANVIL_KILL_AT is set" in ended.stderr
    else:
        assert "Doomed" in ended.stdout, ended.stderr


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("tool.during", "There is no boundary 'tool.during'. The boundaries are run.before_ring, "),
        ("tool.before:gently", "There is no way to die that is named 'gently'"),
        ("tool.before,,save.done", "A place is missing"),
        ("", "A place is missing"),
        ("tool.before,tool.before#1:exit", "tool.before#1 stands in it twice"),
    ],
)
def test_a_variable_that_makes_no_sense_is_refused_at_the_start(value: str, sentence: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=re.escape(sentence)):
        killpoints.arm({"ANVIL_KILL_AT": value}, allowed=True)


def test_a_file_that_cannot_be_written_is_refused_at_the_start(tmp_path: Path) -> None:
    environment = {"ANVIL_KILL_AT": "tool.before", "ANVIL_KILL_ONCE": str(tmp_path / "no" / "file")}

    with pytest.raises(ImproperlyConfigured, match=r"ANVIL_KILL_ONCE=.*No such file or directory\."):
        killpoints.arm(environment, allowed=True)


FORKING = """
import os
from anvil_django import boundaries
from anvil_django.testing import killpoints
killpoints.arm(os.environ, allowed=True)
boundaries.reach("save.done")
for _ in range(3):
    child = os.fork()
    if not child:
        boundaries.reach("save.done")
        boundaries.reach("save.done")
        os._exit(0)
    print(os.waitpid(child, 0)[1], flush=True)
boundaries.reach("save.done")
print("alive", flush=True)
"""


def test_every_process_counts_for_itself_and_is_killed() -> None:
    ended = python(FORKING, ANVIL_KILL_AT="save.done#2")

    assert ended.stdout == "9\n9\n9\n"
    assert ended.returncode == -signal.SIGKILL
    assert ended.stderr.count("killed on purpose at save.done#2, as ANVIL_KILL_AT says") == 4


def test_one_death_over_all_processes_is_enough(tmp_path: Path) -> None:
    notes = tmp_path / "killed"

    ended = python(FORKING, ANVIL_KILL_AT="save.done#2:sigkill", ANVIL_KILL_ONCE=str(notes))

    assert ended.stdout == "9\n0\n0\nalive\n", ended.stderr
    assert re.fullmatch(r"save\.done#2 \d+\n", notes.read_text())


def test_of_several_places_each_process_dies_at_the_first_that_is_left(tmp_path: Path) -> None:
    places = "save.done#1:exit,save.done#2:raise,tool.before"

    ended = python(
        FORKING.replace('boundaries.reach("save.done")\nfor', "for", 1),
        ANVIL_KILL_AT=places,
        ANVIL_KILL_ONCE=str(tmp_path / "killed"),
    )

    # Exit status 70; then an exception that ends the child; then nothing is left.
    assert [int(line) >> 8 for line in ended.stdout.split()[:3]] == [killpoints.EXIT_STATUS, 1, 0]
    assert "Kill: save.done" in ended.stderr
