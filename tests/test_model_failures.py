"""Model calls that fail: tried again, parked for an operator, or the end; and what is counted."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from anvil_django import Checkpointer, stream_agent, tool
from anvil_django.clock import FixedClock
from anvil_django.cost import price
from anvil_django.events import Retrying
from anvil_django.stores import MemoryStateStore, StateStore
from anvil_django.testing import Fault, ScriptedMessagesAPI, Turn, fault, refusal, say, tool_call, truncated

from .driving import YES, agent, resume, roles, run, stored


@pytest.fixture
def memory() -> MemoryStateStore:
    return MemoryStateStore()


@tool
def look(thing: str) -> str:
    """Look at a thing."""
    return "fine"


def delays(store: StateStore, definition: Any = None) -> list[tuple[str, float]]:
    """Run it; the code and the wait of each failed attempt."""
    events = stream_agent(definition or agent(), "Go.", checkpoint=Checkpointer(store, "r"))
    return [(event.code, event.seconds) for event in events if isinstance(event, Retrying)]


# Tried again


@pytest.mark.parametrize(
    ("trouble", "code"),
    [
        (fault.overloaded(), "overloaded"),
        (fault.rate_limited(), "rate_limited"),
        (fault.http(500), "server_error"),
        (fault.overloaded_mid_stream(), "overloaded"),
        (fault.early_eof(), "cut_stream"),
        (fault.dropped(), "connection"),
        (fault.no_answer(), "connection"),
        (fault.garbage(), "bad_response"),
    ],
    ids=lambda value: value.kind if isinstance(value, Fault) else value,
)
def test_a_passing_failure_is_tried_again(
    memory: MemoryStateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock, trouble: Fault, code: str
) -> None:
    messages_api.script(say("Done.").after(trouble))
    began = clock.now()

    assert [told for told, _ in delays(memory)] == [code]

    done = stored(memory)
    assert (done.status, done.iterations, done.attempt, done.next_attempt_at) == ("done", 1, 0, None)
    assert (done.error, done.error_code) == ("", "")
    assert done.total_usage.output_tokens == messages_api.billed[0].usage["output_tokens"]
    assert clock.now() - began >= timedelta(seconds=0.5)


def test_a_stalled_answer_is_tried_again(
    memory: MemoryStateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock
) -> None:
    messages_api.script(say("Done.").after(fault.stall(30)))

    assert run(agent(), memory, client=messages_api.client(timeout=0.2)).status == "done"
    assert len(messages_api.requests) == 2


def test_the_same_bytes_are_sent_again(
    memory: MemoryStateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock
) -> None:
    messages_api.script(
        say(tool_call("look", {"thing": "ä"})), say("Done.").after(fault.overloaded(), fault.dropped())
    )

    run(agent(look), memory)

    bodies = [request.body for request in messages_api.requests[1:]]
    assert bodies[0] == bodies[1] == bodies[2]
    assert len({request.size for request in messages_api.requests[1:]}) == 1


def test_the_wait_doubles_up_to_the_cap(
    memory: MemoryStateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock, settings: Any
) -> None:
    settings.ANVIL = {"BACKOFF_SECONDS": 2, "BACKOFF_CAP_SECONDS": 10}
    messages_api.script(say("Done.").after(*[fault.overloaded()] * 5))

    waits = [seconds for _, seconds in delays(memory)]

    for waited, full in zip(waits, (2, 4, 8, 10, 10), strict=True):
        assert full / 2 <= waited <= full


def test_retry_after_is_waited_for(
    memory: MemoryStateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock
) -> None:
    messages_api.script(say("Done.").after(fault.rate_limited(20)))

    ((_, seconds),) = delays(memory)

    assert 20 <= seconds <= 22


def test_a_retry_after_of_weeks_is_capped_and_outlasts_no_lease(
    store: StateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock
) -> None:
    messages_api.script(say("Done.").after(fault.rate_limited(4_294_967)))

    assert delays(store) == [("rate_limited", 300.0)]
    assert stored(store).status == "done"


def test_when_to_try_again_is_stored_before_the_wait(
    store: StateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock
) -> None:
    messages_api.script(say("Done.").after(fault.overloaded()))
    events = stream_agent(agent(), "Go.", checkpoint=Checkpointer(store, "r"))

    event = next(events)

    assert isinstance(event, Retrying)
    waiting = stored(store)
    assert waiting.next_attempt_at == clock.now() + timedelta(seconds=event.seconds)
    assert (waiting.attempt, waiting.error_code) == (1, "overloaded")
    assert "overloaded" in waiting.error
    events.close()
    assert stored(store).status == "queued"
    clock.advance(2)
    assert resume(agent(), store).status == "done"


def test_a_run_that_backs_off_is_not_called_before_its_time(
    store: StateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock
) -> None:
    messages_api.script(say("Done.").after(fault.rate_limited(30)))
    events = stream_agent(agent(), "Go.", checkpoint=Checkpointer(store, "r"))
    next(events)
    events.close()

    early = resume(agent(), store)
    assert (early.status, len(messages_api.requests)) == ("queued", 1)

    clock.advance(32)
    assert resume(agent(), store).status == "done"


def test_too_many_failures_in_a_row_fail_the_run_and_it_can_be_resumed(
    store: StateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock, settings: Any
) -> None:
    settings.ANVIL = {"MAX_MODEL_ATTEMPTS": 3}
    messages_api.script(say(tool_call("look", {"thing": "a"})), say("Done.").after(*[fault.overloaded()] * 4))

    failed = run(agent(look), store)

    assert (failed.status, failed.error_code) == ("failed", "overloaded")
    assert roles(failed) == ["user", "assistant", "user"]
    assert len(messages_api.requests) == 4
    done = resume(agent(look), store)
    assert (done.status, done.final_text, done.error, done.iterations) == ("done", "Done.", "", 2)


def test_failures_count_in_a_row_only(
    memory: MemoryStateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock, settings: Any
) -> None:
    settings.ANVIL = {"MAX_MODEL_ATTEMPTS": 3}
    twice = [fault.overloaded()] * 2
    turns = [say(tool_call("look", {"thing": "a"})).after(*twice), say("Done.").after(*twice)]
    messages_api.script(*turns)

    assert run(agent(look), memory).status == "done"


# Parked for an operator, or the end


@pytest.mark.parametrize(
    ("trouble", "code", "told"),
    [
        (fault.http(401, "authentication_error", "invalid x-api-key"), "auth", "Check the API key"),
        (fault.http(403, "permission_error"), "auth", "Check the API key"),
        (fault.http(402, "billing_error"), "quota", "add credit"),
        (
            fault.rate_limited(error_code="enforced_spend_limit_reached"),
            "quota",
            "Raise the limit",
        ),
        (
            fault.http(400, "invalid_request_error", "Your credit balance is too low"),
            "quota",
            "add credit",
        ),
    ],
    ids=["401", "403", "402", "spend", "credit"],
)
def test_what_an_operator_must_mend_parks_the_run(
    store: StateStore,
    messages_api: ScriptedMessagesAPI,
    clock: FixedClock,
    trouble: Fault,
    code: str,
    told: str,
) -> None:
    messages_api.script(say(tool_call("look", {"thing": "a"})), say("Done.").after(trouble))

    parked = run(agent(look), store)

    assert (parked.status, parked.error_code) == ("paused", code)
    assert told in parked.error
    done = resume(agent(look), store)
    assert (done.status, done.final_text, done.error, done.iterations) == ("done", "Done.", "", 2)


def test_a_missing_key_parks_the_run_until_it_is_set(
    memory: MemoryStateStore,
    messages_api: ScriptedMessagesAPI,
    clock: FixedClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from anvil_django.clients import reset_clients

    messages_api.script(say("Done."))
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    reset_clients()

    parked = run(agent(), memory)

    assert (parked.status, parked.error_code, messages_api.requests) == ("paused", "not_configured", [])
    assert "ANTHROPIC_API_KEY" in parked.error
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    reset_clients()
    assert resume(agent(), memory).status == "done"


@pytest.mark.parametrize(
    ("message", "code", "told"),
    [
        ("tools.0: bad schema", "request_refused", "tools.0: bad schema"),
        ("prompt is too long: 9 tokens > 8 maximum", "context_window", "larger context window"),
    ],
)
def test_a_request_that_would_be_refused_again_fails_the_run_at_once(
    store: StateStore,
    messages_api: ScriptedMessagesAPI,
    clock: FixedClock,
    message: str,
    code: str,
    told: str,
) -> None:
    messages_api.script(say("Fine now.").after(fault.http(400, "invalid_request_error", message)))

    failed = run(agent(), store)

    assert (failed.status, failed.error_code, len(messages_api.requests)) == ("failed", code, 1)
    assert told in failed.error
    assert resume(agent(), store).final_text == "Fine now."


# Counting


def billed(api: ScriptedMessagesAPI, key: str) -> int:
    return sum(item.usage.get(key, 0) for item in api.billed)


def test_every_billed_answer_is_counted_once_whatever_became_of_it(
    store: StateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock
) -> None:
    cached = {"cache_read_input_tokens": 300, "cache_creation_input_tokens": 70}
    refused = truncated("Loo")
    messages_api.script(
        say(tool_call("look", {"thing": "a"}), usage=cached).after(
            fault.overloaded(), refused, fault.dropped()
        ),
        refusal("cyber", "No."),
    )

    run(agent(look), store)
    done = resume(agent(look), store)

    usage = done.total_usage
    assert (done.stop_reason, done.iterations, len(messages_api.billed)) == ("refusal", 3, 3)
    assert usage.input_tokens == billed(messages_api, "input_tokens")
    assert usage.output_tokens == billed(messages_api, "output_tokens")
    assert (usage.cache_read_tokens, usage.cache_write_tokens) == (300, 70)
    prices = [price(item.model, item.usage, at=clock.now()) for item in messages_api.billed]
    assert None not in prices
    assert done.total_cost_usd == sum(cost for cost in prices if cost is not None)
    assert isinstance(done.total_cost_usd, Decimal)
    assert stored(store).total_usage == usage


def test_a_cost_is_none_once_a_price_is_not_known(
    store: StateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock
) -> None:
    messages_api.script(say(tool_call("look", {"thing": "a"}), model="claude-strange-1"), say("Done."))

    done = run(agent(look), store)

    assert (done.status, done.total_cost_usd, done.iterations) == ("done", None, 2)
    assert done.total_usage.output_tokens == billed(messages_api, "output_tokens")


def test_a_cost_limit_without_a_price_stops_before_the_first_call(
    store: StateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock, settings: Any
) -> None:
    strange = agent(model="claude-strange-1", max_cost_usd=Decimal(1))

    failed = run(strange, store)

    assert (failed.status, failed.error_code, messages_api.requests) == ("failed", "cost_unknown", [])
    assert "claude-strange-1" in failed.error
    assert resume(strange, store).error_code == "cost_unknown"
    messages_api.script(say("Done."))
    settings.ANVIL = {"PRICES": {"claude-strange-1": (1, 1, 1, 1, 1)}}
    assert resume(strange, store).status == "done"


def test_a_price_that_is_lost_on_the_way_stops_a_run_with_a_cost_limit(
    store: StateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock
) -> None:
    messages_api.script(say(tool_call("look", {"thing": "a"}), model="claude-strange-1"))

    failed = run(agent(look, max_cost_usd=Decimal(1)), store)

    assert (failed.status, failed.error_code, failed.total_cost_usd) == ("failed", "cost_unknown", None)
    assert roles(failed) == ["user", "assistant", "user"]


# Limits


def looking(request: Any) -> Turn:
    """A model that never ends."""
    return say(tool_call("look", {"thing": "a"}), usage={"input_tokens": 1000, "output_tokens": 1000})


@pytest.mark.parametrize(
    ("limit", "reason", "calls"),
    [
        ({"max_iterations": 3}, "max_iterations", 3),
        ({"max_tokens_total": 4000}, "max_tokens_total", 2),
        ({"max_tokens_total": 4001}, "max_tokens_total", 3),
        ({"max_cost_usd": Decimal("0.024")}, "max_cost", 2),
        ({"max_cost_usd": Decimal("0.0241")}, "max_cost", 3),
    ],
)
def test_a_limit_is_checked_before_the_call(
    store: StateStore,
    messages_api: ScriptedMessagesAPI,
    clock: FixedClock,
    limit: Mapping[str, Any],
    reason: str,
    calls: int,
) -> None:
    messages_api.add(looking)

    done = run(agent(look, **limit), store)

    assert (done.status, done.stop_reason, done.iterations) == ("done", reason, calls)
    assert len(messages_api.requests) == calls
    assert roles(done)[-1] == "user"
    assert resume(agent(look, **limit), store) == done


@pytest.mark.parametrize(
    ("limit", "reason"),
    [({"max_iterations": 3}, "max_iterations"), ({"max_tokens_total": 6000}, "max_tokens_total")],
)
def test_a_limit_counts_over_resumes(
    store: StateStore,
    messages_api: ScriptedMessagesAPI,
    clock: FixedClock,
    limit: Mapping[str, Any],
    reason: str,
) -> None:
    tries: list[int] = []

    def script(request: Any) -> Turn:
        tries.append(request.assistant_turns)
        if tries.count(request.assistant_turns) == 1:
            return say("Hm.", stop_reason="hiccup", usage={"input_tokens": 500, "output_tokens": 500})
        return looking(request)

    messages_api.add(script)
    definition = agent(look, **limit)
    result = run(definition, store)
    for _ in range(6):
        if result.status != "failed":
            break
        result = resume(definition, store)

    assert (result.status, result.stop_reason, result.error) == ("done", reason, "")
    assert result.iterations == len(messages_api.billed) == (3 if reason == "max_iterations" else 4)


def test_time_is_counted_over_resumes_and_without_waiting_for_people(
    store: StateStore, messages_api: ScriptedMessagesAPI, clock: FixedClock
) -> None:
    @tool
    def dig(thing: str) -> str:
        """Dig for four seconds."""
        clock.advance(4)
        return "dug"

    @tool(requires_approval=True)
    def blast(thing: str) -> str:
        """Blast."""
        return "blasted"

    messages_api.script(
        say(tool_call("dig", {"thing": "a"}), tool_call("blast", {"thing": "b"})),
        say(tool_call("dig", {"thing": "c"}), tool_call("dig", {"thing": "d"})),
    )
    definition = agent(dig, blast, max_seconds=11)
    suspended = run(definition, store)
    clock.advance(1000)

    done = resume(definition, store, YES)

    assert suspended.status == "suspended"
    assert (done.status, done.stop_reason, done.iterations) == ("done", "max_seconds", 2)
    assert stored(store).active_seconds == pytest.approx(12)
