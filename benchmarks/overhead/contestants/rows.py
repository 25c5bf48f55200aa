"""What a careful Django developer would write: rows that are only added, one transaction an iteration."""

from __future__ import annotations

from typing import Any

from django.db import connection, transaction
from django.utils import timezone

from .. import workload
from ..counting import Counter
from ..models import LoopMessage, LoopRun
from ..workload import Job
from . import threads


class DjangoRows:
    """See the module."""

    def __init__(self, counter: Counter | None) -> None:
        if counter is not None:
            counter.watch_django()

    def load(self) -> None: ...

    def open(self) -> None:
        connection.ensure_connection()

    def close(self) -> None:
        connection.close()

    def run(self, key: str, job: Job) -> None:
        opening = {"role": "user", "content": job.opening(key)}
        with transaction.atomic():
            run = LoopRun.objects.create(key=key, updated_at=timezone.now())
            LoopMessage.objects.create(run=run, seq=0, body=opening)
        self._go_on(run, job, [opening])

    def run_together(self, keys: list[str], job: Job) -> None:
        def work(key: str) -> None:
            try:
                self.run(key, job)
            finally:
                connection.close()

        threads.all_at_once(work, keys)

    def resume(self, key: str, job: Job) -> None:
        run = LoopRun.objects.get(key=key)
        rows = LoopMessage.objects.filter(run=run).order_by("seq")
        self._go_on(run, job, list(rows.values_list("body", flat=True)))

    def _go_on(self, run: LoopRun, job: Job, history: list[Any]) -> None:
        for i in range(run.iteration, job.n):
            workload.model_called(job, i, len(history))
            new: list[Any] = [{"role": "assistant", "content": workload.blocks(job, i)}]
            if i < job.n - 1:
                results = [
                    {
                        "type": "tool_result",
                        "tool_use_id": f"call_{seq}",
                        "content": workload.perform(seq, job.size),
                    }
                    for seq in job.seqs(i)
                ]
                new.append({"role": "user", "content": results})
            with transaction.atomic():
                rows = [LoopMessage(run=run, seq=len(history) + k, body=body) for k, body in enumerate(new)]
                LoopMessage.objects.bulk_create(rows)
                LoopRun.objects.filter(pk=run.pk).update(
                    iteration=i + 1,
                    status="running" if i < job.n - 1 else "done",
                    updated_at=timezone.now(),
                )
            history += new
        workload.check_history(job, history)
