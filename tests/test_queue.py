"""When the queue is told: with the transaction, or after it; never of what was rolled back."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.db import transaction
from django_q.conf import Conf
from django_q.models import OrmQ

from anvil_django import queue, start_run

from .world import registered_agent


def test_with_the_orm_broker_the_ticket_is_part_of_the_transaction(transactional_db: None) -> None:
    with registered_agent():
        with transaction.atomic():
            start_run("worldly", "Go.")
            assert OrmQ.objects.count() == 1
            transaction.set_rollback(True)
        assert OrmQ.objects.count() == 0
        start_run("worldly", "Go.")
    assert OrmQ.objects.count() == 1


def test_another_broker_is_told_after_the_commit(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr(Conf, "ORM", None)
    monkeypatch.setattr(queue, "_send", told.append)
    with registered_agent():
        with transaction.atomic():
            start_run("worldly", "Go.", run_id="a")
            transaction.set_rollback(True)
        with transaction.atomic():
            start_run("worldly", "Go.", run_id="b")
            assert told == []
    assert told == ["b"]


def test_a_broker_that_is_away_does_not_undo_what_was_stored(
    transactional_db: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(run_id: str) -> Any:
        raise ConnectionError("the broker is away")

    monkeypatch.setattr(Conf, "ORM", None)
    monkeypatch.setattr(queue, "_send", refuse)
    with registered_agent():
        run = start_run("worldly", "Go.")

    run.refresh_from_db()
    assert run.status == "queued"
    assert "the broker is away" in caplog.text


_FORKED_WORKER = """
import gc, os, sys
import django
django.setup()
from anvil_django import cost, queue
queue.preload()
if os.fork() == 0:
    gc.collect()
    loaded = set(sys.modules)
    cost.price("claude-sonnet-5-5", {"input_tokens": 1, "output_tokens": 1})
    lines = open("/proc/self/smaps_rollup").read().splitlines()
    private = next(line for line in lines if line.startswith("Private_Dirty"))
    print(int(private.split()[1]) // 1024, "genai_prices.data" in set(sys.modules) - loaded, flush=True)
    os._exit(0)
os.wait()
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="only Linux tells what is shared")
def test_what_is_loaded_before_the_fork_stays_shared_with_the_workers() -> None:
    program = [sys.executable, "-c", _FORKED_WORKER]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    private_mb, loaded_prices = done.stdout.split()
    assert int(private_mb) < 15  # The SDK alone is three times as much.
    assert loaded_prices == "False"
