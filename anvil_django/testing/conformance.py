"""``StoreConformance``: what every ``StateStore`` must do. Subclass it and give it a store.

class TestMyStore(StoreConformance):
    def make_store(self):
        return MyStore()
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from anvil_django import exactjson
from anvil_django.checkpoint import Checkpointer
from anvil_django.cost import Usage
from anvil_django.errors import AnvilError, HistoryRewrittenError, LeaseLostError, RunIdTakenError
from anvil_django.states import ApprovalKind, Outcome, RunStatus
from anvil_django.stores.base import RunRequestedError, StateStore

from .clocks import fixed_clock
from .conformance_approvals import ApprovalConformance
from .conformance_base import ASSISTANT, call, new_checkpoint, without_times

HOSTILE = [
    "\x00 NUL",
    "lone \ud800 surrogate",
    "astral \U0001f600 and combining e\u0301",
    "\u202eright to left\u202c",
    "'; DROP TABLE anvil_django_run; --",
    "<script>alert(1)</script> {{ 7|add:7 }} {% debug %} %s %(x)s",
    "\\u0000 \\ \" '",
    "line\u2028separator\u2029\r\n\t",
]


class StoreConformance(ApprovalConformance):
    """Behavior that the loop relies on, tested through the public methods of a store."""

    # Saved is loaded.

    def test_what_is_saved_is_loaded(self, store: StateStore) -> None:
        saved = new_checkpoint(
            iterations=3,
            total_usage=Usage(1, 2, 3, 4),
            total_cost_usd=Decimal("0.0000000001"),
            container={"id": "c1"},
            active_seconds=1.25,
        )
        Checkpointer(store, "run-1").save(saved)

        loaded = Checkpointer(store, "run-1").load()

        assert loaded is not None
        assert without_times(loaded) == without_times(saved)

    def test_an_unknown_cost_stays_unknown(self, store: StateStore) -> None:
        store.put(new_checkpoint(total_cost_usd=None))

        loaded = store.load("run-1")

        assert loaded is not None
        assert loaded.total_cost_usd is None

    def test_an_open_turn_is_loaded_with_its_calls(self, store: StateStore) -> None:
        checkpoint, lease = self.opened(store)
        checkpoint.calls[0].start(lease.token)
        store.save(checkpoint, lease, progress=True)

        loaded = store.load("run-1")

        assert loaded is not None
        assert loaded.calls == checkpoint.calls
        assert without_times(loaded) == without_times(checkpoint)

    def test_an_answered_turn_is_loaded_as_one_user_message(self, store: StateStore) -> None:
        checkpoint, lease = self.opened(store)
        store.save(checkpoint, lease, progress=True)
        for each in checkpoint.calls:
            each.finish(Outcome.RETURNED, f"result of {each.name}", is_error=each.index == 1)
            checkpoint.touch(each)
        checkpoint.close_turn()
        store.save(checkpoint, lease, progress=True)

        loaded = store.load("run-1")

        assert loaded is not None
        assert exactjson.dumps(loaded.messages) == exactjson.dumps(checkpoint.messages)
        assert loaded.messages[2] == {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "result of pay"},
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_2",
                    "content": "result of look",
                    "is_error": True,
                },
            ],
        }
        assert loaded.calls == []

    @pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
    def test_hostile_text_comes_back_as_it_went_in(self, store: StateStore, text: str) -> None:
        kept = exactjson.clean({"text": text, text: 1}, keep_nul=True)
        messages = [{"role": "user", "content": [{"type": "text", "text": exactjson.dumps(kept), "x": kept}]}]
        store.put(new_checkpoint(messages=messages, metadata={"k": kept}))

        loaded = store.load("run-1")

        assert loaded is not None
        assert exactjson.dumps(loaded.messages) == exactjson.dumps(messages)
        assert loaded.metadata == {"k": kept}

    def test_numbers_and_key_order_come_back_exactly(self, store: StateStore) -> None:
        value = {"z": 1e22, "a": -0.0, "m": 10**400, "b": 1e308, "n": 0.1, "aa": [], "A": {"y": 1, "x": 2}}
        store.put(
            new_checkpoint(
                messages=[{"role": "user", "content": [{"type": "text", "text": "t", "v": value}]}]
            )
        )

        loaded = store.load("run-1")

        assert loaded is not None
        assert exactjson.dumps(loaded.messages[0]["content"][0]["v"]) == exactjson.dumps(value)

    def test_an_absent_run_is_none(self, store: StateStore) -> None:
        assert store.load("nobody") is None
        assert store.claim("nobody", "me", 60) is None

    def test_a_run_id_is_used_once(self, store: StateStore) -> None:
        store.create(new_checkpoint())

        with pytest.raises(RunIdTakenError):
            store.create(new_checkpoint())

    def test_runs_are_listed_oldest_first_and_deleted(self, store: StateStore) -> None:
        for run_id in ("b", "a", "c"):
            store.create(new_checkpoint(run_id))

        assert store.run_ids() == ["b", "a", "c"]
        assert store.delete("a") is True
        assert store.delete("a") is False
        assert store.run_ids() == ["b", "c"]
        assert store.load("a") is None

    # Append-only.

    def test_a_stored_message_cannot_be_changed(self, store: StateStore) -> None:
        store.put(new_checkpoint())
        loaded = store.load("run-1")
        assert loaded is not None
        loaded.messages[0]["content"] = "Something else"

        with pytest.raises(HistoryRewrittenError):
            store.put(loaded)

        again = store.load("run-1")
        assert again is not None
        assert again.messages == [{"role": "user", "content": "Hello"}]

    def test_a_stored_message_cannot_be_dropped(self, store: StateStore) -> None:
        store.put(new_checkpoint())
        loaded = store.load("run-1")
        assert loaded is not None
        loaded.messages.clear()

        with pytest.raises(HistoryRewrittenError):
            store.put(loaded)

    def test_messages_are_added_at_the_end(self, store: StateStore) -> None:
        store.put(new_checkpoint())
        loaded = store.load("run-1")
        assert loaded is not None
        loaded.append({"role": "assistant", "content": [{"type": "text", "text": "Hi"}]})
        store.put(loaded)

        again = store.load("run-1")

        assert again is not None
        assert [m["role"] for m in again.messages] == ["user", "assistant"]

    # One worker at a time.

    def test_a_queued_run_is_claimed_once(self, store: StateStore) -> None:
        store.create(new_checkpoint())

        first = store.claim("run-1", "me", 60)

        assert first is not None
        assert first[0].status is RunStatus.RUNNING
        assert first[1].token == first[0].token
        assert store.claim("run-1", "you", 60) is None

    def test_an_expired_lease_can_be_taken_over_under_a_new_token(self, store: StateStore) -> None:
        with fixed_clock() as clock:
            store.create(new_checkpoint())
            first = store.claim("run-1", "me", 60)
            clock.advance(61)
            second = store.claim("run-1", "you", 60)

        assert first is not None
        assert second is not None
        assert second[1].token > first[1].token
        assert second[0].recoveries == 1

    def test_a_stale_token_writes_nothing(self, store: StateStore) -> None:
        with fixed_clock() as clock:
            stale, lease = self.opened(store)
            clock.advance(61)
            assert store.claim("run-1", "you", 60) is not None

            with pytest.raises(LeaseLostError):
                store.save(stale, lease, progress=True)
            with pytest.raises(LeaseLostError):
                store.renew(lease)
            with pytest.raises(LeaseLostError):
                store.put(stale)
            store.release(lease)

            assert store.claim("run-1", "third", 60) is None
        loaded = store.load("run-1")
        assert loaded is not None
        assert len(loaded.messages) == 1

    def test_two_saves_of_the_same_revision_do_not_both_succeed(self, store: StateStore) -> None:
        store.put(new_checkpoint())
        one, two = store.load("run-1"), store.load("run-1")
        assert one is not None
        assert two is not None
        one.append({"role": "assistant", "content": [{"type": "text", "text": "one"}]})
        two.append({"role": "assistant", "content": [{"type": "text", "text": "two"}]})
        store.put(one)

        with pytest.raises(LeaseLostError):
            store.put(two)

    def test_renewing_keeps_a_run_and_releasing_gives_it_up(self, store: StateStore) -> None:
        with fixed_clock() as clock:
            store.create(new_checkpoint())
            claimed = store.claim("run-1", "me", 60)
            assert claimed is not None
            clock.advance(50)
            assert store.renew(claimed[1]) is None
            clock.advance(50)
            assert claimed[1].is_live
            assert store.claim("run-1", "you", 60) is None

            store.release(claimed[1])

            assert store.claim("run-1", "you", 60) is not None

    def test_each_save_keeps_the_run_for_as_long_as_a_claim(self, store: StateStore) -> None:
        with fixed_clock() as clock:
            checkpoint, lease = self.opened(store)
            for _ in range(3):
                clock.advance(50)
                store.save(checkpoint, lease, progress=True)
                assert lease.is_live
                assert self.loaded(store).updated_at == clock.now()
            clock.advance(50)

            assert store.claim("run-1", "you", 60) is None

    def test_a_second_delay_as_long_as_the_first_begins_anew(self, store: StateStore) -> None:
        with fixed_clock() as clock:
            checkpoint, lease = self.opened(store)
            for _ in range(2):
                clock.advance(20)
                checkpoint.next_attempt_at = clock.now() + timedelta(seconds=30)
                store.save(checkpoint, lease, progress=False)

            assert self.loaded(store).next_attempt_at == checkpoint.next_attempt_at

    def test_finished_steps_reset_the_count_of_recoveries(self, store: StateStore) -> None:
        with fixed_clock() as clock:
            store.create(new_checkpoint())
            for _ in range(3):
                claimed = store.claim("run-1", "me", 60)
                clock.advance(61)
            assert claimed is not None
            assert claimed[0].recoveries == 2
            claimed = store.claim("run-1", "me", 60)
            assert claimed is not None
            checkpoint, lease = claimed

            store.save(checkpoint, lease, progress=False)
            kept = store.load("run-1")
            store.save(checkpoint, lease, progress=True)
            reset = store.load("run-1")

        assert kept is not None
        assert kept.recoveries == 3
        assert reset is not None
        assert reset.recoveries == 0

    def test_a_run_that_backs_off_is_not_claimed_before_its_time(self, store: StateStore) -> None:
        with fixed_clock(datetime(2026, 1, 1, tzinfo=UTC)) as clock:
            store.create(new_checkpoint())
            claimed = store.claim("run-1", "me", 60)
            assert claimed is not None
            checkpoint, lease = claimed
            checkpoint.status = RunStatus.QUEUED
            checkpoint.next_attempt_at = datetime(2026, 1, 1, 0, 0, 30, tzinfo=UTC)
            store.save(checkpoint, lease, progress=False)

            assert store.claim("run-1", "you", 60) is None
            clock.advance(31)
            assert store.claim("run-1", "you", 60) is not None

    @pytest.mark.parametrize(
        "status",
        [RunStatus.SUSPENDED, RunStatus.PAUSED, RunStatus.DONE, RunStatus.FAILED, RunStatus.CANCELLED],
    )
    def test_a_run_that_does_not_advance_is_not_claimed(self, store: StateStore, status: RunStatus) -> None:
        store.create(new_checkpoint())
        claimed = store.claim("run-1", "me", 60)
        assert claimed is not None
        checkpoint, lease = claimed
        if status is RunStatus.SUSPENDED:
            checkpoint.append(ASSISTANT)
            checkpoint.open_turn([call("toolu_1", 0), call("toolu_2", 1)])
            checkpoint.calls[0].wait(ApprovalKind.TOOL)
        checkpoint.status, checkpoint.error_code, checkpoint.stop_reason = status, "x", "x"
        store.save(checkpoint, lease, progress=True)

        assert store.claim("run-1", "you", 60) is None
        loaded = store.load("run-1")
        assert loaded is not None
        assert loaded.status is status

    # What people ask.

    @pytest.mark.parametrize("request_", ["cancel", "pause"])
    def test_a_request_refuses_the_next_save_once_heeded(self, store: StateStore, request_: Any) -> None:
        checkpoint, lease = self.opened(store)
        assert store.request("run-1", request_) is True

        with pytest.raises(RunRequestedError) as asked:
            store.save(checkpoint, lease, progress=True)

        assert asked.value.request == request_
        assert store.renew(lease) == request_
        store.save(checkpoint, lease, progress=True, heed=())
        loaded = store.load("run-1")
        assert loaded is not None
        assert len(loaded.messages) == 2

    def test_a_finished_run_takes_no_request(self, store: StateStore) -> None:
        checkpoint, lease = self.opened(store)
        checkpoint.calls.clear()
        checkpoint.unsaved_calls.clear()
        checkpoint.status, checkpoint.stop_reason = RunStatus.DONE, "end_turn"
        store.save(checkpoint, lease, progress=True)

        assert store.request("run-1", "cancel") is False
        assert store.wake("run-1", {RunStatus.PAUSED}) is False

    def test_a_paused_run_is_woken(self, store: StateStore) -> None:
        store.create(new_checkpoint())
        claimed = store.claim("run-1", "me", 60)
        assert claimed is not None
        checkpoint, lease = claimed
        checkpoint.status, checkpoint.error = RunStatus.PAUSED, "why"
        store.save(checkpoint, lease, progress=True)

        assert store.request("run-1", "cancel") is False, "nobody would heed it"
        assert store.wake("run-1", {RunStatus.FAILED}) is False
        assert store.wake("run-1", {RunStatus.PAUSED}) is True

        claimed = store.claim("run-1", "me", 60)
        assert claimed is not None
        assert claimed[0].error == ""

    def test_a_refused_save_can_be_made_again(self, store: StateStore) -> None:
        checkpoint, lease = self.opened(store)
        store.request("run-1", "pause")
        with pytest.raises(AnvilError):
            store.save(checkpoint, lease, progress=True)

        checkpoint.status = RunStatus.PAUSED
        store.save(checkpoint, lease, progress=True, heed=())

        loaded = store.load("run-1")
        assert loaded is not None
        assert [c.call_id for c in loaded.calls] == ["toolu_1", "toolu_2"]
