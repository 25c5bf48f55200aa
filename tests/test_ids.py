"""Ids that differ only in case are different ids, on every database."""

import pytest

from anvil_django import start_run
from anvil_django.models import Run

from .world import registered_agent

pytestmark = pytest.mark.django_db


def test_run_ids_are_compared_by_the_byte() -> None:
    with registered_agent():
        lower = start_run("worldly", "Go.", run_id="abc")
        upper = start_run("worldly", "Go.", run_id="ABC")

    assert (lower.run_id, upper.run_id) == ("abc", "ABC")
    assert Run.objects.get(run_id="ABC") == upper


def test_idempotency_keys_are_compared_by_the_byte() -> None:
    with registered_agent():
        lower = start_run("worldly", "Go.", idempotency_key="abc")
        upper = start_run("worldly", "Go.", idempotency_key="ABC")

    assert lower != upper
