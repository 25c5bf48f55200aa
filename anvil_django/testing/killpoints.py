"""Dying at a chosen boundary between two durable steps (``anvil_django.boundaries`` lists them).

In a test, by a context manager::

    with pytest.raises(Kill), kill_at("tool.returned#2"):
        tasks.advance(run_id)

A killed process does nothing more: once the boundary is reached, every later one raises too, so that no
cleanup of the loop's own softens the blow. The lease stays behind; move a ``fixed_clock`` past it.

In a process of its own, by the environment::

    ANVIL_KILL_AT=tool.returned#2:sigkill ANVIL_KILL_ONCE=/tmp/killed python manage.py anvil_worker

``ANVIL_KILL_AT``
    One or more places, with commas between them; each may be followed by ``:sigkill`` (the default),
    ``:exit`` or ``:raise``. Each process counts for itself, the forked workers of a cluster too.
``ANVIL_KILL_ONCE``
    A file that notes each death. Whoever is about to die at a place that stands in it lives on, so that
    the worker that replaces a dead one is not killed in its turn.

A process does not start with ``ANVIL_KILL_AT`` unless its settings say ``DEBUG = True`` or
``ANVIL = {"KILL_POINTS": True}``: the variable alone kills nothing in production.
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal, NoReturn, get_args

from anvil_django.boundaries import BOUNDARIES, Hook, set_hook

logger = logging.getLogger(__name__)

How = Literal["raise", "exit", "sigkill"]
Where = int | str

EXIT_STATUS = 70
"""Of a process that died by ``how="exit"``."""
AT, ONCE = "ANVIL_KILL_AT", "ANVIL_KILL_ONCE"


class Kill(BaseException):
    """The process is gone. Not an ``Exception``: nothing that handles errors may survive it."""


@dataclass(frozen=True)
class Place:
    """The ``count``-th time that the boundary ``name`` is reached; "": any boundary."""

    name: str
    count: int

    @classmethod
    def parse(cls, where: Where) -> Place:
        """Read ``7``, ``"tool.returned"`` or ``"tool.returned#2"``.

        Raises:
            ValueError: There is no such boundary, or the count is below 1.
        """
        text = str(where)
        name, mark, count = ("", "#", text) if text.isdecimal() else text.partition("#")
        if name not in BOUNDARIES and not text.isdecimal():
            raise ValueError(f"There is no boundary {name!r}. The boundaries are {', '.join(BOUNDARIES)}.")
        if mark and not (count.isdecimal() and int(count)):
            raise ValueError(f"{where!r} is no place to die at: count from 1, as in 7 or {BOUNDARIES[0]}#2.")
        return cls(name, int(count or 1))

    def __str__(self) -> str:
        return f"{self.name}#{self.count}" if self.name else str(self.count)

    def is_last_of(self, names: Sequence[str]) -> bool:
        """Whether the last of the boundaries reached so far is this one."""
        if not self.name:
            return len(names) == self.count
        return names[-1] == self.name and names.count(self.name) == self.count


@dataclass
class Reached:
    """The hook of ``kill_at``: the boundaries that were reached, in order."""

    place: Place | None = None
    how: How = "raise"
    names: list[str] = field(default_factory=list)
    #: The boundary it died at; "" while it lives.
    killed_at: str = ""

    def __call__(self, name: str) -> None:
        if self.killed_at:
            raise Kill(self.killed_at)
        self.names.append(name)
        if self.place is not None and self.place.is_last_of(self.names):
            self.killed_at = name
            die(name, self.how)


@contextmanager
def kill_at(where: Where | None, *, how: How = "raise") -> Iterator[Reached]:
    """Die at a boundary that is reached while the block runs.

    Args:
        where: The number of a boundary, counted from 1 over all that are reached; the name of one; or
            ``"name#3"``, the third time that it is reached. None: only note them.
        how: ``"raise"`` a ``Kill``, at every later boundary too; ``"exit"`` by ``os._exit``, with the status
            ``EXIT_STATUS``; or ``"sigkill"``.

    Raises:
        ValueError: There is no such boundary, or no such way to die.
    """
    hook = Reached(None if where is None else Place.parse(where), _known_way(how))
    with hooked(hook):
        yield hook


@contextmanager
def hooked(hook: Hook | None) -> Iterator[None]:
    """Have ``hook`` called at the boundaries that are reached while the block runs."""
    previous = set_hook(hook)
    try:
        yield
    finally:
        set_hook(previous)


def label(names: Sequence[str], number: int) -> str:
    """The ``number``-th of ``names``, counted from 1, as ``kill_at`` takes it: ``"tool.returned#2"``."""
    name = names[number - 1]
    return f"{name}#{list(names[:number]).count(name)}"


def die(name: str, how: How) -> NoReturn:
    """End this process at the boundary ``name``."""
    if how == "exit":
        os._exit(EXIT_STATUS)
    if how == "sigkill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise Kill(name)


def _known_way(how: str) -> How:
    for way in get_args(How):
        if how == way:
            return way  # type: ignore[no-any-return]
    raise ValueError(f"There is no way to die that is named {how!r}; there are {', '.join(get_args(How))}.")


# By the environment.


class Doomed:
    """The hook that ``ANVIL_KILL_AT`` installs.

    Args:
        points: Where to die, and how.
        notes: The file of ``ANVIL_KILL_ONCE``; "": every process dies.
    """

    def __init__(self, points: Sequence[tuple[Place, How]], notes: str = "") -> None:
        self._points, self._notes = points, notes
        self._pid, self._names, self._dead = os.getpid(), list[str](), ""

    def __call__(self, name: str) -> None:
        if self._pid != os.getpid():  # Forked since: it counts for itself.
            self._pid, self._names, self._dead = os.getpid(), [], ""
        if self._dead:
            raise Kill(self._dead)
        self._names.append(name)
        for place, how in self._points:
            if place.is_last_of(self._names) and self._is_my_turn(place):
                self._dead = name
                logger.warning("killed on purpose at %s, as %s says", place, AT)
                die(name, how)

    def _is_my_turn(self, place: Place) -> bool:
        """Note the death in the file, unless it stands there already."""
        if not self._notes:
            return True
        with open(self._notes, "a+", encoding="utf-8") as notes:
            fcntl.flock(notes, fcntl.LOCK_EX)  # Until it is closed.
            notes.seek(0)
            if any(line.split()[:1] == [str(place)] for line in notes):
                return False
            notes.write(f"{place} {os.getpid()}\n")
            return True


def read_points(text: str) -> list[tuple[Place, How]]:
    """Read the value of ``ANVIL_KILL_AT``.

    Raises:
        ValueError: A place or a way to die in it is unknown, or there is none.
    """
    points = []
    for point in text.split(","):
        where, _, how = point.strip().partition(":")
        if not where:
            raise ValueError("A place is missing. One is written as tool.returned#2:sigkill.")
        points.append((Place.parse(where), _known_way(how or "sigkill")))
    twice = [str(place) for place, times in Counter(place for place, _ in points).items() if times > 1]
    if twice:
        raise ValueError(f"{twice[0]} stands in it twice.")
    return points


def arm(environment: Mapping[str, str], *, allowed: bool) -> None:
    """Have this process, and those it forks, die where ``ANVIL_KILL_AT`` says.

    Args:
        environment: Where the variables are.
        allowed: Whether the settings let the process be killed on purpose.

    Raises:
        ImproperlyConfigured: They do not, or what the variables say makes no sense.
    """
    from django.core.exceptions import ImproperlyConfigured

    if not allowed:
        raise ImproperlyConfigured(
            f"{AT} is set: this process is to be killed on purpose, which its settings do not allow. Unset "
            'it; or, for a test, have them say DEBUG = True or ANVIL = {"KILL_POINTS": True}.'
        )
    notes = environment.get(ONCE, "")
    try:
        points = read_points(environment[AT])
    except ValueError as error:
        raise ImproperlyConfigured(f"{AT}={environment[AT]}: {error}") from error
    try:
        if notes:
            open(notes, "a").close()
    except OSError as error:
        raise ImproperlyConfigured(f"{ONCE}={notes}: {error.strerror}.") from error
    set_hook(Doomed(points, notes))
