"""``manage.py anvil_worker``: run the workers, and look after them."""

from __future__ import annotations

import os
import sys
from typing import Any

from django.conf import settings
from django.core.management.base import CommandError, CommandParser

from ... import queue
from ...conf import get_settings
from ...supervised import Options
from ...supervisor import Supervisor
from ..terminal import TerminalCommand, one_line, seconds

NAME = "Q_CLUSTER_NAME"
"""What django-q2 takes the name of an alternative cluster from, when it is imported."""


class Command(TerminalCommand):
    """Runs a django-q2 cluster that is stopped in good order and replaced when it dies or hangs."""

    help = (
        "Run the workers: a django-q2 cluster that is replaced when it dies or no longer answers. SIGTERM "
        "and Ctrl-C let every run reach its next step; a second one kills at once. Exit codes: 0 stopped in "
        "good order, 1 bad settings, 2 bad options, 3 the cluster keeps dying, 4 work was cut off when the "
        "grace time was over, 128 + n killed by a second signal n."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        shown = " (default: %(default)s)"
        parser.add_argument(
            "--grace",
            type=seconds,
            default=Options.grace,
            metavar="SECONDS",
            help="from SIGTERM to SIGKILL; longer than the slowest model call or tool" + shown,
        )
        parser.add_argument(
            "--probe-every",
            type=seconds,
            default=Options.probe_every,
            metavar="SECONDS",
            help="time between two probes" + shown,
        )
        parser.add_argument(
            "--stall",
            type=seconds,
            default=Options.stall,
            metavar="SECONDS",
            help="so long may a worker be free without taking a probe; then the cluster is replaced" + shown,
        )
        parser.add_argument(
            "--cluster-name",
            metavar="NAME",
            help="a cluster of Q_CLUSTER['ALT_CLUSTERS'] (default: Q_CLUSTER_NAME, or ANVIL['QUEUE'])",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        self._take_name(options["cluster_name"] or os.environ.get(NAME) or get_settings().queue)
        if not hasattr(os, "fork"):
            raise CommandError("anvil_worker needs an operating system with fork; use manage.py qcluster.")
        if queue.is_inline():
            raise CommandError(
                "Q_CLUSTER['sync'] is on: tasks run in the process that queues them, and workers have "
                "nothing to do. Turn it off."
            )
        if options["stall"] <= options["probe_every"]:
            raise CommandError(
                f"--stall ({options['stall']:g}) must be longer than --probe-every "
                f"({options['probe_every']:g}): between two probes nobody has to take a task."
            )
        looking_after = Options(
            grace=options["grace"], probe_every=options["probe_every"], stall=options["stall"]
        )
        sys.exit(Supervisor(looking_after).run())

    def _take_name(self, name: str | None) -> None:
        """Start anew under that name if it is another one: it counts when django-q2 is imported."""
        if name is None or name == queue.name():
            return
        known = getattr(settings, "Q_CLUSTER", {})
        names = {known.get("name"), known.get("cluster_name"), *(known.get("ALT_CLUSTERS") or {})} - {None}
        if name not in names or os.environ.get(NAME) == name:
            raise CommandError(
                f"There is no cluster {one_line(name)!r} in Q_CLUSTER; there is {', '.join(sorted(names))}."
            )
        self.stdout.flush()
        os.execve(sys.executable, sys.orig_argv, {**os.environ, NAME: name})  # noqa: S606 (this same command)
