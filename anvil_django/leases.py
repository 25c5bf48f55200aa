"""Who holds a run: the identity of a process, and whether a process is provably gone."""

from __future__ import annotations

import os
import socket
import uuid
from dataclasses import dataclass
from pathlib import Path

from .clock import get_clock


@dataclass
class Lease:
    """The right to advance one run.

    ``deadline`` is this process's own, cautious view: counted from before the database was asked, on a clock
    that goes on while the process is stopped. Once it has passed, somebody else may hold the run.
    """

    run_id: str
    token: int
    owner: str
    seconds: float
    deadline: float

    @property
    def is_live(self) -> bool:
        """Whether nobody else can hold the run yet."""
        return get_clock().monotonic() < self.deadline

    def extend(self, asked_at: float) -> None:
        """The lease was renewed by a statement sent at ``asked_at`` (monotonic seconds)."""
        self.deadline = asked_at + self.seconds


def owner_name() -> str:
    """A new owner: this process (see ``process_name``), and something unique.

    Unique, because one process may claim a run twice.
    """
    return f"{process_name(os.getpid())}/{uuid.uuid4().hex[:8]}"


def process_name(pid: int) -> str:
    """A process of this host: host, pid namespace, pid and start time."""
    return f"{place()}{pid}/{_start_time(pid) or '0'}"


def place() -> str:
    """This host and pid namespace: what the names of all processes here begin with."""
    return f"{socket.gethostname()[:80]}/{_pid_namespace()}/"


def is_dead(owner: str) -> bool:
    """Whether the process behind ``owner`` is provably gone; False when that cannot be known from here."""
    try:
        host, namespace, pid, started, _ = owner.rsplit("/", 4)
    except ValueError:
        return False
    if host != socket.gethostname()[:80] or namespace != _pid_namespace() or namespace == "-":
        return False
    return _start_time(int(pid)) != started


def is_here(owner: str) -> bool:
    """Whether ``owner`` names a process of this host and pid namespace."""
    return owner.startswith(place())


def _pid_namespace() -> str:
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return "-"


def _start_time(pid: int) -> str | None:
    """Start time of a process in clock ticks since boot; None when it does not live (a zombie does not)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The command name may hold spaces and parentheses: fields count from after the last one.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in {"Z", "X"} else fields[19]
