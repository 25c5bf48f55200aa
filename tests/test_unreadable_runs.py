"""A run that no worker can even read must neither wait for its lease nor go round for ever."""

from __future__ import annotations

import pytest
from django_q.models import OrmQ

from anvil_django import runs, tasks
from anvil_django.conf import get_settings
from anvil_django.models import Run

from .world import registered_agent

pytestmark = pytest.mark.django_db


@pytest.fixture
def unreadable() -> Run:
    with registered_agent():
        run = runs.start("worldly", "Hello.")
        Run.objects.filter(pk=run.pk).update(limits="{")
        return run


def test_a_run_that_cannot_be_read_is_given_up_and_found_by_the_next_sweep(unreadable: Run) -> None:
    assert tasks.advance(unreadable.run_id) == "interrupted"
    unreadable.refresh_from_db()
    assert (unreadable.status, unreadable.lease_until) == ("running", None)
    assert [found.run_id for found in runs.recover()] == [unreadable.run_id]


def test_a_run_that_cannot_be_read_fails_in_the_end(unreadable: Run) -> None:
    for _ in range(get_settings().max_recoveries + 1):
        assert tasks.advance(unreadable.run_id) == "interrupted"
        assert len(list(runs.recover())) == 1
    OrmQ.objects.all().delete()
    assert tasks.advance(unreadable.run_id) == "interrupted"

    assert len(list(runs.recover())) == 1
    unreadable.refresh_from_db()
    assert (unreadable.status, unreadable.error_code, unreadable.lease_owner) == ("failed", "poison", "")
    assert unreadable.finished_at is not None
    assert not OrmQ.objects.exists(), "nobody is rung for it any more"
    assert list(runs.recover()) == []
