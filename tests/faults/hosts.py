"""The campaign's clusters, each as on a host of its own where the system allows that, and their watchdog."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

from tests.processes.cluster import Cluster, wait_until

STALL_SECONDS = 6.0
"""A cluster that takes nothing for so long, while runs wait and none of its workers holds one, is stuck."""
PATIENT_SECONDS = 30.0
"""The same for one that is only starting, and for one that has a supervisor, who is to be faster."""
DEPLOY_SECONDS = 30.0
SUPERVISOR = ["anvil_worker", "--grace", "25", "--probe-every", "1", "--stall", "4"]
_SET_NAME = "import os, socket, sys; socket.sethostname(sys.argv[1]); os.execv(sys.argv[2], sys.argv[2:])"


def can_have_hosts() -> bool:
    """Whether processes can be given another host name."""
    if shutil.which("unshare") is None:
        return False
    tried = subprocess.run(
        ["unshare", "--uts", sys.executable, "-c", "import socket; socket.sethostname('x')"],
        capture_output=True,
        check=False,
    )
    return tried.returncode == 0


class Host:
    """A place for one cluster at a time; killed and deployed clusters are followed by new ones."""

    def __init__(self, number: int, environment: dict[str, str], folder: Path, *, own_name: bool) -> None:
        self.number = number
        self._environment, self._folder = environment, folder
        self._workers = int(environment["ANVIL_FAULTS_WORKERS"])
        self.has_supervisor = importlib.util.find_spec("anvil_django.supervisor") is not None
        command = [sys.executable, "-m", "django", *(SUPERVISOR if self.has_supervisor else ["qcluster"])]
        if own_name:
            command = ["unshare", "--uts", sys.executable, "-c", _SET_NAME, f"anvil-host-{number}", *command]
        self._command = command
        self._starts = 0
        self.cluster: Cluster | None = None
        self.changing = threading.Lock()
        """Held by whoever kills or deploys its cluster."""
        self.restarts = 0
        """By the watchdog."""
        self._seen = 0, time.monotonic()

    def start(self) -> None:
        """Start a cluster; does not wait."""
        self._starts += 1
        log = self._folder / f"cluster-{self.number}-{self._starts:03d}.log"
        self.cluster = Cluster(self._environment, log, command=self._command)
        self._seen = 0, time.monotonic()

    def wait_ready(self) -> None:
        cluster = self._now()
        wait_until(
            lambda: cluster.process.poll() is not None or cluster.said("ready for work") >= self._workers,
            f"the cluster of host {self.number} is ready",
            seconds=60,
        )

    def kill(self) -> None:
        """SIGKILL to all its processes at once."""
        # A supervisor's clusters have sessions of their own. Stopped, it replaces none of them meanwhile.
        main = self._now().process.pid
        with suppress(ProcessLookupError):
            os.kill(main, signal.SIGSTOP)
        while left := _descendants(main):
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.005)
        self._now().kill()

    def deploy(self) -> bool:
        """SIGTERM to the main process, and a new cluster once it is gone; False when it had to be killed."""
        cluster = self._now()
        with suppress(ProcessLookupError):
            os.kill(cluster.process.pid, signal.SIGTERM)
        try:
            cluster.process.wait(DEPLOY_SECONDS)
            gone = True
        except subprocess.TimeoutExpired:
            self.kill()
            gone = False
        self.start()
        return gone

    def workers(self) -> list[int]:
        """Processes that its log names as workers and that still live in its session."""
        found = re.findall(r"ready for work at (\d+)", self._now().log.read_text(errors="replace"))
        return [int(pid) for pid in found if _parent_session(int(pid)) is not None]

    def is_stuck(self, busy: set[int], runs_wait: bool) -> bool:
        """Whether it should be taking tasks and is not."""
        cluster = self._now()
        if cluster.process.poll() is not None:
            return True
        size = cluster.log.stat().st_size
        if size != self._seen[0] or not runs_wait or busy & set(self.workers()):
            self._seen = size, time.monotonic()
        is_patient = self.has_supervisor or cluster.said("ready for work") < self._workers
        return time.monotonic() - self._seen[1] > (PATIENT_SECONDS if is_patient else STALL_SECONDS)

    def _now(self) -> Cluster:
        assert self.cluster is not None
        return self.cluster


def _parent_session(pid: int) -> tuple[int, int] | None:
    """Parent and session of a live process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in {"Z", "X"} else (int(fields[1]), int(fields[3]))


def _descendants(pid: int) -> list[int]:
    """All live processes below ``pid``, the nearest first."""
    parents = {
        int(entry.name): found[0]
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and (found := _parent_session(int(entry.name))) is not None
    }
    found, layer = [], [pid]
    while layer:
        layer = [child for child, parent in parents.items() if parent in layer]
        found += layer
    return found
