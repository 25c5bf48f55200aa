"""Whoever runs the workload: each is a class with ``run``, ``resume`` and ``run_together``."""

from __future__ import annotations

from typing import Protocol

from ..counting import Counter
from ..workload import Job

NAMES = ("raw", "raw2", "raw-1rt", "django-rows", "anvil", "sdk")


class Contestant(Protocol):
    """Runs jobs on one database. Everything it needs is imported when it is made."""

    def load(self) -> None:
        """Import what its processes have imported before they are given work."""

    def open(self) -> None:
        """Connect."""

    def run(self, key: str, job: Job) -> None:
        """Run a job from its creation until its end is durable."""

    def resume(self, key: str, job: Job) -> None:
        """Connect, and go on with the run of a process that died."""

    def run_together(self, keys: list[str], job: Job) -> None:
        """Run jobs at the same time, a thread for each."""

    def close(self) -> None:
        """Disconnect."""


def make(name: str, kind: str, database: str, counter: Counter | None = None) -> Contestant:
    """The contestant of that name on a database of a kind; ``kind`` "memory" is for ours alone.

    Args:
        counter: Counts the statements of every connection.
    """
    if name.startswith("raw"):
        from .raw import Raw

        return Raw(name, kind, database, counter)
    if name == "django-rows":
        from .rows import DjangoRows

        return DjangoRows(counter)
    if name == "sdk":
        from .sdk import BareSDK

        return BareSDK()
    if name == "anvil":
        from .ours import Anvil

        return Anvil(kind, counter)
    raise ValueError(f"There is no contestant {name!r}.")
