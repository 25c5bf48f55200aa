"""The loop: ask ``next_step``, perform it, save. Knows no ORM and no queue."""

from __future__ import annotations

from collections.abc import Collection, Generator
from contextlib import suppress

from . import endings
from .answers import ask, ask_for_more
from .boundaries import reach
from .calls import ToolCall
from .checkpoint import AgentResult
from .clock import get_clock
from .deployed import as_deployed
from .effects import Begun, Effect, Effects
from .errors import DecisionError, UnknownAgentError
from .events import Done, Event, Suspended
from .states import TERMINAL, CallStatus, Outcome, RunStatus
from .steps import (
    MISMATCH,
    NOT_RAISED,
    AnswerCall,
    AskLimit,
    AskPerson,
    CallModel,
    CloseTurn,
    Finish,
    RaiseLimit,
    RunTool,
    Step,
    Wait,
    needs_intent,
    next_step,
)
from .stores.base import ONLY_CANCEL, REQUESTS, ApprovalUnusableError, Request, RunRequestedError
from .tool_results import as_content


class Loop(Effects):
    """Advances one run under one lease until it ends, waits, or is to hand the worker back."""

    _heeded: Collection[Request] = REQUESTS

    def events(self) -> Generator[Event, None, AgentResult]:
        """Advance the run; yields what happens, ends with ``Done``, and returns its result.

        Raises:
            LeaseLostError: Somebody else holds the run; nothing of theirs was touched.
        """
        try:
            with self._heartbeat:
                reach("run.claimed")
                yield from self._watch.slice(lambda: self.checkpoint, self._advance())
        except GeneratorExit:
            self._abandon()
            raise
        except BaseException:
            # Whatever it was, the run is given up as it is stored, for the next worker to go on from.
            with suppress(Exception):
                reach("run.giving_up")
                self.store.release(self.lease)
            raise
        if self.checkpoint.status is RunStatus.SUSPENDED:
            yield Suspended(self.checkpoint.pending)
        result = AgentResult.of(self.checkpoint)
        yield Done(result)
        return result

    def _abandon(self) -> None:
        """Whoever watched has gone away between two effects: hand the run back in good order."""
        with suppress(Exception):
            if self._intent is not None:
                # It is known not to have begun, so it must not end up in doubt. What a person decided about
                # it was used up by its start and stands.
                call, before = self._intent
                _take_back(call, before)
                if call.status is not CallStatus.STARTED:
                    call.status = CallStatus.READY
                self.checkpoint.touch(call)
            if self.checkpoint.status is RunStatus.RUNNING:
                self._hand_back()
                self._save(None, heed=())

    # Between two effects.

    def _advance(self) -> Generator[Event, None, None]:
        if self.checkpoint.error_code == UnknownAgentError.code:
            # Noted by a worker that did not know the agent; this one does.
            self.checkpoint.error_code, self.checkpoint.attempt = "", 0
            self.checkpoint.next_attempt_at = None
        if self.checkpoint.recoveries > self._settings.max_recoveries:
            endings.fail_as_poison(self.checkpoint)
            self._dirty = True
        elif self.checkpoint.requested == "steer":
            self._heeded = REQUESTS - {"steer"}
        elif self.checkpoint.requested:
            return self._follow(self.checkpoint.requested)
        elif not self.checkpoint.error_code:
            self.checkpoint.error = ""
        if self.checkpoint.total_cost_usd is None and not self.checkpoint.iterations:
            self.checkpoint.total_cost_usd = self.agent.cost_so_far()  # The price may have been added since.
        while True:
            step = self._commit(self._place_steering(self._settle()))
            happened, self._happened = self._happened, []
            yield from happened
            if step is None:
                return
            yield from self._perform(step)

    def _settle(self) -> Effect | None:
        """Do all that needs no effect; the next step that has one, or None when the run does not go on."""
        checkpoint = self.checkpoint
        self._count_time()
        while checkpoint.status is RunStatus.RUNNING:
            step = next_step(checkpoint)
            if isinstance(step, RunTool):
                step = self._as_deployed(step)
            if isinstance(step, (CallModel, RunTool)):
                return step
            self._dirty = True
            match step:
                case AnswerCall(call, outcome, content, is_error):
                    if outcome is Outcome.REJECTED and call.decision and call.decision.approved is False:
                        checkpoint.rejected.append(call.subject)
                    call.finish(outcome, as_content(content, self._settings.result_limit), is_error=is_error)
                    checkpoint.touch(call)
                case AskPerson(call, kind, payload):
                    ask(call, self.agent.callable_tools.get(call.name), payload, kind)
                    checkpoint.touch(call)
                case AskLimit(reached, used):
                    checkpoint.touch(ask_for_more(checkpoint, self.agent, reached, used))
                case RaiseLimit(question):
                    self._raise_limit(question)
                case CloseTurn():
                    checkpoint.close_turn()
                case Wait():
                    checkpoint.status = RunStatus.SUSPENDED
                case Finish(status, stop_reason, error_code, error):
                    checkpoint.status, checkpoint.stop_reason = status, stop_reason
                    checkpoint.error_code, checkpoint.error = error_code, error
                    endings.close_question(checkpoint, NOT_RAISED)
                    if status is RunStatus.DONE:
                        endings.close_paused_turn(checkpoint)
        return None

    def _raise_limit(self, question: ToolCall) -> None:
        more = {**question.input, **question.arguments}["raise_by"]
        try:
            self.checkpoint.limits = self.checkpoint.limits.raised(question.name, more)
        except DecisionError as exc:
            question.finish(Outcome.REFUSED, exc.message, is_error=True)
        else:
            question.finish(Outcome.ANSWERED, f"{question.name} was raised by {more}.")
        self.checkpoint.touch(question)

    def _as_deployed(self, step: RunTool) -> Step:
        """A call that is about to start runs as the tool is now, not as it was when it was asked for."""
        call, tool = step.call, self.agent.callable_tools.get(step.call.name)
        found: Step = step
        if call.call_id not in self._judged:
            found = as_deployed(call, self.checkpoint.token, tool, self._context(call))
            self._judged.add(call.call_id)
        if isinstance(found, AnswerCall):
            return found
        if tool is not None and (call.effect, call.on_interrupt) != (tool.effect, tool.on_interrupt):
            call.effect, call.on_interrupt = tool.effect, tool.on_interrupt
            self.checkpoint.touch(call)
        return found

    def _commit(self, step: Effect | None) -> Effect | None:
        """Save what is new, with the intent of the next step; the step to perform, or None to end here."""
        while True:
            step = self._unless_stopping(step)
            try:
                if self._must_save(step):
                    self._save(step)
                return step
            except RunRequestedError as asked:
                if asked.request == "steer":
                    self._heeded = REQUESTS - {"steer"}
                    step = self._place_steering(step)
                    continue
                if asked.request == "pause" and self.checkpoint.status in TERMINAL:
                    self._save(None, heed=())  # It ended before it could be paused.
                else:
                    self._follow(asked.request)
                return None
            except ApprovalUnusableError as refused:
                call = next(c for c in self.checkpoint.calls if c.call_id == refused.call_id)
                call.finish(Outcome.REJECTED, MISMATCH, is_error=True)
                self.checkpoint.touch(call)
                self._dirty = True
                step = self._settle()

    def _place_steering(self, step: Effect | None) -> Effect | None:
        """Give a waiting message its place, if there is one now: before a model call, or where a turn ends.

        Not into a turn that the model has only paused: that goes on with nothing added.
        """
        checkpoint = self.checkpoint
        if "steer" in self._heeded or checkpoint.placed:
            return step
        if checkpoint.status is RunStatus.DONE and checkpoint.stop_reason in {"end_turn", "stop_sequence"}:
            checkpoint.status, checkpoint.stop_reason = RunStatus.RUNNING, ""
            self._append_steering()
            return self._settle()
        if isinstance(step, CallModel) and checkpoint.messages[-1]["role"] != "assistant":
            self._append_steering()
        return step

    def _append_steering(self) -> None:
        for key, content in self.store.take_steering(self.checkpoint):
            self.checkpoint.placed[key] = len(self.checkpoint.messages)
            self.checkpoint.append({"role": "user", "content": content})
            self._dirty = True

    def _unless_stopping(self, step: Effect | None) -> Effect | None:
        # Asked before the intent of a side effect is stored, never between it and the effect.
        if step is not None and self._intent is None and self._should_stop():
            self._hand_back()
            return None
        return step

    def _must_save(self, step: Effect | None) -> bool:
        if self._intended(step) is not None:
            return True
        if not self._dirty:
            return False
        # Results of read-only tools may ride with the next commit if that comes soon: lost, they are got
        # again.
        soon = get_clock().monotonic() - self._saved_at < self._settings.flush_seconds
        read_only = all(
            c.effect == "none" and c.started_token == 0 for c in self.checkpoint.unsaved_calls.values()
        )
        return not (
            isinstance(step, RunTool) and soon and read_only and not any(self.checkpoint.unsaved_messages())
        )

    def _intended(self, step: Effect | None) -> ToolCall | None:
        """The call whose start has to be stored before ``step`` is performed."""
        if not isinstance(step, RunTool):
            return None
        return step.call if needs_intent(step.call, self.checkpoint.token) else None

    def _save(self, step: Effect | None, *, heed: Collection[Request] | None = None) -> None:
        call = self._intended(step)
        intent = None
        if call is not None:
            intent = call, (call.status, call.started_token, call.attempts)
            call.start(self.checkpoint.token)
            self.checkpoint.touch(call)
        reach("save.before")
        try:
            placed = bool(self.checkpoint.placed)
            heeded = self._heeded if heed is None else heed
            self.store.save(self.checkpoint, self.lease, progress=self._progress, heed=heeded)
            if placed:
                self._heeded = REQUESTS  # Until another message waits.
        except (RunRequestedError, ApprovalUnusableError):
            if intent is not None:
                _take_back(*intent)
            raise
        self._intent = intent
        self._dirty = self._progress = False
        self._saved_at = get_clock().monotonic()
        reach("save.done")

    def _count_time(self) -> None:
        now = get_clock().monotonic()
        self.checkpoint.active_seconds += now - self._steady
        self._steady = now

    def _hand_back(self) -> None:
        endings.hand_back(self.checkpoint)
        self._dirty = True

    def _follow(self, request: str) -> None:
        """Do what an operator asked, at this boundary."""
        if request == "pause":
            endings.pause(self.checkpoint)
            with suppress(RunRequestedError):
                self._save(None, heed=ONLY_CANCEL)
                return
        # Also where that came while the run was being paused.
        endings.cancel(self.checkpoint)
        self._save(None, heed=())


def _take_back(call: ToolCall, before: Begun) -> None:
    """Undo ``ToolCall.start``."""
    call.status, call.started_token, call.attempts = before
    call.consuming = False
