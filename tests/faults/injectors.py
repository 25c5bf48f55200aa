"""The faults, each a function of the campaign that says whether it could be injected now."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from .effect_log import start_time
from .facts import Finding

if TYPE_CHECKING:
    from .campaign import Campaign
    from .hosts import Host

STOP_SECONDS = 4.5
"""Longer than a lease lasts."""
WAIT_SECONDS = 4.0
"""How long a fault waits for something to hit."""


class Stops:
    """Workers that are stopped, and when the last one was let go."""

    def __init__(self) -> None:
        self._stopped: Counter[int] = Counter()
        self._until = 0.0
        self._lock = threading.Lock()

    @contextmanager
    def stopped(self, pid: int) -> Iterator[None]:
        """SIGSTOP while the block runs; a process that has ended meanwhile is left alone."""
        born = start_time(pid)
        with self._lock:
            self._stopped[pid] += 1
        try:
            os.kill(pid, signal.SIGSTOP)
            yield
        finally:
            with suppress(ProcessLookupError):
                if start_time(pid) == born:
                    os.kill(pid, signal.SIGCONT)
            with self._lock:
                self._stopped[pid] -= 1
                self._until = time.monotonic()

    def are_recent(self, seconds: float) -> bool:
        """Whether one is stopped, or was so many seconds ago."""
        with self._lock:
            return bool(+self._stopped) or time.monotonic() - self._until < seconds


class Injector:
    """Injects the planned faults one after the other; long ones go on beside the next."""

    def __init__(self, campaign: Campaign, seed: int) -> None:
        self.campaign = campaign
        self.rng = random.Random(f"{seed}:faults")
        self.injected: Counter[str] = Counter()
        self.deploys_that_hung = 0
        self._later: list[threading.Thread] = []

    def kinds(self) -> dict[str, tuple[float, Callable[[], bool]]]:
        """Name: weight and function, of those that this database and broker can have."""
        found: dict[str, tuple[float, Callable[[], bool]]] = {
            "busy worker killed": (24, self.kill_busy),
            "idle worker killed": (3, self.kill_idle),
            "cluster killed": (6, self.kill_cluster),
            "worker stopped past its lease": (9, self.stop_past_lease),
            "deploy (SIGTERM)": (6, self.deploy),
            "run rung several times": (12, self.ring_again),
            "delivered to two more processes": (6, self.deliver_twice),
            "decided by two at once": (13, self.race_decision),
            "started by two at once": (5, self.start_twice),
            "cancelled": (6, self.cancel),
        }
        if self.campaign.database.vendor == "sqlite":
            found["database locked for a second"] = (5, self.cut_connections)
        else:
            found["database connections cut"] = (7, self.cut_connections)
        if self.campaign.database.can_restart:
            found["database restarted"] = (3, self.restart_database)
        if self.campaign.redis is not None:
            found["broker killed, queue lost"] = (5, self.restart_redis)
        else:
            found["queue emptied"] = (5, self.empty_queue)
        return found

    def plan(self, number: int) -> list[str]:
        """Which faults, in which order: each kind at least once where there are enough."""
        weights = {name: weight for name, (weight, _) in self.kinds().items()}
        names = list(weights)
        planned = self.rng.sample(names, min(number, len(names)))
        planned += self.rng.choices(names, list(weights.values()), k=number - len(planned))
        self.rng.shuffle(planned)
        return planned

    def another(self, name: str) -> str:
        """A kind to take the place of one that finds nothing to hit."""
        others = {other: weight for other, (weight, _) in self.kinds().items() if other != name}
        return self.rng.choices(list(others), list(others.values()))[0]

    def inject(self, name: str) -> bool:
        done = self.kinds()[name][1]()
        if done:
            self.injected[name] += 1
            self.campaign.tell(f"fault: {name}")
        return done

    def finish(self) -> None:
        """Wait for what goes on in the background."""
        for thread in self._later:
            thread.join()

    def _beside(self, work: Callable[[], None]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._later.append(thread)
        thread.start()

    # Workers and clusters.

    def kill_busy(self) -> bool:
        pid = self._busy_worker()
        if pid is None:
            return False
        time.sleep(self.rng.random() * 0.15)
        os.kill(pid, signal.SIGKILL)
        return True

    def kill_idle(self) -> bool:
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            busy = set(self.campaign.busy().values())
            idle = [pid for host in self.campaign.hosts for pid in host.workers() if pid not in busy]
            if idle:
                os.kill(self.rng.choice(idle), signal.SIGKILL)
                return True
            time.sleep(0.02)
        return False

    def kill_cluster(self) -> bool:
        host = self._free_host()
        if host is None:
            return False
        try:
            host.kill()
            host.start()
        finally:
            host.changing.release()
        return True

    def deploy(self) -> bool:
        host = self._free_host()
        if host is None:
            return False

        def work() -> None:
            try:
                self.deploys_that_hung += not host.deploy()
            finally:
                host.changing.release()

        self._beside(work)
        return True

    def stop_past_lease(self) -> bool:
        pid = self._busy_worker()
        if pid is None:
            return False

        def work() -> None:
            with suppress(ProcessLookupError), self.campaign.stops.stopped(pid):
                time.sleep(STOP_SECONDS)

        self._beside(work)
        return True

    def _busy_worker(self) -> int | None:
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            workers = {pid for host in self.campaign.hosts for pid in host.workers()}
            busy = sorted(workers & set(self.campaign.busy().values()))
            if busy:
                return self.rng.choice(busy)
            time.sleep(0.05)
        return None

    def _free_host(self) -> Host | None:
        """One whose cluster is up and nobody else's; the caller gives the lock back."""
        hosts = list(self.campaign.hosts)
        self.rng.shuffle(hosts)
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            for host in hosts:
                if host.changing.acquire(blocking=False):
                    if host.workers():
                        return host
                    host.changing.release()
            time.sleep(0.05)
        return None

    # Servers.

    def cut_connections(self) -> bool:
        return self.campaign.database.cut_connections() > 0

    def restart_database(self) -> bool:
        self.campaign.database.restart()
        return True

    def restart_redis(self) -> bool:
        assert self.campaign.redis is not None
        self.campaign.redis.stop()
        time.sleep(0.3)
        self.campaign.redis.start()
        return True

    def empty_queue(self) -> bool:
        from django_q.models import OrmQ

        return OrmQ.objects.all().delete()[0] > 0

    # Deliveries and people.

    def ring_again(self) -> bool:
        from anvil_django import queue
        from anvil_django.models import Run

        run_ids = list(Run.objects.values_list("run_id", flat=True))
        if not run_ids:
            return False
        # One that advances if there is one, else any: a run that waits or is done is left as it is.
        advancing = list(self.campaign.busy())
        chosen = self.rng.choice(advancing if advancing and self.rng.random() < 0.7 else run_ids)
        for _ in range(self.rng.randrange(2, 6)):
            queue.ring(chosen, using="default")
        return True

    def deliver_twice(self) -> bool:
        from anvil_django.models import Run

        queued = list(Run.objects.filter(status="queued").values_list("run_id", flat=True)[:50])
        if not queued:
            return False
        chosen = self.rng.choice(queued)
        self.campaign.race([("advance", chosen)] * 2)
        return True

    def race_decision(self) -> bool:
        from anvil_django.models import Approval

        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            pending = Approval.objects.pending().filter(kind="tool").select_related("run", "call")
            for approval in pending[:50]:
                if self.campaign.plan_of(approval) == "race":
                    return self._race(approval.pk, approval.run.run_id)
            time.sleep(0.1)
        return False

    def _race(self, approval_pk: int, run_id: str) -> bool:
        from anvil_django.models import Approval, Decision

        verdicts = self.rng.choice(
            [("approve", "approve"), ("approve", "reject"), ("approve", "approve", "reject")]
        )
        persons = self.rng.sample(self.campaign.persons, len(verdicts))
        answers = self.campaign.race(
            [("decide", approval_pk, verdict, user) for verdict, user in zip(verdicts, persons, strict=True)]
        )
        decisions = Decision.objects.filter(approval_id=approval_pk).count()
        status = Approval.objects.get(pk=approval_pk).status
        if status == "void":
            return True  # The run was cancelled meanwhile.
        if decisions != 1 or answers.count("won") > 1:
            sentence = f"{answers}, {decisions} decisions, now {status}"
            self.campaign.found(Finding("a decision with more than one winner", run_id, sentence))
        return True

    def start_twice(self) -> bool:
        scenario = self.campaign.next_scenario()
        if scenario is None:
            return False
        answers = self.campaign.race([("start", scenario.run_id, scenario.opening)] * 2)
        if any(answer != scenario.run_id for answer in answers):
            self.campaign.tell(f"starting {scenario.run_id} twice gave {answers}")
        self.campaign.start(scenario)
        return True

    def cancel(self) -> bool:
        from anvil_django import runs
        from anvil_django.errors import IllegalTransitionError
        from anvil_django.models import Run

        wanted = [s.run_id for s in self.campaign.scenarios if s.expected.may_be_cancelled]
        found = list(Run.objects.unfinished().filter(run_id__in=wanted, cancel_requested=False)[:50])
        if not found:
            return False
        try:
            runs.cancel(self.rng.choice(found).run_id, by="The campaign")
        except IllegalTransitionError:
            return False
        return True
