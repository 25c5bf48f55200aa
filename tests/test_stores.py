"""Both stores keep the same contract."""

import pytest

from anvil_django.stores import DjangoStateStore, MemoryStateStore, StateStore
from anvil_django.testing import StoreConformance


class TestMemoryStateStore(StoreConformance):
    def make_store(self) -> StateStore:
        return MemoryStateStore()


@pytest.mark.django_db
class TestDjangoStateStore(StoreConformance):
    def make_store(self) -> StateStore:
        return DjangoStateStore()
