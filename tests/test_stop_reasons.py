"""Why the model stopped, and what the loop does about it."""

from __future__ import annotations

from typing import Any

import pytest

from anvil_django import Agent, exactjson, tool
from anvil_django.stores import StateStore
from anvil_django.testing import (
    ScriptedMessagesAPI,
    Turn,
    fault,
    pause,
    refusal,
    say,
    server_tool_call,
    text,
    thinking,
    tool_call,
    truncated,
)

from .driving import agent, result, results, resume, roles, run, stored, with_reason

pytestmark = pytest.mark.usefixtures("clock")

SEARCH = {"type": "web_search_20260318", "name": "web_search"}
CONTAINER = {"id": "container_1", "expires_at": "2027-01-01T00:00:00Z"}


class Phone:
    """A side effect that counts itself."""

    def __init__(self) -> None:
        self.calls: list[str] = []

        @tool(side_effect=True)
        def phone(number: str) -> str:
            """Phone a number."""
            self.calls.append(number)
            return f"spoke to {number}"

        self.tool = phone


@pytest.fixture
def phone() -> Phone:
    return Phone()


# Stops that end a run


@pytest.mark.parametrize("reason", ["end_turn", "stop_sequence"])
def test_the_run_is_done_with_the_text_of_the_last_turn(
    store: StateStore, messages_api: ScriptedMessagesAPI, reason: str
) -> None:
    messages_api.script(with_reason(reason, "Hello ", "there."))

    done = run(agent(), store)

    assert (done.status, done.stop_reason, done.final_text) == ("done", reason, "Hello there.")
    assert (done.error, done.error_code, done.iterations, done.pending) == ("", "", 1, [])
    assert stored(store).final_text == "Hello there."


def test_an_empty_end_turn_after_results_is_a_good_end(
    store: StateStore, messages_api: ScriptedMessagesAPI, phone: Phone
) -> None:
    messages_api.script(say("Calling.", tool_call("phone", {"number": "1"})), Turn([]))

    done = run(agent(phone.tool), store)

    assert (done.status, done.stop_reason, done.final_text) == ("done", "end_turn", "")
    assert roles(done) == ["user", "assistant", "user"]
    assert done.iterations == 2
    assert resume(agent(phone.tool), store) == done
    assert len(messages_api.requests) == 2


@pytest.mark.parametrize("blank", ["", " \n\t"])
def test_a_blank_text_block_is_not_kept(
    store: StateStore, messages_api: ScriptedMessagesAPI, phone: Phone, blank: str
) -> None:
    messages_api.script(say(text(blank), tool_call("phone", {"number": "1"})), say(text(blank)))

    done = run(agent(phone.tool), store)

    assert [block["type"] for block in done.messages[1]["content"]] == ["tool_use"]
    assert (done.status, done.final_text, len(done.messages)) == ("done", "", 3)


def test_tools_of_a_turn_that_ended_are_not_run_and_the_history_stays_valid(
    store: StateStore, messages_api: ScriptedMessagesAPI, phone: Phone
) -> None:
    messages_api.script(say("Bye.", tool_call("phone", {"number": "1"}), stop_reason="end_turn"))

    done = run(agent(phone.tool), store)

    assert (done.status, done.stop_reason, phone.calls) == ("done", "end_turn", [])
    assert roles(done) == ["user", "assistant", "user"]
    assert result(done)["is_error"] is True
    assert result(stored(store)) == result(done)


def test_a_refusal_ends_the_run_and_its_turn_is_not_kept(
    store: StateStore, messages_api: ScriptedMessagesAPI, phone: Phone
) -> None:
    messages_api.script(
        refusal("cyber", "It would harm somebody.", text("I"), tool_call("phone", {"number": "1"}))
    )

    done = run(agent(phone.tool), store)

    assert (done.status, done.stop_reason, done.final_text) == ("done", "refusal", "")
    assert "cyber" in done.error
    assert "It would harm somebody." in done.error
    assert roles(done) == ["user"]
    assert phone.calls == []
    assert done.total_usage.output_tokens == messages_api.billed[0].usage["output_tokens"]


def test_a_refusal_without_details_still_says_so(
    store: StateStore, messages_api: ScriptedMessagesAPI
) -> None:
    messages_api.script(Turn([], "refusal"))

    assert run(agent(), store).error == "The model refused to answer."


# Stops that fail a run


def test_tools_of_a_truncated_turn_are_never_run(
    store: StateStore, messages_api: ScriptedMessagesAPI, phone: Phone
) -> None:
    cut = truncated("Calling.", tool_call("phone", {"number": "12"}), tool_call("phone", {"number": "345"}))
    messages_api.script(say("Done.").after(cut))
    small = agent(phone.tool, max_tokens=100)

    failed = run(small, store)

    assert (failed.status, failed.error_code) == ("failed", "max_tokens")
    assert "max_tokens=100" in failed.error
    assert (phone.calls, roles(failed), failed.iterations) == ([], ["user"], 1)
    assert failed.total_usage.output_tokens == messages_api.billed[0].usage["output_tokens"]
    assert resume(small, store).status == "done"


