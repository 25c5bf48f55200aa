"""Starting, watching and killing the real processes of a test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from django.db import connection
from django_q.models import OrmQ

from anvil_django import runs
from anvil_django.models import Run
from anvil_django.testing import ScriptedMessagesAPI

ROOT = Path(__file__).resolve().parents[2]
WORKERS = 2
ROUNDS = int(os.environ.get("ANVIL_TEST_ROUNDS", "3"))
"""How often each race is run."""


def wait_until(condition: Callable[[], Any], what: str, *, seconds: float = 30.0) -> Any:
    """Ask again and again until ``condition`` gives something true, and return that."""
    deadline = time.monotonic() + seconds
    while True:
        if found := condition():
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.02)


class Cluster:
    """One ``qcluster`` with its sentinel and workers, in a session of its own."""

    def __init__(self, environment: dict[str, str], log: Path, *, command: list[str] | None = None) -> None:
        self.log = log
        with open(log, "wb") as output:
            self.process = subprocess.Popen(
                command or [sys.executable, "-m", "django", "qcluster"],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def said(self, text: str) -> int:
        """How often the log says ``text``."""
        return self.log.read_text(errors="replace").count(text)

    def is_ready(self) -> bool:
        """Whether all its workers take tasks."""
        assert self.process.poll() is None, f"the cluster did not start:\n{self.log.read_text()}"
        return self.said("ready for work") >= WORKERS and self.said("running.") > 0

    def terminate_main(self) -> int:
        """What a deploy does: SIGTERM to the main process only; its exit code."""
        os.kill(self.process.pid, signal.SIGTERM)
        return self.process.wait(timeout=30)

    def kill(self) -> None:
        """SIGKILL to every process at once."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class Racer:
    """A process that does one thing at a given instant; see ``racer.py``."""

    def __init__(
        self, environment: dict[str, str], log: Path, *, module: str = "tests.processes.racer"
    ) -> None:
        self.log = open(log, "wb")  # noqa: SIM115 (closed by ``kill``)
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            start_new_session=True,
        )

    def send(self, at: float, job: str, *arguments: Any) -> None:
        """Have it do ``job`` at the time ``at``."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([at, job, *arguments]) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        """What the job returned."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the racer died:\n{Path(self.log.name).read_text()}"
        return json.loads(line)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.log):
            if stream is not None:
                stream.close()


class Site:
    """A test's own corner: a folder, a scripted API, and the processes it has started."""

    def __init__(
        self, folder: Path, api: ScriptedMessagesAPI, *, settings: str = "tests.processes.settings"
    ) -> None:
        self.folder, self.api, self._settings = folder, api, settings
        self._processes: list[Cluster | Racer] = []

    # Processes.

    def environment(self, **changes: Any) -> dict[str, str]:
        """Of a process that works on the test's database; ``changes`` are laid over its ``ANVIL``."""
        return {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": self._settings,
            "ANVIL_TEST_DB_NAME": str(connection.settings_dict["NAME"]),
            "ANVIL_TEST_API_URL": self.api.url,
            "ANVIL_TEST_WORKSPACE": str(self.folder),
            "ANVIL_TEST_SETTINGS": json.dumps(changes),
            "PYTHONUNBUFFERED": "1",
        }

    def start_cluster(self, **changes: Any) -> Cluster:
        """A cluster whose workers are ready."""
        cluster = Cluster(self.environment(**changes), self.folder / f"cluster-{len(self._processes)}.log")
        self._processes.append(cluster)
        wait_until(cluster.is_ready, "the cluster is ready")
        return cluster

    def start_racers(self, number: int, **changes: Any) -> list[Racer]:
        """Processes that have loaded everything and wait for a job."""
        racers: list[Racer] = []
        for _ in range(number):
            racers.append(
                Racer(self.environment(**changes), self.folder / f"racer-{len(self._processes)}.log")
            )
            self._processes.append(racers[-1])
        for racer in racers:
            assert racer.answer() == "ready"
        return racers

    def race(self, racers: list[Racer], *jobs: tuple[Any, ...]) -> list[Any]:
        """Have each racer do its job at the same instant; what they returned."""
        at = time.time() + 0.02
        for racer, job in zip(racers, jobs, strict=True):
            racer.send(at, *job)
        return [racer.answer() for racer in racers]

    def look_after(self, process: Cluster | Racer) -> None:
        """Kill it at the end."""
        self._processes.append(process)

    def kill_all(self) -> None:
        for process in self._processes:
            process.kill()

    def logs(self) -> str:
        """All that the processes have written."""
        logs = sorted(self.folder.glob("*.log"))
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')}" for log in logs)

    # Tools.

    def hold(self, name: str) -> None:
        """Let every tool that is called with ``name`` wait inside."""
        (self.folder / f"hold-{name}").touch()

    def release(self, name: str) -> None:
        """Let it go on."""
        (self.folder / f"hold-{name}").unlink()

    def trace(self) -> list[dict[str, Any]]:
        """What the tools noted, in order."""
        path = self.folder / "trace"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def counts(self, event: str = "ended") -> dict[str, int]:
        """How often each name began or ended."""
        return dict(Counter(line["name"] for line in self.trace() if line["event"] == event))

    def wait_inside(self, name: str, *, times: int = 1) -> int:
        """Wait until a tool has begun ``name`` so many times; the pid of the last process in it."""
        wait_until(lambda: self.counts("began").get(name, 0) >= times, f"{name} has begun {times} times")
        return next(line["pid"] for line in reversed(self.trace()) if line["name"] == name)

    # Runs.

    def start_run(self, text: str = "Go.") -> Run:
        return runs.start("crew", text)

    def wait_for(self, run: Run, status: str, *, seconds: float = 30.0) -> Run:
        """The run once it has that status, long before a lease of a minute could have run out."""

        def reached() -> bool:
            run.refresh_from_db()
            return run.status == status

        try:
            wait_until(reached, f"the run is {status}", seconds=seconds)
        except AssertionError as late:
            raise AssertionError(
                f"{late}; it is {run.status} ({run.error_code} {run.error}), token {run.token}, recoveries "
                f"{run.recoveries}, lease {run.lease_owner!r} until {run.lease_until}\n{self.logs()}"
            ) from None
        return run


def tickets() -> Counter[str]:
    """How many doorbells each run has in the queue."""
    return Counter(ticket.task["args"][0] for ticket in OrmQ.objects.all())


def worker_of(run: Run) -> int:
    """The process that holds the run's lease."""
    run.refresh_from_db()
    assert run.lease_owner, f"nobody holds the run; it is {run.status}"
    return int(run.lease_owner.split("/")[-3])


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """SIGSTOP the process while the block runs."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
