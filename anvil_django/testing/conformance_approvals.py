"""The part of ``StoreConformance`` about what people decide."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from anvil_django.calls import NOBODY, Decision, ToolCall
from anvil_django.clock import get_clock
from anvil_django.errors import AlreadyDecidedError, ApprovalExpiredError, DecisionError, UnknownRunError
from anvil_django.states import ApprovalKind, CallStatus, Channel, Outcome, RunStatus
from anvil_django.stores.base import ApprovalUnusableError, StateStore

from .clocks import fixed_clock
from .conformance_base import StoreUnderTest, new_checkpoint, without_times

YES = Decision(approved=True, reviewer="Alice")
NO = Decision(approved=False, reviewer="Bob", reason="no")


class ApprovalConformance(StoreUnderTest):
    """Questions are stored, decided once, and used once."""

    def suspended(self, store: StateStore) -> None:
        checkpoint, lease = self.opened(store)
        checkpoint.calls[0].wait(ApprovalKind.TOOL, {"amount": "149.90"})
        checkpoint.calls[1].wait(ApprovalKind.TOOL)
        checkpoint.status = RunStatus.SUSPENDED
        store.save(checkpoint, lease, progress=True)

    def test_waiting_calls_are_pending_until_each_is_decided(self, store: StateStore) -> None:
        self.suspended(store)
        yes = Decision(approved=True, reviewer="Alice", reason="fine", edited_input={"z": 2})

        store.decide("run-1", "toolu_1", yes)

        loaded = store.load("run-1")
        assert loaded is not None
        assert [p.call_id for p in loaded.pending] == ["toolu_2"]
        assert loaded.status is RunStatus.SUSPENDED
        decision = loaded.calls[0].decision
        assert decision is not None
        assert replace(decision, decided_at=None, digest="") == yes
        assert decision.digest == loaded.calls[0].digest("run-1", {"z": 2})
        assert store.wake("run-1", {RunStatus.SUSPENDED}) is False

        store.decide("run-1", "toolu_2", Decision(approved=False, reviewer="Bob", reason="no"))

        loaded = store.load("run-1")
        assert loaded is not None
        assert loaded.status is RunStatus.QUEUED
        assert loaded.pending == []

    def test_a_call_is_decided_once(self, store: StateStore) -> None:
        self.suspended(store)
        store.decide("run-1", "toolu_1", Decision(approved=False, reviewer="Alice"))

        with pytest.raises(AlreadyDecidedError, match="Alice"):
            store.decide("run-1", "toolu_1", Decision(approved=True, reviewer="Bob"))

        loaded = store.load("run-1")
        assert loaded is not None
        assert loaded.calls[0].decision is not None
        assert loaded.calls[0].decision.approved is False

    @pytest.mark.parametrize(
        "decision",
        [
            Decision(approved=None, reviewer="Alice"),  # type: ignore[arg-type]
            Decision(approved="yes", reviewer="Alice"),  # type: ignore[arg-type]
            Decision(approved=True, reviewer=" "),
            Decision(approved=False, reviewer="Alice", edited_input={}),
        ],
        ids=["missing", "text", "nobody", "edited rejection"],
    )
    def test_an_unclear_decision_is_refused(self, store: StateStore, decision: Decision) -> None:
        self.suspended(store)

        with pytest.raises(DecisionError):
            store.decide("run-1", "toolu_1", decision)

        loaded = store.load("run-1")
        assert loaded is not None
        assert len(loaded.pending) == 2

    def test_nothing_else_can_be_decided(self, store: StateStore) -> None:
        self.suspended(store)
        yes = Decision(approved=True, reviewer="Alice")

        with pytest.raises(DecisionError, match="toolu_9"):
            store.decide("run-1", "toolu_9", yes)
        with pytest.raises(UnknownRunError):
            store.decide("nobody", "toolu_1", yes)

    def test_an_approval_is_used_up_by_the_start_of_its_call(self, store: StateStore) -> None:
        self.suspended(store)
        for call_id in ("toolu_1", "toolu_2"):
            store.decide("run-1", call_id, Decision(approved=True, reviewer="Alice"))
        claimed = store.claim("run-1", "me", 60)
        assert claimed is not None
        checkpoint, lease = claimed
        checkpoint.calls[0].start(lease.token)
        checkpoint.touch(checkpoint.calls[0])
        store.save(checkpoint, lease, progress=False)

        again = checkpoint.calls[0]
        again.status = CallStatus.WAITING
        again.start(lease.token)
        checkpoint.touch(again)

        with pytest.raises(ApprovalUnusableError):
            store.save(checkpoint, lease, progress=False)

    def test_an_approval_of_other_arguments_starts_nothing(self, store: StateStore) -> None:
        self.suspended(store)
        for call_id in ("toolu_1", "toolu_2"):
            store.decide("run-1", call_id, Decision(approved=True, reviewer="Alice"))
        claimed = store.claim("run-1", "me", 60)
        assert claimed is not None
        checkpoint, lease = claimed
        first = checkpoint.calls[0]
        assert first.decision is not None
        first.decision = replace(first.decision, digest=first.digest("run-1", {"z": 1_000_000}))
        first.start(lease.token)
        checkpoint.touch(first)

        with pytest.raises(ApprovalUnusableError):
            store.save(checkpoint, lease, progress=False)

    # A quorum.

    def asking_two(self, store: StateStore, kind: ApprovalKind = ApprovalKind.TOOL) -> None:
        """One call waits, for two people."""
        checkpoint, lease = self.opened(store)
        first, second = checkpoint.calls
        first.wait(kind)
        first.needed = 2
        second.finish(Outcome.RETURNED, "fine")
        checkpoint.status = RunStatus.SUSPENDED
        store.save(checkpoint, lease, progress=True)

    def test_of_two_people_one_yes_decides_nothing(self, store: StateStore) -> None:
        self.asking_two(store)

        store.decide("run-1", "toolu_1", YES)

        loaded = self.loaded(store)
        assert [p.call_id for p in loaded.pending] == ["toolu_1"]
        assert [d.reviewer for d in loaded.calls[0].agreed] == ["Alice"]
        assert (loaded.status, loaded.calls[0].decision) == (RunStatus.SUSPENDED, None)
        assert store.wake("run-1", {RunStatus.SUSPENDED}) is False

        store.decide("run-1", "toolu_1", replace(YES, reviewer="Bob"))

        loaded = self.loaded(store)
        assert (loaded.status, loaded.pending) == (RunStatus.QUEUED, [])
        assert [d.reviewer for d in loaded.calls[0].agreed] == ["Alice", "Bob"]

    def test_one_person_does_not_make_a_quorum(self, store: StateStore) -> None:
        self.asking_two(store)
        store.decide("run-1", "toolu_1", YES)

        with pytest.raises(AlreadyDecidedError, match="Alice"):
            store.decide("run-1", "toolu_1", YES)

        assert len(self.loaded(store).pending) == 1

    def test_an_edit_begins_a_new_round(self, store: StateStore) -> None:
        self.asking_two(store)
        store.decide("run-1", "toolu_1", YES)
        store.decide("run-1", "toolu_1", replace(YES, reviewer="Bob", edited_input={"z": 2}))
        assert len(self.loaded(store).pending) == 1

        store.decide("run-1", "toolu_1", YES)

        first = self.loaded(store).calls[0]
        assert first.arguments == {"z": 2}
        assert [d.reviewer for d in first.agreed] == ["Bob", "Alice"]

    def test_a_yes_from_before_an_edit_does_not_come_back_with_the_arguments(self, store: StateStore) -> None:
        self.asking_two(store)
        original = self.loaded(store).calls[0].input
        store.decide("run-1", "toolu_1", YES)
        store.decide("run-1", "toolu_1", replace(YES, reviewer="Bob", edited_input={"z": 2}))

        store.decide("run-1", "toolu_1", replace(YES, reviewer="Cid", edited_input=original))

        loaded = self.loaded(store)
        assert [d.reviewer for d in loaded.calls[0].agreed] == ["Cid"]
        assert len(loaded.pending) == 1

    def test_one_rejection_rejects(self, store: StateStore) -> None:
        self.asking_two(store)
        store.decide("run-1", "toolu_1", YES)

        store.decide("run-1", "toolu_1", NO)

        loaded = self.loaded(store)
        assert loaded.status is RunStatus.QUEUED
        assert loaded.calls[0].decision is not None
        assert (loaded.calls[0].decision.approved, loaded.calls[0].decision.reviewer) == (False, "Bob")

    def test_whoever_agreed_may_still_reject(self, store: StateStore) -> None:
        self.asking_two(store)
        store.decide("run-1", "toolu_1", YES)

        store.decide("run-1", "toolu_1", replace(NO, reviewer="Alice"))

        assert self.loaded(store).pending == []

    def test_it_did_not_happen_does_not_agree_that_it_happened(self, store: StateStore) -> None:
        self.asking_two(store, ApprovalKind.IN_DOUBT)
        store.decide("run-1", "toolu_1", replace(YES, answer="It happened."))

        store.decide("run-1", "toolu_1", replace(YES, reviewer="Bob"))

        loaded = self.loaded(store)
        assert len(loaded.pending) == 1
        assert [(d.reviewer, d.answer) for d in loaded.calls[0].agreed] == [("Bob", None)]

    # Time.

    def asking_for_a_minute(self, store: StateStore) -> None:
        """One call waits, for a minute."""
        checkpoint, lease = self.opened(store)
        first, second = checkpoint.calls
        first.wait(ApprovalKind.TOOL)
        first.expires_at = get_clock().now() + timedelta(seconds=60)
        second.finish(Outcome.RETURNED, "fine")
        checkpoint.status = RunStatus.SUSPENDED
        store.save(checkpoint, lease, progress=True)

    @pytest.mark.parametrize("decision", [YES, NO], ids=["yes", "no"])
    def test_a_decision_that_comes_too_late_is_refused(self, store: StateStore, decision: Decision) -> None:
        with fixed_clock() as clock:
            self.asking_for_a_minute(store)
            clock.advance(60)

            with pytest.raises(ApprovalExpiredError):
                store.decide("run-1", "toolu_1", decision)

            assert len(self.loaded(store).pending) == 1

    def test_a_question_expires_when_its_time_is_over_and_not_before(self, store: StateStore) -> None:
        nobody = Decision(approved=False, reviewer=NOBODY, channel=str(Channel.EXPIRY))
        with fixed_clock() as clock:
            self.asking_for_a_minute(store)
            clock.advance(59)
            with pytest.raises(DecisionError):
                store.decide("run-1", "toolu_1", nobody)
            clock.advance(1)

            store.decide("run-1", "toolu_1", nobody)

            loaded = self.loaded(store)
        assert loaded.status is RunStatus.QUEUED
        assert loaded.calls[0].decision is not None
        assert loaded.calls[0].decision.channel == Channel.EXPIRY

    # What was rejected.

    def test_what_was_rejected_is_remembered_for_the_whole_run(self, store: StateStore) -> None:
        self.suspended(store)
        store.decide("run-1", "toolu_1", NO)
        store.decide("run-1", "toolu_2", YES)
        checkpoint, lease = self.taken(store)
        first, second = checkpoint.calls
        first.finish(Outcome.REJECTED, "no", is_error=True)
        checkpoint.rejected.append(first.subject)
        second.start(lease.token)
        second.finish(Outcome.RETURNED, "fine")
        for each in (first, second):
            checkpoint.touch(each)
        checkpoint.close_turn()
        store.save(checkpoint, lease, progress=True)

        loaded = self.loaded(store)

        assert loaded.calls == []
        assert loaded.rejected == [first.subject]

    # A limit.

    def asking_for_more(self, store: StateStore) -> None:
        """The run has reached a limit and asks for more."""
        store.create(new_checkpoint())
        checkpoint, lease = self.taken(store)
        checkpoint.question = ToolCall(
            call_id="limit-1",
            name="max_iterations",
            input={"limit": "max_iterations", "used": "2", "allowed": "2", "raise_by": "2"},
            seq=1,
            index=0,
            effect="limit",
        )
        checkpoint.question.wait(ApprovalKind.LIMIT)
        checkpoint.touch(checkpoint.question)
        checkpoint.status = RunStatus.SUSPENDED
        store.save(checkpoint, lease, progress=True)

    def test_a_question_about_a_limit_is_pending_until_it_is_decided(self, store: StateStore) -> None:
        self.asking_for_more(store)
        loaded = self.loaded(store)
        assert [(p.call_id, p.kind) for p in loaded.pending] == [("limit-1", "limit")]
        assert loaded.calls == []
        assert store.wake("run-1", {RunStatus.SUSPENDED}) is False

        store.decide("run-1", "limit-1", replace(YES, edited_input={"raise_by": 3}))

        loaded = self.loaded(store)
        assert (loaded.status, loaded.pending) == (RunStatus.QUEUED, [])
        assert loaded.question is not None
        assert loaded.question.arguments == {"raise_by": 3}
        with pytest.raises(AlreadyDecidedError, match="Alice"):
            store.decide("run-1", "limit-1", NO)

    def test_a_raised_limit_is_stored_with_the_end_of_its_question(self, store: StateStore) -> None:
        self.asking_for_more(store)
        store.decide("run-1", "limit-1", YES)
        checkpoint, lease = self.taken(store)
        question = checkpoint.question
        assert question is not None
        checkpoint.limits = checkpoint.limits.raised(question.name, question.arguments["raise_by"])
        question.finish(Outcome.ANSWERED, "raised")
        checkpoint.touch(question)
        store.save(checkpoint, lease, progress=True)

        loaded = self.loaded(store)

        assert loaded.limits == checkpoint.limits
        assert loaded.question is not None
        assert (loaded.question.status, loaded.question.outcome) == (CallStatus.DONE, Outcome.ANSWERED)
        assert len(loaded.messages) == 1
        assert without_times(loaded) == without_times(checkpoint)