def test_a_truncated_run_goes_on_once_max_tokens_is_raised(
    store: StateStore, messages_api: ScriptedMessagesAPI, phone: Phone
) -> None:
    messages_api.script(
        say(tool_call("phone", {"number": "1"})).after(truncated("Ca"), truncated("Calling")), say("Done.")
    )
    run(agent(phone.tool, max_tokens=100), store)

    again = resume(agent(phone.tool, max_tokens=200), store)
    done = resume(agent(phone.tool, max_tokens=5000), store)

    assert "max_tokens=200" in again.error
    assert (done.status, done.final_text, done.error, phone.calls) == ("done", "Done.", "", ["1"])
    assert [request.body["max_tokens"] for request in messages_api.requests] == [100, 200, 5000, 5000]
    assert done.iterations == 4
    assert done.total_usage.output_tokens == sum(b.usage["output_tokens"] for b in messages_api.billed)


def test_lowering_max_tokens_does_not_change_a_run_that_has_begun(
    store: StateStore, messages_api: ScriptedMessagesAPI
) -> None:
    messages_api.script(say("Done.").after(truncated("D")))
    run(agent(max_tokens=200), store)

    resume(agent(max_tokens=100), store)

    assert [request.body["max_tokens"] for request in messages_api.requests] == [200, 200]


@pytest.mark.parametrize(
    ("reason", "code"),
    [("model_context_window_exceeded", "context_window"), ("hiccup", "unknown_stop_reason")],
)
def test_a_stop_that_cannot_be_gone_on_from_fails_loudly_and_runs_nothing(
    store: StateStore, messages_api: ScriptedMessagesAPI, phone: Phone, reason: str, code: str
) -> None:
    odd = with_reason(reason, "Calling.", tool_call("phone", {"number": "1"}))
    messages_api.script(say("Fine now.").after(odd))

    failed = run(agent(phone.tool), store)

    assert (failed.status, failed.error_code, phone.calls, roles(failed)) == ("failed", code, [], ["user"])
    if code == "unknown_stop_reason":
        assert "'hiccup'" in failed.error
    done = resume(agent(phone.tool), store)
    assert (done.status, done.final_text, done.error, done.iterations) == ("done", "Fine now.", "", 2)


# Stops that are none: the same history is sent again


def test_a_cut_stream_is_called_again_and_counted_once(
    store: StateStore, messages_api: ScriptedMessagesAPI, phone: Phone
) -> None:
    turn = say("Calling.", tool_call("phone", {"number": "1"}))
    messages_api.script(turn.after(fault.early_eof(), fault.early_eof(events=0)), say("Done."))

    done = run(agent(phone.tool), store)

    assert (done.status, done.iterations, phone.calls) == ("done", 2, ["1"])
    assert len(messages_api.requests) == 4
    assert done.total_usage.output_tokens == sum(b.usage["output_tokens"] for b in messages_api.billed)


def test_a_paused_turn_is_sent_back_unchanged_with_nothing_added(
    store: StateStore, messages_api: ScriptedMessagesAPI
) -> None:
    search = server_tool_call("web_search", {"query": "lamps"}, id="srvtoolu_1")
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"zz": 1, "a": None}]}
    messages_api.script(pause(thinking("Hm."), "Searching.", search), pause(found, "More."), say("Lamps."))

    done = run(agent(SEARCH), store)

    assert (done.status, done.final_text, done.iterations) == ("done", "Lamps.", 3)
    assert roles(done) == ["user", "assistant", "assistant", "assistant"]
    second = messages_api.requests[1].body["messages"]
    assert [message["role"] for message in second] == ["user", "assistant"]
    assert exactjson.dumps(second) == exactjson.dumps(done.messages[:2])
    assert (done.error, done.error_code, stored(store).attempt) == ("", "", 0)


def test_a_pause_without_content_is_simply_called_again(
    store: StateStore, messages_api: ScriptedMessagesAPI
) -> None:
    messages_api.script(say("Done.").after(Turn([], "pause_turn")))

    assert run(agent(), store).final_text == "Done."


@pytest.mark.parametrize("pauses", [1, 2])
def test_pauses_up_to_the_cap_are_allowed(
    store: StateStore, messages_api: ScriptedMessagesAPI, pauses: int
) -> None:
    messages_api.script(*[pause(f"Part {i}.") for i in range(pauses)], say("Done."))

    assert run(agent(max_pauses=2), store).status == "done"


