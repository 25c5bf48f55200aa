"""Both stores keep the same contract, and the Django store in both ways in which it writes a save."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.db import connection

from anvil_django import Checkpointer, start_run, tasks
from anvil_django.errors import LeaseLostError
from anvil_django.models import Approval, Run, ToolCall
from anvil_django.states import ApprovalKind, CallStatus, Outcome, RunStatus
from anvil_django.stores import DjangoStateStore, MemoryStateStore, StateStore
from anvil_django.testing import ScriptedMessagesAPI, StoreConformance, say, tool_call

from .world import registered_agent


class TestMemoryStateStore(StoreConformance):
    def make_store(self) -> StateStore:
        return MemoryStateStore()


@pytest.mark.django_db
class TestDjangoStateStore(StoreConformance):
    def make_store(self) -> StateStore:
        return DjangoStateStore()

    def test_a_result_that_is_stored_is_not_written_again(self, store: StateStore) -> None:
        checkpoint, lease = self.opened(store)
        store.save(checkpoint, lease, progress=True)
        stored = ToolCall.objects.filter(call_id="toolu_1")
        stored.update(status="done", outcome="returned", result='"The first."')
        before = Run.objects.values().get()

        checkpoint.calls[0].finish(Outcome.RETURNED, "The second.")
        checkpoint.touch(checkpoint.calls[0])
        with pytest.raises(LeaseLostError):
            store.save(checkpoint, lease, progress=True)

        assert stored.get().result == '"The first."'
        assert Run.objects.values().get() == before, "nothing of that save is kept"

    def test_the_calls_of_a_turn_have_keys_in_their_order(self, store: StateStore) -> None:
        checkpoint, lease = self.opened(store)
        more = [replace(checkpoint.calls[1], call_id=f"toolu_{i}", index=i - 1) for i in range(3, 20)]
        checkpoint.open_turn([*checkpoint.calls, *more])
        store.save(checkpoint, lease, progress=True)

        assert list(ToolCall.objects.order_by("pk").values_list("index", flat=True)) == list(range(19))

    def test_a_checkpoint_that_was_loaded_is_saved_as_it_is(self, store: StateStore) -> None:
        checkpoint, lease = self.opened(store)
        checkpoint.calls[0].finish(Outcome.RETURNED, "Done.")
        checkpoint.calls[1].wait(ApprovalKind.TOOL)
        checkpoint.status = RunStatus.SUSPENDED
        store.save(checkpoint, lease, progress=True)
        saver = Checkpointer(store, "run-1")

        for copied in (False, True):
            loaded = saver.load()
            assert loaded is not None
            saver.save(loaded.copy() if copied else loaded)

        assert [c.status for c in self.loaded(store).calls] == [CallStatus.DONE, CallStatus.WAITING]
        assert Approval.objects.count() == 1

    def test_a_column_that_was_changed_without_the_lease_is_written_back_under_it(
        self, store: StateStore
    ) -> None:
        checkpoint, lease = self.opened(store)
        checkpoint.attempt = 2
        store.put(checkpoint)
        checkpoint.attempt = 0
        store.save(checkpoint, lease, progress=True)

        assert self.loaded(store).attempt == 0

    @pytest.mark.parametrize("table", ["anvil_django_toolcall", "anvil_django_message"])
    def test_a_save_in_the_middle_of_reading_leaves_no_call_without_its_result(
        self, store: StateStore, table: str
    ) -> None:
        checkpoint, lease = self.opened(store)
        store.save(checkpoint, lease, progress=True)
        saved: list[str] = []

        def save_before(execute: Any, sql: str, *args: Any) -> Any:
            if not saved and sql.startswith("SELECT") and table in sql and "EXISTS" not in sql:
                saved.append(sql)
                for each in checkpoint.calls:
                    each.finish(Outcome.RETURNED, "Done.")
                    checkpoint.touch(each)
                checkpoint.close_turn()
                checkpoint.append({"role": "assistant", "content": [{"type": "text", "text": "Bye."}]})
                store.save(checkpoint, lease, progress=True)
            return execute(sql, *args)

        with connection.execute_wrapper(save_before):
            loaded = self.loaded(store)

        assert saved
        assert loaded.messages == checkpoint.messages[:2]
        assert [call.call_id for call in loaded.calls] == ["toolu_1", "toolu_2"]


@pytest.mark.skipif(connection.vendor != "postgresql", reason="elsewhere there is no other way")
class TestDjangoStateStoreInPlainStatements(TestDjangoStateStore):
    @pytest.fixture(autouse=True)
    def plain(self, settings: Any) -> None:
        settings.ANVIL = {**settings.ANVIL, "SAVE_IN_ONE_STATEMENT": False}


@pytest.mark.django_db
@pytest.mark.skipif(connection.vendor != "postgresql", reason="only there a save is one statement")
def test_the_statement_of_a_save_is_prepared_where_the_site_allows_it(
    messages_api: ScriptedMessagesAPI,
) -> None:
    messages_api.script(*[say(tool_call("look", {"thing": "a"})) for _ in range(12)], say("Done."))
    with registered_agent():
        start_run("worldly", "Go.", run_id="r")
        tasks.advance("r")

    assert Run.objects.get().iterations == 13
    with connection.cursor() as cursor:
        cursor.execute("SELECT COUNT(*) FROM pg_prepared_statements WHERE statement LIKE %s", ["WITH saved%"])
        assert bool(cursor.fetchone()[0]) is (connection.connection.prepare_threshold is not None)
