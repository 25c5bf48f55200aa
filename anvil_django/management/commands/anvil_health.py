"""``manage.py anvil_health``: whether the workers are at work, for probes and alarms."""

from __future__ import annotations

import sys
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from django.core.management.base import CommandParser

from ...health import Health, live, ready
from ..terminal import TerminalCommand, add_patience, duration, one_line, worker


class Command(TerminalCommand):
    """Asks the database, not the list of processes; exits with 0 when all is well and with 1 when not."""

    help = (
        "Say from the database whether the workers are at work; exit code 0: yes, 1: no. With --live: "
        "whether a cluster of this host is alive, for a liveness probe. Without: whether runs get on at all, "
        "for a readiness probe or an alarm."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--live", action="store_true", help="only the clusters of this host, and only that"
        )
        add_patience(parser, "a run may be due, or without its worker, for so long")

    def handle(self, *args: Any, **options: Any) -> None:
        about = {"queue_name": options["cluster_name"], "max_age": options["max_age"]}
        health = live(**about) if options["live"] else ready(**about, max_wait=options["max_wait"])
        if options["json"]:
            self.write_json({"well": health.is_well, **asdict(health)})
        else:
            self.stdout.write("\n".join(_lines(health, only_alive=options["live"])))
        if not health.is_well:
            sys.exit(1)


def _lines(health: Health, *, only_alive: bool) -> list[str]:
    lines = list(health.problems)
    if not health.database and health.is_well:
        lines.append("The database does not answer; nothing is known against the workers.")
    for cluster in health.clusters:
        lines.append(
            f"Cluster {one_line(cluster['queue'])} ({worker(cluster['name'] + '/')}), {cluster['workers']} "
            f"workers: seen {_ago(cluster['seen'])} ago."
        )
    if health.database and not only_alive:
        longest = "" if health.longest_wait is None else f", the first for {_ago(health.longest_wait)}"
        lines.append(f"Runs waiting for a worker: {health.waiting}{longest}.")
        lines.append(f"Runs that lost their worker: {health.interrupted}.")
    return lines


def _ago(number: float) -> str:
    return duration(timedelta(seconds=number))
