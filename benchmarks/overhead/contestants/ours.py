"""anvil_django the way a worker uses it: a stored run, its doorbell, a lease with fencing and heartbeat."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission
from django.db import connection, connections

from anvil_django import Checkpointer, approvals, queue, run_agent, start_run, tasks
from anvil_django.clients import get_client
from anvil_django.models import Approval, Run
from anvil_django.stores import MemoryStateStore

from .. import workload
from ..agents import AGENT
from ..counting import Counter
from ..workload import Job, WrongRunError
from . import threads
from .scripted import ScriptedClient


def client() -> Any:
    """What ``ANVIL["CLIENT"]`` names: the model in the process, or the SDK where a server is given."""
    from .sdk import sdk_client, server_url

    return sdk_client() if server_url() else ScriptedClient()


class Anvil:
    """See the module; in memory, the loop alone."""

    def __init__(self, kind: str, counter: Counter | None) -> None:
        self._in_memory = kind == "memory"
        self._client = get_client()
        self._reviewer: Any = None
        if counter is not None:
            counter.watch_django()

    def load(self) -> None:
        queue.preload()  # As a cluster does before its workers are forked.

    def open(self) -> None:
        if not self._in_memory:
            connection.ensure_connection()

    def close(self) -> None:
        connections.close_all()

    def run(self, key: str, job: Job) -> None:
        if self._in_memory:
            saver = Checkpointer(MemoryStateStore(), key)
            result = run_agent(AGENT, job.opening(key), client=self._client, checkpoint=saver)
            _expect(job, str(result.status), result.iterations, result.error)
        else:
            start_run(AGENT, job.opening(key), run_id=key)
            self._advance(key, job)
        if isinstance(self._client, ScriptedClient):
            workload.check_history(job, self._client.last)

    def _advance(self, key: str, job: Job) -> None:
        status = tasks.advance(key)
        while status == "suspended" and job.shape == "approval":
            waiting = Approval.objects.get(run__run_id=key, status="pending")
            approvals.approve(waiting, user=self._person())
            status = tasks.advance(key)
        if status != "done":
            run = Run.objects.get(run_id=key)
            raise WrongRunError(f"The run is {status}: {run.error_code} {run.error}")

    def run_together(self, keys: list[str], job: Job) -> None:
        def work(key: str) -> None:
            try:
                start_run(AGENT, job.opening(key), run_id=key)
                self._advance(key, job)
            finally:
                connection.close()

        threads.all_at_once(work, keys)
        if sorted(Run.objects.filter(run_id__in=keys).values_list("iterations", "status")) != [
            (job.n, "done")
        ] * len(keys):
            raise WrongRunError("Not every run is done.")

    def resume(self, key: str, job: Job) -> None:
        """What a starting worker does: the sweep finds the run of the dead process, and it is claimed."""
        tasks.recover()
        self._advance(key, job)

    def _person(self) -> Any:
        if self._reviewer is None:
            self._reviewer = get_user_model().objects.create(username="rita")
            self._reviewer.user_permissions.add(Permission.objects.get(codename="decide_approval"))
        return self._reviewer


def _expect(job: Job, status: str, iterations: int, error: Any) -> None:
    if (status, iterations) != ("done", job.n):
        raise WrongRunError(f"The run is {status} after {iterations} iterations: {error}")
