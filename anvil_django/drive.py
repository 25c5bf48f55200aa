"""Driving a run from your own code: ``run_agent``, ``stream_agent``, ``resume_agent``, ``list_runs``, and
``start_run``, which hands it to the workers instead."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from . import exactjson, history
from .agents import Agent, get_agent
from .calls import NOBODY, Decision
from .checkpoint import AgentCheckpoint, AgentResult, Checkpointer
from .clock import get_clock
from .conf import get_settings
from .errors import BadInputError, DecisionError, RunIdTakenError, UnknownRunError
from .events import Done, Event
from .fitting import check_fit
from .identity import check_metadata, check_run_id, new_run_id
from .leases import owner_name
from .loop import Loop
from .states import RESUMABLE, Channel
from .stores.memory import MemoryStateStore
from .tools import ToolContext

if TYPE_CHECKING:
    from .models import Run
    from .stores.base import StateStore

Messages = str | Sequence[Mapping[str, Any]]


def run_agent(
    agent: Agent | str,
    messages: Messages,
    *,
    client: Any = None,
    checkpoint: Checkpointer | None = None,
    user: Any = None,
    metadata: Mapping[str, Any] | None = None,
) -> AgentResult:
    """Run an agent to its end, or until it waits for a person.

    With a checkpointer whose run exists already, the same request goes on where that run stands.

    Args:
        agent: An agent or the name of a registered one.
        messages: The user's text, or messages in the API's form.
        client: Anything with ``.messages``; None: the one of the settings.
        checkpoint: Where each step is stored; None: nothing is stored.
        user: Who it runs for; tools see it as ``ctx.user``.
        metadata: JSON values that go along with the run.

    Raises:
        BadInputError: The input cannot be sent.
        RunIdTakenError: The checkpointer's run belongs to another request.
        LeaseLostError: Another process took the run over while this one was stopped.
    """
    return _exhaust(
        stream_agent(agent, messages, client=client, checkpoint=checkpoint, user=user, metadata=metadata)
    )


def stream_agent(
    agent: Agent | str,
    messages: Messages,
    *,
    client: Any = None,
    checkpoint: Checkpointer | None = None,
    user: Any = None,
    metadata: Mapping[str, Any] | None = None,
) -> Generator[Event, None, AgentResult]:
    """``run_agent`` as a generator of events; the last one is ``Done`` and carries the same result.

    Text deltas are for watching: when a model call fails and is repeated, they come again. A consumer that
    stops early leaves a run that can be resumed.
    """
    definition = get_agent(agent)
    if not getattr(user, "is_authenticated", True):  # Django's AnonymousUser is nobody.
        user = None
    saver = checkpoint or Checkpointer(MemoryStateStore(), new_run_id())
    fresh = _fresh_checkpoint(definition, messages, saver.run_id, metadata)
    stored = saver.load()
    if stored is None:
        saver.store.create(fresh, user=user)
    elif not (_same_request(stored, fresh) and _same_user(saver, user)):
        raise RunIdTakenError(saver.run_id)
    return _advance(definition, saver, client, user)


def resume_agent(
    agent: Agent | str,
    *,
    checkpoint: Checkpointer,
    client: Any = None,
    approval: Decision | Mapping[str, Decision] | None = None,
) -> AgentResult:
    """Go on with a stored run: after a crash, a pause or a failure, or with a person's decision.

    A finished run is left as it is and its result returned; so is one that another process is advancing,
    and one that still waits for a decision.

    Args:
        approval: The decision on the one waiting call, or decisions by call id.

    Raises:
        UnknownRunError: Nothing is stored under the run_id.
        DecisionError: There is no such waiting call, several wait and one decision was given, or it is
            decided already.
    """
    store, run_id = checkpoint.store, checkpoint.run_id
    definition = get_agent(agent)
    stored = checkpoint.load()
    if stored is None:
        raise UnknownRunError(run_id)
    if definition.name != stored.agent:
        raise BadInputError(f"Run {run_id!r} belongs to agent {stored.agent!r}, not to {definition.name!r}.")
    for call_id, decision in _checked(
        definition, stored, _by_call(stored, approval), store.user_loader(run_id)
    ):
        store.decide(run_id, call_id, decision)
    _expire_overdue(store, stored)
    store.wake(run_id, RESUMABLE)
    return _exhaust(_advance(definition, checkpoint, client, None))


def list_runs(store: StateStore) -> list[str]:
    """The ids of all runs in a store, oldest first."""
    return store.run_ids()


def start_run(
    agent: Agent | str,
    messages: Messages,
    *,
    user: Any = None,
    run_id: str | None = None,
    idempotency_key: str | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Run:
    """Store a run and have the workers advance it; joins the caller's transaction.

    Args:
        agent: A registered agent or its name.
        messages: The user's text, or messages in the API's form.
        user: Who starts it.
        run_id: An id of your own (a request id, a primary key, a UUID); None: a time-ordered UUID.
        idempotency_key: The same key of the same user gives the same run.
        metadata: JSON values that go along with the run.

    Raises:
        UnknownAgentError: No such agent is registered.
        BadInputError: Input, run_id or metadata cannot be used.
        RunIdTakenError: The run_id belongs to another request.
        IdempotencyKeyReusedError: The key belongs to another request.
    """
    from . import runs  # The only function here that needs the models, and so the app registry.

    return runs.start(
        agent, messages, user=user, run_id=run_id, idempotency_key=idempotency_key, metadata=metadata
    )


def _fresh_checkpoint(
    agent: Agent, messages: Messages, run_id: str, metadata: Mapping[str, Any] | None
) -> AgentCheckpoint:
    return AgentCheckpoint(
        run_id=check_run_id(run_id),
        agent=agent.name,
        prefix=agent.prefix,
        messages=history.from_input(messages, limit=get_settings().input_limit),
        limits=agent.limits,
        metadata=check_metadata(metadata),
        total_cost_usd=agent.cost_so_far(),
    )


def _same_request(stored: AgentCheckpoint, fresh: AgentCheckpoint) -> bool:
    begun = stored.messages[: len(fresh.messages)]
    return (
        stored.agent == fresh.agent
        and stored.metadata == fresh.metadata
        and exactjson.dumps(begun) == exactjson.dumps(fresh.messages)
        and _is_grown(stored, len(fresh.messages))
    )


def _is_grown(stored: AgentCheckpoint, given: int) -> bool:
    """Whether all messages after the first ``given`` can have come from advancing the run."""
    rest = [message["role"] for message in stored.messages[given:]]
    return not rest or (rest[0] == "assistant" and rest.count("assistant") <= stored.iterations)


def _same_user(saver: Checkpointer, user: Any) -> bool:
    load_user = saver.store.user_loader(saver.run_id)
    return load_user is None or load_user() == user


def _by_call(
    stored: AgentCheckpoint, approval: Decision | Mapping[str, Decision] | None
) -> Mapping[str, Decision]:
    if approval is None:
        return {}
    if not isinstance(approval, Decision):
        return approval
    waiting = [call.call_id for call in stored.pending]
    if len(waiting) != 1:
        raise DecisionError(
            f"{len(waiting)} calls of run {stored.run_id!r} wait for a decision "
            f"({', '.join(waiting) or 'none'}): give a mapping of call id to Decision."
        )
    return {waiting[0]: approval}


def _expire_overdue(store: StateStore, stored: AgentCheckpoint) -> None:
    """Count as a no whatever nobody decided in time; where there are workers, their sweep does the same."""
    for call in stored.pending:
        if call.expires_at is not None and call.expires_at <= get_clock().now():
            with suppress(DecisionError):  # Decided at the last moment, or not over by the store's own clock.
                nobody = Decision(approved=False, reviewer=NOBODY, channel=str(Channel.EXPIRY))
                store.decide(stored.run_id, call.call_id, nobody)


def _checked(
    agent: Agent,
    stored: AgentCheckpoint,
    decisions: Mapping[str, Decision],
    load_user: Callable[[], Any] | None,
) -> list[tuple[str, Decision]]:
    """The decisions, so that one that cannot be taken is found before any other is."""
    waiting = {call.call_id: call for call in stored.pending}
    for call_id, decision in decisions.items():
        decision.check()
        decision.storable()
        if call_id in waiting:
            context = ToolContext(
                stored.run_id,
                call_id,
                f"{stored.run_id}:{call_id}",
                metadata=stored.metadata,
                load_user=load_user,
                decision=decision,
            )
            tool = waiting[call_id].tool
            check_fit(decision, waiting[call_id].kind, tool, agent.callable_tools.get(tool), context)
    # Those that find nothing waiting come first: the store says why and nothing has been decided.
    return sorted(decisions.items(), key=lambda item: item[0] in waiting)


def _advance(
    agent: Agent, saver: Checkpointer, client: Any, user: Any
) -> Generator[Event, None, AgentResult]:
    claimed = saver.store.claim(saver.run_id, owner_name(), get_settings().lease_seconds)
    if claimed is None:
        stored = saver.load()
        if stored is None:
            raise UnknownRunError(saver.run_id)
        result = AgentResult.of(stored)
        yield Done(result)
        return result
    held, lease = claimed
    load_user = (lambda: user) if user is not None else saver.store.user_loader(saver.run_id)
    loop = Loop(agent, held, saver.store, lease, client=client, load_user=load_user, waits_in_process=True)
    return (yield from loop.events())


def _exhaust(events: Generator[Event, None, AgentResult]) -> AgentResult:
    while True:
        try:
            next(events)
        except StopIteration as end:
            result: AgentResult = end.value
            return result
