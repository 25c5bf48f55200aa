"""The driver: starts runs, injects faults, lets everything drain, and collects what the auditor needs."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anvil_django.testing import ScriptedMessagesAPI
from tests.processes.cluster import ROOT, Racer

from . import scenarios as scripts
from .background import drop_connections, is_lost_connection
from .databases import Database, Redis
from .facts import Billed, Facts, Finding
from .hosts import Host, can_have_hosts
from .injectors import Injector, Stops
from .people import Clerk, make_persons
from .scenarios import Scenario
from .watchers import Sweeper, TransactionWatch, Watchdog, read_logs

RACERS = 3
CANCELLABLE_SHARE = 0.12
AHEAD = 12
"""Runs that are started before the first fault, at most; the others follow as faults are injected."""
TRIES = 4
"""How often a fault may find nothing to hit before one of another kind takes its place."""
FAULT_GAP = 0.35
"""Least seconds between two faults."""
CROWD = 25
"""With more runs waiting for a worker than this, faults wait, too: they are to hit runs, not a queue."""
TELL_EVERY = 3.0


@dataclass(frozen=True)
class Options:
    """What was asked for."""

    db: str
    broker: str
    runs: int
    faults: int
    seed: int
    clusters: int
    workers: int
    minutes: float
    """Bound of the part with faults; what is not injected by then is missing."""
    drain_seconds: float
    """Bound of what comes after the last fault."""


class Campaign:
    """One campaign, from an empty database to the facts. Django is set up by then."""

    def __init__(self, options: Options, folder: Path, database: Database, redis: Redis | None) -> None:
        self.options, self.folder, self.database, self.redis = options, folder, database, redis
        self.effect_log = folder / "effects.jsonl"
        self.scenarios = [self._scenario(number) for number in range(options.runs)]
        self.model = scripts.Model(self.scenarios)
        self.api = ScriptedMessagesAPI(conversation=scripts.conversation, keep_requests=10)
        self.api.add(self.model)
        self.stops = Stops()
        self.persons: list[int] = []
        self.hosts: list[Host] = []
        self.injector = Injector(self, options.seed)
        self.planned: list[str] = []
        self.findings: list[Finding] = []
        self.logs: Counter[str] = Counter()
        self.began = time.monotonic()
        self.drained_in = 0.0
        self.several_hosts = False
        self.clerk, self.sweeper = Clerk(self), Sweeper()
        self.transactions = TransactionWatch(self)
        self._background = [self.clerk, self.sweeper, self.transactions, Watchdog(self)]
        self._racers: list[Racer] = []
        self._started = 0
        self._lock = threading.Lock()
        self._plans = {name: plan for s in self.scenarios for name, plan in s.plans.items()}
        self._told_at = 0.0

    def _scenario(self, number: int) -> Scenario:
        import random

        lot = random.Random(f"{self.options.seed}:cancel:{number}").random()
        return scripts.make(self.options.seed, number, cancellable=lot < CANCELLABLE_SHARE)

    # For the injectors and the people.

    def now(self) -> float:
        return time.monotonic() - self.began

    def tell(self, text: str) -> None:
        """A line of progress."""
        print(f"{self.now():7.1f} s  {text}", file=sys.stderr, flush=True)

    def found(self, finding: Finding) -> None:
        self.findings.append(finding)
        self.tell(f"LOSS: {finding.kind} {finding.run_id}: {finding.sentence}")

    def busy(self) -> dict[str, int]:
        """The process that holds each run that is advanced."""
        from anvil_django.models import Run

        rows = Run.objects.filter(status="running").exclude(lease_owner="")
        return {
            run_id: int(owner.split("/")[-3]) for run_id, owner in rows.values_list("run_id", "lease_owner")
        }

    def plan_of(self, approval: Any) -> str:
        return self._plans[json.loads(approval.call.input)["name"]]

    def race(self, jobs: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Have processes do these at the same instant; what they answered."""
        at = time.time() + 0.03
        racers = self._racers[: len(jobs)]
        for racer, job in zip(racers, jobs, strict=True):
            racer.send(at, *job)
        return [racer.answer() for racer in racers]

    def next_scenario(self) -> Scenario | None:
        """The next run to be started, which the caller then starts."""
        with self._lock:
            if self._started == len(self.scenarios):
                return None
            self._started += 1
            return self.scenarios[self._started - 1]

    def start(self, scenario: Scenario) -> None:
        """Start a run, as often as it takes: the same run id never starts a second one."""
        from anvil_django import start_run

        from .agents import AGENT_NAME

        while True:
            try:
                start_run(AGENT_NAME, scenario.opening, run_id=scenario.run_id)
                return
            except Exception as exc:
                if not is_lost_connection(exc):
                    raise
                drop_connections()
                time.sleep(0.2)

    def is_told(self, finding: Finding) -> bool:
        """Whether it is a look-up whose connection was cut meanwhile: the model was told, nothing is lost."""
        name = finding.sentence.partition(":")[0]
        looks = {e.name for s in self.scenarios for e in s.expected.effects if e.kind == "read"}
        cut = "OperationalError" in finding.sentence or "InterfaceError" in finding.sentence
        return finding.kind == "call failed" and name in looks and cut

    # The campaign.

    def run(self) -> Facts:
        """All of it; everything that was started is stopped at the end."""
        try:
            self._open()
            self._with_faults()
            self._drain()
        finally:
            self._close()
        self._look_back()
        return Facts(
            vendor=self.database.vendor,
            connect=self.database.connect,
            effect_log=self.effect_log,
            billed=[Billed(b.message_id, b.conversation, b.usage) for b in self.api.billed],
            expected={scenario.run_id: scenario.expected for scenario in self.scenarios},
        )

    def _open(self) -> None:
        from django.core.management import call_command

        from example_project.shop.models import Order

        call_command("migrate", verbosity=0, interactive=False)
        Order.objects.bulk_create(
            Order(number=s.run_id, customer_email="c@example.com", item="A thing", amount=10000)
            for s in self.scenarios
        )
        self.persons = make_persons()
        self.api.start()
        environment = {
            **os.environ,
            "ANVIL_FAULTS_API": self.api.url,
            "ANVIL_FAULTS_FOLDER": str(self.folder),
            "PYTHONUNBUFFERED": "1",
        }
        self.several_hosts = self.options.clusters > 1 and can_have_hosts()
        for number in range(1, self.options.clusters + 1):
            own_name = self.several_hosts and number > 1
            self.hosts.append(Host(number, environment, self.folder, own_name=own_name))
            self.hosts[-1].start()
        for number in range(RACERS):
            log = self.folder / f"racer-{number}.log"
            self._racers.append(Racer(environment, log, module="tests.faults.racer"))
        assert [racer.answer() for racer in self._racers] == ["ready"] * RACERS
        for host in self.hosts:
            host.wait_ready()
        for thread in self._background:
            thread.start()
        self.began = time.monotonic()
        self.planned = self.injector.plan(self.options.faults)
        self.tell(f"{len(self.hosts)} clusters are ready in {ROOT}")

    def _with_faults(self) -> None:
        """Start runs and inject faults, both spread over each other; faults that find nothing come later."""
        left = list(self.planned)
        ahead = min(AHEAD, len(self.scenarios) // 4)
        tries: Counter[str] = Counter()
        deadline = time.monotonic() + self.options.minutes * 60
        fault_at = 0.0
        while time.monotonic() < deadline and (left or self._started < len(self.scenarios)):
            injected = len(self.planned) - len(left)
            share = injected / len(self.planned) if self.planned else 1.0
            due = self._started < ahead + share * (len(self.scenarios) - ahead)
            if due and (scenario := self.next_scenario()) is not None:
                self.start(scenario)
            if left and time.monotonic() >= fault_at:
                if self._waiting() <= CROWD:
                    name = left.pop(0)
                    tries[name] = 0 if self._injected(name) else tries[name] + 1
                    if tries[name]:
                        # Often it is only too early.
                        left.append(name if tries[name] % TRIES else self.injector.another(name))
                fault_at = time.monotonic() + FAULT_GAP
            self._progress()
            time.sleep(0.01)
        if left:
            self.tell(f"not injected in time: {Counter(left)}")
        self.injector.finish()
        while (scenario := self.next_scenario()) is not None:
            self.start(scenario)

    def _injected(self, name: str) -> bool:
        try:
            return self.injector.inject(name)
        except Exception as exc:
            if not is_lost_connection(exc):
                raise
            # The database was away, or cut this connection: counts as not injected.
            drop_connections()
            return False

    def _drain(self) -> None:
        """By itself: nobody helps but those who decide and settle."""
        self.tell("the last fault is over; everything must come to its end by itself")
        drop_connections()
        self.clerk.race_seconds = 0.0
        began = time.monotonic()
        while time.monotonic() < began + self.options.drain_seconds:
            with suppress(Exception):  # Whoever cut the last connections may have cut this one.
                if not self._unfinished():
                    self.drained_in = time.monotonic() - began
                    return
            self._progress()
            time.sleep(0.1)
        drop_connections()
        for run in self._unfinished():
            self.found(
                Finding(
                    "not finished",
                    run.run_id,
                    f"{run.status}, {run.why!r}, attempt {run.attempt}, lease {run.lease_owner!r}",
                )
            )

    def _waiting(self) -> int:
        from anvil_django.models import Run

        try:
            return Run.objects.filter(status="queued").count()
        except Exception:  # Whoever cut the last connections may have cut this one.
            drop_connections()
            return 0

    def _unfinished(self) -> list[Any]:
        from anvil_django.models import Run

        return list(Run.objects.unfinished())

    def _progress(self) -> None:
        if time.monotonic() < self._told_at + TELL_EVERY:
            return
        from django.db.models import Count

        from anvil_django.models import Run

        self._told_at = time.monotonic()
        try:
            rows = dict(Run.objects.values_list("status").annotate(Count("id")).order_by("status"))
        except Exception:
            drop_connections()
            return
        done = " ".join(f"{status} {number}" for status, number in rows.items())
        self.tell(
            f"runs {self._started}/{len(self.scenarios)} ({done}); faults "
            f"{self.injector.injected.total()}/{len(self.planned)}, of the model {self.model.faults_served}; "
            f"losses {len(self.findings)}"
        )

    def _close(self) -> None:
        self.injector.finish()
        for thread in self._background:
            thread.stop()
        for process in [*self.hosts, *self._racers]:
            with suppress(Exception):
                process.kill()
        drop_connections()
        self.api.stop()

    def _look_back(self) -> None:
        findings, self.logs = read_logs(self.folder)
        for finding in [*findings, *self.transactions.found.values()]:
            self.found(finding)
        for problem in self.api.problems(unconsumed=False):
            self.found(Finding("history refused by the API", "", problem))
        for thread in self._background:
            for broken in thread.unexpected:
                self.found(Finding(f"the campaign's own {thread.name} broke off", "", broken[-600:]))
