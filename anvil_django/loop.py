"""The loop: ask ``next_step``, perform it, save. The only place with effects; knows no ORM and no queue."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Generator
from contextlib import suppress
from datetime import timedelta
from typing import Any

from . import endings, exactjson, history
from .agents import Agent
from .answers import AnswerReader, ask, ask_for_more
from .boundaries import reach
from .calls import ToolCall
from .checkpoint import AgentCheckpoint, AgentResult
from .clock import get_clock
from .conf import Settings, get_settings
from .errors import DecisionError, LeaseLostError
from .events import Done, Event, IterationFinished, Retrying, Suspended, ToolFinished, ToolStarted
from .heartbeat import Heartbeat
from .leases import Lease
from .model_call import build_request, get_client, stream_answer
from .model_errors import ModelCallError, ModelCallStopped, retry_delay
from .states import TERMINAL, ApprovalKind, CallStatus, Outcome, RunStatus
from .steps import (
    EDITED,
    MISMATCH,
    NOT_RAISED,
    UNKNOWN,
    AnswerCall,
    AskLimit,
    AskPerson,
    CallModel,
    CloseTurn,
    Finish,
    RaiseLimit,
    RunTool,
    Wait,
    needs_intent,
    next_step,
)
from .stores.base import REQUESTS, ApprovalUnusableError, Request, RunRequestedError, StateStore
from .tool_results import as_content, failed
from .tools import InvalidToolInput, ToolContext, ToolOutcome

logger = logging.getLogger(__name__)

Effect = CallModel | RunTool
_Begun = tuple[CallStatus, int, int]


class Loop:
    """Advances one run under one lease until it ends, waits, or is to hand the worker back.

    Args:
        agent: The agent as this process knows it: its tools are run, its frozen prefix is not used.
        checkpoint: What the claim returned.
        store: Where it is saved.
        lease: The right to do so.
        client: Anything with ``.messages``; None: the one of the settings.
        load_user: Gives the user who started the run, for tools.
        should_stop: Asked between two steps; True hands the run back to the queue.
        waits_in_process: Whether a failed model call is tried again here after a pause, rather than by
            whoever takes the run from the queue later.
    """

    def __init__(
        self,
        agent: Agent,
        checkpoint: AgentCheckpoint,
        store: StateStore,
        lease: Lease,
        *,
        client: Any = None,
        load_user: Callable[[], Any] | None = None,
        should_stop: Callable[[], bool] = lambda: False,
        waits_in_process: bool = False,
    ) -> None:
        self.agent, self.checkpoint, self.store, self.lease = agent, checkpoint, store, lease
        self._client, self._load_user, self._should_stop = client, load_user, should_stop
        self._waits_in_process = waits_in_process
        self._settings: Settings = get_settings()
        self._reader = AnswerReader(agent, self._context)
        self._used_ids = history.call_ids(checkpoint.messages)
        self._heartbeat = Heartbeat(store, lease, self._settings.heartbeat_seconds)
        self._steady = self._saved_at = get_clock().monotonic()
        self._dirty = False
        self._progress = False
        self._pause = 0.0
        self._heeded: Collection[Request] = REQUESTS
        # A call whose start is stored and that has not begun, and what it was before.
        self._intent: tuple[ToolCall, _Begun] | None = None
        self._happened: list[Event] = []  # Told only once it is stored.

    def events(self) -> Generator[Event, None, AgentResult]:
        """Advance the run; yields what happens, ends with ``Done``, and returns its result.

        Raises:
            LeaseLostError: Somebody else holds the run; nothing of theirs was touched.
        """
        try:
            with self._heartbeat:
                reach("run.claimed")
                yield from self._advance()
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
                self._refresh_effect(step.call)
            if isinstance(step, (CallModel, RunTool)):
                return step
            self._dirty = True
            match step:
                case AnswerCall(call, outcome, content, is_error):
                    if outcome is Outcome.REJECTED and call.decision and call.decision.approved is False:
                        checkpoint.rejected.append(call.subject)
                    call.finish(outcome, as_content(content, self._settings.result_limit), is_error=is_error)
                    checkpoint.touch(call)
                case AskPerson(call, kind):
                    ask(call, self.agent.callable_tools.get(call.name), None, kind)
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

    def _refresh_effect(self, call: ToolCall) -> None:
        """A call that is about to start runs as the tool is now, not as it was when it was asked for."""
        tool = self.agent.callable_tools.get(call.name)
        if tool is not None and (call.effect, call.on_interrupt) != (tool.effect, tool.on_interrupt):
            call.effect, call.on_interrupt = tool.effect, tool.on_interrupt
            self.checkpoint.touch(call)

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
        if not isinstance(step, RunTool) or step.call.name not in self.agent.callable_tools:
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
        (endings.cancel if request == "cancel" else endings.pause)(self.checkpoint)
        self._save(None, heed=())

    # Effects.

    def _perform(self, step: Effect) -> Generator[Event, None, None]:
        self._wait()
        self._check_lease()
        if isinstance(step, CallModel):
            yield from self._call_model()
        else:
            yield from self._run_tool(step.call)

    def _wait(self) -> None:
        """Sit out the delay after a failed attempt, where nobody else would call again."""
        until, self._pause = get_clock().monotonic() + self._pause, 0.0
        while (left := until - get_clock().monotonic()) > 0 and not self._abort_model_call():
            get_clock().sleep(min(left, 1.0))
            if self.lease.deadline - get_clock().monotonic() < self.lease.seconds / 2:
                # The heartbeat sees to this only where other processes share the runs.
                self._heartbeat.request = self.store.renew(self.lease)

    def _check_lease(self) -> None:
        # A process that was stopped for longer than its lease must not start anything: by its own clock,
        # which went on meanwhile, somebody else may hold the run by now.
        if self._heartbeat.lost or not self.lease.is_live:
            raise LeaseLostError(self.lease.run_id, self.lease.token)

    def _call_model(self) -> Generator[Event, None, None]:
        checkpoint = self.checkpoint
        try:
            # The prefix stays frozen; only room for the answer may grow: a cut-off run can be resumed so.
            prefix = {
                **checkpoint.prefix,
                "max_tokens": max(checkpoint.prefix["max_tokens"], self.agent.max_tokens),
            }
            request = build_request(prefix, checkpoint.messages, container=_container_id(checkpoint))
            client = get_client() if self._client is None else self._client
            reach("model.before")
            answer = yield from stream_answer(client, request, should_stop=self._abort_model_call)
        except ModelCallStopped:
            self._check_lease()
            self._dirty = True  # The next save finds the request.
            return
        except ModelCallError as error:
            self._after_failure(error)
            return
        reach("model.answered")
        self._reader.apply(checkpoint, answer, self._used_ids)
        self._dirty = self._progress = True
        self._happened.append(
            IterationFinished(checkpoint.iterations, checkpoint.total_usage, checkpoint.total_cost_usd)
        )

    def _abort_model_call(self) -> bool:
        return self._heartbeat.lost or self._heartbeat.request == "cancel"

    def _after_failure(self, error: ModelCallError) -> None:
        checkpoint = self.checkpoint
        self._dirty = True
        checkpoint.error_code, checkpoint.error = error.code, error.message
        if error.kind in {"auth", "quota", "config"}:
            checkpoint.status = RunStatus.PAUSED
            return
        checkpoint.attempt += 1
        if error.kind != "retry" or checkpoint.attempt >= self._settings.max_model_attempts:
            checkpoint.status = RunStatus.FAILED
            return
        seconds = retry_delay(
            error,
            checkpoint.attempt,
            base=self._settings.backoff_seconds,
            cap=self._settings.backoff_cap_seconds,
        )
        checkpoint.next_attempt_at = get_clock().now() + timedelta(seconds=seconds)
        self._happened.append(Retrying(error.code, seconds))
        if self._waits_in_process:
            self._pause = seconds
        else:
            checkpoint.status = RunStatus.QUEUED

    def _run_tool(self, call: ToolCall) -> Generator[Event, None, None]:
        tool = self.agent.callable_tools.get(call.name)
        if tool is None:
            if call.status is CallStatus.STARTED and call.effect == "external":
                call.finish(Outcome.UNKNOWN, UNKNOWN, is_error=True)
            else:
                call.finish(Outcome.REFUSED, f"Tool {call.name!r} not found.", is_error=True)
            self._finished(call)
            return
        yield ToolStarted(call.call_id, call.name, call.arguments)
        self._intent = None
        reach("tool.before")
        if tool.atomic and self.store.keeps_transactions:
            call = self._run_atomic(call)
        else:
            self._record(call, self._outcome(call))
        reach("tool.returned")
        if call.status is CallStatus.DONE:
            self._happened.append(ToolFinished(call.call_id, call.name, call.content, call.is_error))

    def _outcome(self, call: ToolCall) -> ToolOutcome:
        tool = self.agent.callable_tools[call.name]
        try:
            arguments = tool.validate(call.arguments)
        except InvalidToolInput as exc:  # The tool's signature changed since the call was stored.
            return ToolOutcome(kind="failed", content=exc.message)
        return tool.run(arguments, self._context(call), result_limit=self._settings.result_limit)

    def _run_atomic(self, call: ToolCall) -> ToolCall:
        """The tool's own writes and its result in one commit, or neither; the call as it is after that."""
        try:
            with self.store.transaction():
                outcome = self._outcome(call)
                if outcome.kind not in {"returned", "unstorable"}:
                    raise _RollBack(outcome)
                self._record(call, outcome)
                step = self._unless_stopping(self._settle())
                reach("atomic.before_commit")
                try:
                    self._save(step)
                except (RunRequestedError, ApprovalUnusableError):
                    # What was done is recorded now; what was asked is followed at the next boundary.
                    self._save(None, heed=())
                    self._dirty = True
        except _RollBack as undone:
            self._record(call, undone.outcome)
        except (LeaseLostError, RunRequestedError):
            raise
        except Exception as exc:  # noqa: BLE001 (whatever the tool's writes ran into)
            # The database refused to commit what the tool wrote. All of it is undone, this checkpoint's
            # changes too, so go on from the stored one.
            self._reload()
            call = next(c for c in self.checkpoint.calls if c.call_id == call.call_id)
            self._record(call, failed(exc, self._settings.result_limit))
        return call

    def _reload(self) -> None:
        stored = self.store.load(self.lease.run_id)
        if stored is None or stored.token != self.lease.token:
            raise LeaseLostError(self.lease.run_id, self.lease.token)
        self.checkpoint, self._intent = stored, None

    def _record(self, call: ToolCall, outcome: ToolOutcome) -> None:
        content = outcome.content
        match outcome.kind:
            case "needs_approval":
                ask(call, self.agent.callable_tools.get(call.name), outcome.payload)
            case "timed_out" if call.effect == "external":
                self._interrupted(call)
            case "returned":
                call.finish(Outcome.RETURNED, self._with_note(call, content))
            case _:
                call.finish(Outcome.FAILED, self._with_note(call, content), is_error=True)
        self._finished(call)

    def _interrupted(self, call: ToolCall) -> None:
        """A side effect was cut off by its own time limit: the same question as after a crash."""
        if call.on_interrupt == "ask":
            ask(call, self.agent.callable_tools.get(call.name), None, ApprovalKind.IN_DOUBT)
        else:
            call.finish(Outcome.UNKNOWN, UNKNOWN, is_error=True)

    def _finished(self, call: ToolCall) -> None:
        self.checkpoint.touch(call)
        self._dirty = self._progress = True

    def _with_note(self, call: ToolCall, content: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
        if call.decision is None or call.decision.edited_input is None:
            return content
        note = EDITED.format(arguments=exactjson.dumps(call.decision.edited_input))
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        return [{"type": "text", "text": note}, *blocks]

    def _context(self, call: ToolCall) -> ToolContext:
        return ToolContext(
            run_id=self.checkpoint.run_id,
            call_id=call.call_id,
            idempotency_key=f"{self.checkpoint.run_id}:{call.call_id}",
            attempt=max(call.attempts, 1),
            metadata=self.checkpoint.metadata,
            approved=call.decision is not None and call.decision.approved is True,
            decision=call.decision,
            load_user=self._load_user,
        )


class _RollBack(Exception):  # noqa: N818 (a jump, not an error)
    """Leaves an atomic tool's transaction without its writes."""

    def __init__(self, outcome: ToolOutcome) -> None:
        self.outcome = outcome
        super().__init__()


def _take_back(call: ToolCall, before: _Begun) -> None:
    """Undo ``ToolCall.start``."""
    call.status, call.started_token, call.attempts = before
    call.consuming = False


def _container_id(checkpoint: AgentCheckpoint) -> str | None:
    return (checkpoint.container or {}).get("id")
