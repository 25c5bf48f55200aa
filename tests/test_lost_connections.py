"""A connection to the database that is lost while a tool runs."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import OperationalError, connection

from anvil_django import Checkpointer, ToolContext, resume_agent, tool
from anvil_django.clock import FixedClock
from anvil_django.errors import LeaseLostError
from anvil_django.models import Run, ToolCall
from anvil_django.stores import DjangoStateStore, saving
from anvil_django.stores.base import TransactionCutOffError
from anvil_django.testing import ScriptedMessagesAPI, say, tool_call
from anvil_django.testing.conformance_base import StoreUnderTest
from example_project.shop.models import Order

from .driving import agent, result, results, run

pytestmark = [pytest.mark.usefixtures("clock"), pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize("committed", [False, True], ids=["before the commit", "in the answer to the commit"])
def test_an_atomic_tool_whose_connection_breaks_is_done_once_and_not_told_as_failed(
    messages_api: ScriptedMessagesAPI, monkeypatch: pytest.MonkeyPatch, committed: bool
) -> None:
    ran: list[int] = []
    commit = connection._commit

    def lose_the_answer() -> None:
        monkeypatch.undo()
        commit()
        connection.connection.close()
        raise OperationalError("server closed the connection unexpectedly")

    @tool(side_effect=True, atomic=True)
    def book(number: str, ctx: ToolContext) -> str:
        """Book an order."""
        ran.append(ctx.attempt)
        Order.objects.create(number=number, customer_email="c@example.com", item="lamp", amount=1)
        if len(ran) == 1 and committed:
            monkeypatch.setattr(connection, "_commit", lose_the_answer)
        elif len(ran) == 1:
            connection.connection.close()
        return "booked"

    messages_api.script(say(tool_call("book", {"number": "A-1"})), say("Done."))
    store = DjangoStateStore()
    with pytest.raises(TransactionCutOffError):
        run(agent(book), store)
    done = resume_agent(agent(book), checkpoint=Checkpointer(store, "r"))

    assert (done.status, result(done)["content"]) == ("done", "booked")
    assert len(ran) == (1 if committed else 2)
    assert Order.objects.count() == 1


@pytest.mark.skipif(connection.vendor == "sqlite", reason="nobody drops a connection to a file")
def test_a_tool_finds_a_connection_that_works_after_a_long_one(
    messages_api: ScriptedMessagesAPI, clock: FixedClock
) -> None:
    @tool
    def wait() -> str:
        """Wait for hours, while the server drops the connection."""
        connection.connection.close()
        clock.advance(6)
        return "waited"

    @tool
    def count() -> str:
        """Count the orders."""
        return str(Order.objects.count())

    connection.close()  # The next one is checked before it is used again.
    messages_api.script(say(tool_call("wait"), tool_call("count")), say("Done."))

    done = run(agent(wait, count), DjangoStateStore())

    assert [block["content"] for block in results(done)] == ["waited", "0"]


class TestASaveWithoutAnAnswer(StoreUnderTest):
    def make_store(self) -> DjangoStateStore:
        return DjangoStateStore()

    def test_counts_where_it_was_committed(
        self, store: DjangoStateStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        checkpoint, lease = self.opened(store)
        write = saving.write

        def lose_the_answer(*args: Any, **given: Any) -> Any:
            monkeypatch.undo()
            write(*args, **given)
            raise OperationalError("server closed the connection unexpectedly")

        for intent in (False, True):
            if intent:
                checkpoint.calls[0].start(checkpoint.token)
                checkpoint.touch(checkpoint.calls[0])
            monkeypatch.setattr(saving, "write", lose_the_answer)
            store.save(checkpoint, lease, progress=True)

        assert (Run.objects.get().revision, checkpoint.revision) == (3, 3)
        assert ToolCall.objects.get(call_id="toolu_1").status == "started"

    def test_is_not_taken_for_that_of_somebody_else(
        self, store: DjangoStateStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        checkpoint, lease = self.opened(store)
        store.save(checkpoint, lease, progress=True)

        def save_another(*args: Any, **given: Any) -> Any:
            monkeypatch.undo()
            saver = Checkpointer(DjangoStateStore(), "run-1")
            loaded = saver.load()
            assert loaded is not None
            saver.save(loaded)
            raise OperationalError("server closed the connection unexpectedly")

        monkeypatch.setattr(saving, "write", save_another)
        checkpoint.calls[0].start(checkpoint.token)
        checkpoint.touch(checkpoint.calls[0])
        with pytest.raises(LeaseLostError):
            store.save(checkpoint, lease, progress=True)

        assert ToolCall.objects.get(call_id="toolu_1").status == "ready"
