"""What goes on beside the faults: the sweep as the schedule runs it, the watchdog, and two watchers."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .background import Background
from .facts import Finding

if TYPE_CHECKING:
    from .campaign import Campaign

STOPPED_SINCE = 3.0
"""Seconds after a stop during which a transaction may be open for long: its process could not go on."""


class Sweeper(Background):
    """``anvil_resume``, every second instead of every minute."""

    every = 1.0

    def __init__(self) -> None:
        super().__init__("sweeper")
        self.recovered: Counter[str] = Counter()
        """Runs put back, by why."""

    def work(self) -> None:
        from anvil_django import runs

        for found in runs.recover():
            self.recovered[f"not, {found.error.partition(':')[0]}" if found.error else found.why] += 1


class Watchdog(Background):
    """Restarts clusters that are gone or stuck, where there is no supervisor that does."""

    every = 0.5

    def __init__(self, campaign: Campaign) -> None:
        super().__init__("watchdog")
        self._campaign = campaign

    def work(self) -> None:
        from django.db.models import Q

        from anvil_django.models import Run
        from anvil_django.stores.database_time import database_now

        busy = set(self._campaign.busy().values())
        due = Q(next_attempt_at=None) | Q(next_attempt_at__lte=database_now())
        waiting = Run.objects.filter(due, status="queued").exists()
        for host in self._campaign.hosts:
            if not host.changing.acquire(blocking=False):
                continue
            try:
                if host.is_stuck(busy, waiting):
                    host.restarts += 1
                    host.kill()
                    host.start()
            finally:
                host.changing.release()


class TransactionWatch(Background):
    """Looks for transactions that are open while nothing is said: held over a model call or a tool."""

    every = 0.1

    def __init__(self, campaign: Campaign) -> None:
        super().__init__("transactions")
        self._campaign = campaign
        self._connection: Any = None
        self.looks = 0
        self.longest = 0.0
        self.found: dict[Any, Finding] = {}

    def work(self) -> None:
        database = self._campaign.database
        try:
            if self._connection is None:
                self._connection = database.connect()
            rows = database.idle_transactions(self._connection)
        except Exception:
            self._connection = None
            raise
        self.looks += 1
        for session, seconds, statement in rows:
            if self._campaign.stops.are_recent(STOPPED_SINCE):
                continue
            self.longest = max(self.longest, seconds)
            told = " ".join(statement.split())[:200]
            sentence = f"{self._campaign.now():.1f} s: open for {seconds:.2f} s, nothing said after {told}"
            self.found[session] = Finding("transaction held", "", sentence)

    def stop(self) -> None:
        super().stop()
        if self._connection is not None:
            with suppress(Exception):
                self._connection.close()


def read_logs(folder: Path) -> tuple[list[Finding], Counter[str]]:
    """Losses that the clusters' logs tell of, and how often some other things are in them."""
    findings: list[Finding] = []
    told: Counter[str] = Counter()
    for log in sorted(folder.glob("*.log")):
        text = log.read_text(errors="replace")
        if locked := text.count("database is locked"):
            findings.append(Finding("database is locked", "", f"{locked} times in {log.name}"))
        told["workers that found themselves fenced"] += text.count("the run was taken over by another worker")
        told["slices broken off"] += text.count("a slice broke off")
        told["deadlocks"] += len(re.findall(r"deadlock detected|Deadlock found", text))
        told["sweeps broken off"] += len(re.findall(r"the recovery sweep .* failed", text))
        told["workers reborn"] += text.count("reincarnated")
    return findings, told
