"""Other code meets stored runs: every change of an agent or a tool, in every state a call can be found in.

The first worker runs the old code up to a point and dies or waits; the second one runs the new code. Nothing
runs twice, nothing runs with arguments that its tool does not take, and the API takes the history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from anvil_django import Agent, AgentResult, ToolContext, tool
from anvil_django.clock import FixedClock
from anvil_django.stores import DjangoStateStore, StateStore
from anvil_django.testing import Kill, ScriptedMessagesAPI, kill_at, say, tool_call

from .driving import NO, YES, agent, results, resume, run

pytestmark = pytest.mark.django_db

UNKNOWN = (
    "This call was started and then interrupted. Whether it took effect is unknown. "
    "It was not run again; do not assume either outcome."
)
NOT_FOUND = "Tool 'act' not found."
HAPPENED = replace(YES, answer="It was done.")

done: list[dict[str, Any]] = []
"""What was done to the world, with which arguments."""


@pytest.fixture
def store() -> StateStore:
    return DjangoStateStore()


@pytest.fixture(autouse=True)
def nothing_done() -> Iterator[None]:
    done.clear()
    yield
    done.clear()


# The tool before and after


def act(to: str) -> str:
    """Act on somebody."""
    done.append({"to": to})
    return f"acted on {to}"


def act_in(to: str, currency: str) -> str:
    """Act, with one more argument that must be given."""
    done.append({"to": to, "currency": currency})
    return "acted"


def act_gently(to: str, force: int = 1) -> str:
    """Act, with one more argument that need not be given."""
    done.append({"to": to, "force": force})
    return f"acted on {to}"


def act_alone() -> str:
    """Act, with one argument less."""
    done.append({})
    return "acted"


def act_by_number(to: int) -> str:
    """Act, with a narrower type."""
    done.append({"to": to})
    return "acted"


def as_act(function: Callable[..., str], **options: Any) -> Any:
    """That function as the tool ``act``."""
    return tool(name="act", **{"side_effect": True, **options})(function)


@tool
def look() -> str:
    """Look."""
    return "fine"


@dataclass
class Change:
    """A deploy: the agent afterwards, and whether the tool can still run the old call."""

    after: Callable[..., Agent]
    told: str | None = None
    """Part of what the model is told instead of a result; None: the call runs."""
    did: dict[str, Any] | None = None

    def effects(self, to: str) -> dict[str, Any]:
        return {"to": to, **(self.did or {})}


CHANGES = {
    "nothing": Change(lambda **options: agent(look, as_act(act, **options))),
    "tool removed": Change(lambda **options: agent(look), NOT_FOUND),
    "tool renamed": Change(lambda **options: agent(look, tool(name="do")(act)), NOT_FOUND),
    "tool renamed, retired under its old name": Change(
        lambda **options: agent(look, tool(name="do")(act), retired=[as_act(act, **options)])
    ),
    "argument added": Change(lambda **options: agent(look, as_act(act_in, **options)), "currency"),
    "optional argument added": Change(
        lambda **options: agent(look, as_act(act_gently, **options)), did={"force": 1}
    ),
    "argument removed": Change(lambda **options: agent(look, as_act(act_alone, **options)), "to"),
    "type narrowed": Change(lambda **options: agent(look, as_act(act_by_number, **options)), "to"),
}
changes = pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())


def begin(
    api: ScriptedMessagesAPI, store: StateStore, clock: FixedClock, *, until: str, **options: Any
) -> None:
    """Have the old code look and call ``act``, up to a point: "ready", "started" or "waiting"."""
    api.script(say(tool_call("look"), tool_call("act", {"to": "ann"}, id="toolu_act")), say("Done."))
    before = agent(look, as_act(act, **options))
    if until == "waiting":
        assert run(before, store).status == "suspended"
        return
    with pytest.raises(Kill), kill_at("tool.before" if until == "ready" else "tool.before#2"):
        run(before, store)
    assert not done
    clock.advance(61)


def told(after: AgentResult) -> Any:
    """What the model was told about ``act``."""
    (block,) = (block for block in results(after) if block["tool_use_id"] == "toolu_act")
    return block["content"]


def is_refused(after: AgentResult, part: str) -> bool:
    """Whether the model was told why ``act`` did not run, and nothing was done."""
    block = next(block for block in results(after) if block["tool_use_id"] == "toolu_act")
    return (after.status, block["is_error"], part in block["content"], done) == ("done", True, True, [])


# A changed tool × the state of its call


@changes
def test_a_call_that_was_ready(
    store: StateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock, change: Change
) -> None:
    begin(messages_api, store, clock, until="ready")

    after = resume(change.after(), store)

    if change.told:
        assert is_refused(after, change.told)
    else:
        assert (after.status, told(after), done) == ("done", "acted on ann", [change.effects("ann")])


@changes
def test_a_call_whose_worker_died_in_it_is_in_doubt_whatever_changed(
    store: StateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock, change: Change
) -> None:
    begin(messages_api, store, clock, until="started")

    doubtful = resume(change.after(), store)

    assert (doubtful.status, [p.kind for p in doubtful.pending], done) == ("suspended", ["in_doubt"], [])
    after = resume(change.after(), store, YES)  # It did not happen: run it.
    if change.told:
        assert is_refused(after, change.told)
    else:
        assert (after.status, done) == ("done", [change.effects("ann")])


@changes
def test_a_call_whose_worker_died_in_it_and_that_may_be_repeated(
    store: StateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock, change: Change
) -> None:
    begin(messages_api, store, clock, until="started", on_interrupt="retry")

    after = resume(change.after(on_interrupt="retry"), store)

    if change.told:
        # Whether the first attempt took effect is not known, so nobody says that nothing was done.
        assert (after.status, told(after), done) == ("done", UNKNOWN, [])
    else:
        assert (after.status, told(after), done) == ("done", "acted on ann", [change.effects("ann")])


@changes
def test_a_call_that_is_approved_after_the_deploy(
    store: StateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock, change: Change
) -> None:
    begin(messages_api, store, clock, until="waiting", requires_approval=True)

    after = resume(change.after(requires_approval=True), store, YES)

    if change.told:
        assert is_refused(after, change.told)
    else:
        assert (after.status, told(after), done) == ("done", "acted on ann", [change.effects("ann")])


@changes
def test_a_call_whose_arguments_a_reviewer_changed_before_the_deploy(
    store: StateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock, change: Change
) -> None:
    begin(messages_api, store, clock, until="waiting", requires_approval=True)
    store.decide("r", "toolu_act", replace(YES, edited_input={"to": "bob"}))

    after = resume(change.after(requires_approval=True), store)

    if change.told:
        assert is_refused(after, change.told)
        if change.told != NOT_FOUND:
            assert told(after).endswith("as a reviewer changed them; the call was not run.")
    else:
        assert (after.status, done) == ("done", [change.effects("bob")])


@changes
def test_a_call_that_is_rejected_after_the_deploy(
    store: StateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock, change: Change
) -> None:
    begin(messages_api, store, clock, until="waiting", requires_approval=True)

    after = resume(change.after(), store, NO)

    assert is_refused(after, "A reviewer did not approve this call")


def test_a_retired_tool_is_not_offered_to_new_runs(messages_api: ScriptedMessagesAPI) -> None:
    assert [t["name"] for t in agent(look, retired=[as_act(act)]).prefix["tools"]] == ["look"]


# Whether a person is asked: the stricter of then and now

RULES: dict[str, Any] = {"always": True, "by a rule": lambda args, ctx: args["to"] == "ann"}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
@pytest.mark.parametrize("side_effect", [True, False])
def test_a_ready_call_that_the_new_code_would_ask_about_is_asked_about(
    store: StateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock, rule: Any, side_effect: bool
) -> None:
    begin(messages_api, store, clock, until="ready", side_effect=side_effect)
    new = agent(look, as_act(act, side_effect=side_effect, requires_approval=rule, approval_ttl=3600))

    waiting = resume(new, store)

    assert (waiting.status, done) == ("suspended", [])
    (pending,) = waiting.pending
    assert (pending.kind, pending.expires_at is not None) == ("tool", True)
    assert "act" in pending.payload["reason"]
    after = resume(new, store, YES)
    assert (after.status, told(after), done) == ("done", "acted on ann", [{"to": "ann"}])


def test_a_repeatable_call_that_may_have_happened_is_in_doubt_once_approval_is_required(
    store: StateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock
) -> None:
    begin(messages_api, store, clock, until="started", on_interrupt="retry")
    new = agent(look, as_act(act, on_interrupt="retry", requires_approval=True))

    waiting = resume(new, store)

    assert (waiting.status, [p.kind for p in waiting.pending], done) == ("suspended", ["in_doubt"], [])
    assert told(resume(new, store, HAPPENED)) == "It was done."
    assert not done


def test_a_rule_that_no_longer_takes_the_call_asks_a_person(
    store: StateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock
) -> None:
    begin(messages_api, store, clock, until="ready")
    new = agent(look, as_act(act, requires_approval=lambda args, ctx: args["currency"] == "EUR"))

    waiting = resume(new, store)

    assert (waiting.status, done) == ("suspended", [])
    assert "failed (KeyError)" in waiting.pending[0].payload["reason"]
    assert is_refused(resume(new, store, NO), "A reviewer did not approve this call")


def test_a_waiting_call_waits_on_where_the_new_code_would_not_ask(
    store: StateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock
) -> None:
    begin(messages_api, store, clock, until="waiting", requires_approval=True)
    new = agent(look, as_act(act))

    assert (resume(new, store).status, done) == ("suspended", [])
    assert (resume(new, store, YES).status, done) == ("done", [{"to": "ann"}])


def test_an_open_case_keeps_the_quorum_it_began_with(
    store: StateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock
) -> None:
    begin(messages_api, store, clock, until="waiting", requires_approval=True)
    new = agent(look, as_act(act, requires_approval=True, approvals=2, reviewers="Others"))

    assert (resume(new, store, YES).status, done) == ("done", [{"to": "ann"}])


# What became of a call that was begun: the stricter of then and now

PROMISES: dict[str, dict[str, Any]] = {
    "read-only": {"side_effect": False},
    "atomic": {"side_effect": True, "atomic": True},
    "retry": {"side_effect": True, "on_interrupt": "retry"},
    "fail": {"side_effect": True, "on_interrupt": "fail"},
    "ask": {"side_effect": True, "on_interrupt": "ask"},
}
REPEATED = ("read-only", "atomic", "retry")


@pytest.mark.parametrize("now", PROMISES)
@pytest.mark.parametrize("then", PROMISES)
def test_a_call_that_was_begun_is_repeated_only_if_its_tool_promises_so_then_and_now(
    store: StateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock, then: str, now: str
) -> None:
    # Approved, so that also the start of a read-only and of an atomic call is stored.
    begin(messages_api, store, clock, until="waiting", requires_approval=True, **PROMISES[then])
    with pytest.raises(Kill), kill_at("tool.before"):
        resume(agent(look, as_act(act, **PROMISES[then])), store, YES)
    clock.advance(61)
    new = agent(look, as_act(act, **PROMISES[now]))

    after = resume(new, store)

    stricter = now if then in REPEATED else then
    if stricter == "ask":
        assert (after.status, [p.kind for p in after.pending], done) == ("suspended", ["in_doubt"], [])
        after = resume(new, store, HAPPENED)
        assert (after.status, told(after), done) == ("done", "It was done.", [])
    elif stricter == "fail":
        assert (after.status, told(after), done) == ("done", UNKNOWN, [])
    else:
        assert (after.status, told(after), done) == ("done", "acted on ann", [{"to": "ann"}])


@pytest.mark.parametrize("now", [name for name in PROMISES if name not in {"read-only", "atomic"}])
def test_a_ready_call_starts_under_the_promise_its_tool_gives_now(
    store: StateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock, now: str
) -> None:
    begin(messages_api, store, clock, until="ready", side_effect=False)
    new = agent(look, as_act(act, **PROMISES[now]))
    with pytest.raises(Kill), kill_at("tool.returned#2"):
        resume(new, store)
    assert done == [{"to": "ann"}]
    clock.advance(61)

    after = resume(new, store)

    assert (after.status == "suspended") is (now == "ask")
    if now == "ask":
        resume(new, store, HAPPENED)
    assert len(done) == (2 if now == "retry" else 1)


def test_a_side_effect_that_became_read_only_is_fenced_no_more(
    store: StateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock
) -> None:
    begin(messages_api, store, clock, until="ready")
    seen: list[int] = []

    def act_and_count(to: str, ctx: ToolContext) -> str:
        """Act, and note the attempt."""
        seen.append(ctx.attempt)
        return "acted"

    new = agent(look, as_act(act_and_count, side_effect=False))
    with pytest.raises(Kill), kill_at("tool.returned#2"):
        resume(new, store)
    clock.advance(61)

    assert resume(new, store).status == "done"
    assert seen == [1, 1]


# Limits


@pytest.mark.parametrize(("then", "now", "iterations"), [(2, 9, 2), (9, 2, 3)])
def test_the_limits_of_a_run_are_those_it_began_with(
    store: StateStore,
    messages_api: ScriptedMessagesAPI,
    clock: FixedClock,
    then: int,
    now: int,
    iterations: int,
) -> None:
    messages_api.script(*[say(tool_call("look"))] * 2, *[say("Done.")] * (iterations - 2))
    with pytest.raises(Kill), kill_at("tool.before"):
        run(agent(look, max_iterations=then), store)
    clock.advance(61)

    after = resume(agent(look, max_iterations=now, on_limit="ask"), store)

    assert (after.status, after.iterations) == ("done", iterations)
    assert after.stop_reason == ("max_iterations" if iterations == then else "end_turn")
