"""What more than one test module needs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from anvil_django import tasks
from anvil_django.clock import FixedClock
from anvil_django.stores import DjangoStateStore, MemoryStateStore, StateStore
from anvil_django.testing import fixed_clock


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With several pytest workers, the tests that start processes share one: they need the cores."""
    for item in items:
        if item.get_closest_marker("processes"):
            item.add_marker(pytest.mark.xdist_group("processes"))


@pytest.fixture(params=["memory", pytest.param("django", marks=pytest.mark.django_db)])
def store(request: pytest.FixtureRequest) -> StateStore:
    """Each store in turn: a run must not know where it is kept."""
    return MemoryStateStore() if request.param == "memory" else DjangoStateStore()


@pytest.fixture
def clock() -> Iterator[FixedClock]:
    """Time that stands still until the test moves it."""
    with fixed_clock() as fixed:
        yield fixed


@pytest.fixture(autouse=True)
def no_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing sweeps by the way, which would depend on how long the tests before took."""
    monkeypatch.setattr(tasks, "SWEEP_EVERY", float("inf"))
    monkeypatch.setattr(tasks, "_swept_at", 0.0)
