"""When the queue is told: with the transaction, or after it; never of what was rolled back."""

from __future__ import annotations

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
