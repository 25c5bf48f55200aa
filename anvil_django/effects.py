"""The two effects of a run: asking the model, and running a tool. Knows no ORM and no queue."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator
from datetime import timedelta
from typing import Any

from . import endings, exactjson, history
from .agents import Agent
from .answers import AnswerReader, ask
from .boundaries import reach
from .calls import ToolCall
from .checkpoint import AgentCheckpoint
from .clients import get_client
from .clock import get_clock
from .conf import Settings, get_settings
from .errors import LeaseLostError
from .events import Event, IterationFinished, Retrying, ToolFinished, ToolStarted
from .heartbeat import Heartbeat
from .leases import Lease
from .model_call import stream_answer
from .model_errors import ModelCallError, ModelCallStopped, retry_delay
from .model_request import build_request
from .states import ApprovalKind, CallStatus, Outcome, RunStatus
from .steps import EDITED, UNKNOWN, CallModel, RunTool
from .stores.base import (
    ApprovalUnusableError,
    Request,
    RunRequestedError,
    StateStore,
    TransactionCutOffError,
)
from .telemetry import watch
from .tool_results import cut, failed
from .tools import InvalidToolInput, ToolContext, ToolOutcome

Effect = CallModel | RunTool
Begun = tuple[CallStatus, int, int]


class Effects(ABC):
    """Performs steps on one checkpoint and notes what came of them; ``Loop`` decides and saves.

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
        self._watch = watch(self._settings)
        self._reader = AnswerReader(agent, self._context)
        self._used_ids = history.call_ids(checkpoint.messages)
        self._heartbeat = Heartbeat(store, lease, self._settings.heartbeat_seconds)
        self._steady = self._saved_at = get_clock().monotonic()
        self._dirty = False  # Something is to be saved.
        self._progress = False  # A step was finished.
        self._pause = 0.0
        # A call whose start is stored and that has not begun, and what it was before.
        self._intent: tuple[ToolCall, Begun] | None = None
        self._judged: set[str] = set()  # Calls that the tools of this process were asked about.
        self._happened: list[Event] = []  # Told only once it is stored.

    @abstractmethod
    def _settle(self) -> Effect | None:
        """Do all that needs no effect; the next step that has one."""

    @abstractmethod
    def _unless_stopping(self, step: Effect | None) -> Effect | None:
        """The step, or None where the run is to be handed back instead."""

    @abstractmethod
    def _save(self, step: Effect | None, *, heed: Collection[Request] | None = None) -> None:
        """Store what is new, with the intent of ``step``."""

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
            deltas = stream_answer(
                client,
                request,
                should_stop=self._abort_model_call,
                attempt=checkpoint.attempt + 1,
                run_id=checkpoint.run_id,
            )
            answer = yield from self._watch.chat(checkpoint, request, deltas)
        except ModelCallStopped:
            self._check_lease()
            self._dirty = True  # The next save finds the request.
            return
        except ModelCallError as error:
            self._after_failure(error)
            return
        reach("model.answered")
        self._reader.apply(checkpoint, answer, self._used_ids)
        self._judged.update(call.call_id for call in checkpoint.calls)
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
        tool = self.agent.callable_tools[call.name]
        yield ToolStarted(call.call_id, call.name, call.arguments)
        self._intent = None
        self.store.refresh_connections()
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
        except InvalidToolInput as exc:  # They fitted a moment ago: a validator of the site's own may change.
            return ToolOutcome(kind="failed", content=exc.message)
        with self._watch.tool(call, tool) as tell:
            outcome = tool.run(arguments, self._context(call), result_limit=self._settings.result_limit)
            tell(outcome)
        return outcome

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
                    # What was done is recorded now, of a run that still runs: a save that ends or hands it
                    # back would give the lease up. What was asked is followed at the next boundary.
                    endings.take_back(self.checkpoint)
                    self._save(None, heed=())
                    self._dirty = True
        except _RollBack as undone:
            self._record(call, undone.outcome)
        except (LeaseLostError, RunRequestedError, TransactionCutOffError):
            # Cut off, it is as if the process had died here: the next claim finds it done, or not begun.
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
        note = cut(
            EDITED.format(arguments=exactjson.dumps(call.decision.edited_input)), self._settings.result_limit
        )
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


def _container_id(checkpoint: AgentCheckpoint) -> str | None:
    return (checkpoint.container or {}).get("id")