def test_more_pauses_in_a_row_than_the_cap_fail_and_a_resume_lets_it_go_on(
    store: StateStore, messages_api: ScriptedMessagesAPI
) -> None:
    messages_api.script(*[pause(f"Part {i}.") for i in range(4)], say("Done."))
    definition = agent(max_pauses=2)

    failed = run(definition, store)

    assert (failed.status, failed.error_code, failed.iterations) == ("failed", "pause_limit", 3)
    done = resume(definition, store)
    assert (done.status, done.final_text, done.iterations) == ("done", "Done.", 5)


def test_an_answer_between_pauses_starts_the_count_again(
    store: StateStore, messages_api: ScriptedMessagesAPI, phone: Phone
) -> None:
    messages_api.script(
        pause("a"),
        pause("b"),
        say(tool_call("phone", {"number": "1"})),
        pause("c"),
        pause("d"),
        say("Done."),
    )

    assert run(agent(phone.tool, max_pauses=2), store).status == "done"


@pytest.mark.parametrize(
    "trouble",
    [
        fault.http(401, "authentication_error"),
        fault.http(400, "invalid_request_error"),
        truncated("x"),
        with_reason("hiccup", "x"),
    ],
    ids=["auth", "refused", "truncated", "unknown"],
)
def test_a_run_that_broke_off_within_a_paused_turn_goes_on_with_that_turn(
    store: StateStore, messages_api: ScriptedMessagesAPI, trouble: Any
) -> None:
    messages_api.script(pause("First half, "), say("second half.").after(trouble))

    broken = run(agent(), store)
    done = resume(agent(), store)

    assert broken.status in {"failed", "paused"}
    assert (done.status, done.stop_reason, done.final_text) == ("done", "end_turn", "second half.")
    assert [m["role"] for m in messages_api.requests[-1].body["messages"]] == ["user", "assistant"]


def test_a_compaction_goes_on_like_a_pause(store: StateStore, messages_api: ScriptedMessagesAPI) -> None:
    block = {"type": "compaction", "content": "So far: nothing.", "signature": "c2ln"}
    messages_api.script(with_reason("compaction", block), say("Done."))

    done = run(agent(), store)

    assert (done.status, done.final_text, done.messages[1]["content"]) == ("done", "Done.", [block])


# Tools of the API's own


def test_a_server_tool_without_result_beside_a_call_is_replayed_as_it_is(
    store: StateStore, messages_api: ScriptedMessagesAPI, phone: Phone
) -> None:
    search = server_tool_call("web_search", {"query": "x"}, id="srvtoolu_1")
    messages_api.script(say(search, tool_call("phone", {"number": "1"})), say("Done."))

    done = run(agent(phone.tool, SEARCH), store)

    assert done.messages[1]["content"][0] == search
    assert [block["tool_use_id"] for block in results(done)] == [done.messages[1]["content"][1]["id"]]
    assert (done.status, phone.calls) == ("done", ["1"])


@pytest.mark.messages_api(check_history=False)
def test_a_tool_use_stop_with_server_tools_alone_goes_on_like_a_pause(
    store: StateStore, messages_api: ScriptedMessagesAPI
) -> None:
    def script(request: Any) -> Turn:
        if request.assistant_turns == 0:
            return say(server_tool_call("web_search", id="srvtoolu_1"), stop_reason="tool_use")
        return say("Done.")

    messages_api.add(script)

    done = run(agent(SEARCH), store)

    assert (done.status, done.final_text, roles(done)) == (
        "done",
        "Done.",
        ["user", "assistant", "assistant"],
    )


def test_a_tool_use_stop_without_any_tool_goes_on_and_is_capped(
    store: StateStore, messages_api: ScriptedMessagesAPI
) -> None:
    messages_api.add(lambda request: Turn([], "tool_use"))

    failed = run(agent(max_pauses=3), store)

    assert (failed.status, failed.error_code, len(messages_api.requests)) == ("failed", "pause_limit", 4)


def test_calls_of_a_paused_turn_are_answered_with_the_turn_and_never_run(
    store: StateStore, messages_api: ScriptedMessagesAPI, phone: Phone
) -> None:
    messages_api.script(
        pause(tool_call("phone", {"number": "early"})),
        say(tool_call("phone", {"number": "late"})),
        say("Done."),
    )

    done = run(agent(phone.tool), store)

    assert (done.status, phone.calls) == ("done", ["late"])
    assert [block.get("is_error", False) for block in results(done)] == [True, False]
    assert stored(store).messages == done.messages


def test_the_container_of_an_answer_is_named_in_every_request_after_it(
    store: StateStore, messages_api: ScriptedMessagesAPI
) -> None:
    messages_api.script(
        pause("Working.", container=CONTAINER), say("Done.").after(fault.http(401, "authentication_error"))
    )
    definition: Agent = agent({"type": "code_execution_20260521", "name": "code_execution"})

    parked = run(definition, store)
    done = resume(definition, store)

    assert (parked.status, done.status) == ("paused", "done")
    assert [r.body.get("container") for r in messages_api.requests] == [None, "container_1", "container_1"]
