"""Each rule of the history, kept once and broken once."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from anvil_django.testing import HistoryRules, violations

Body = dict[str, Any]

TOOL = {"name": "look", "description": "Look.", "input_schema": {"type": "object", "properties": {}}}


def user(content: Any) -> Body:
    return {"role": "user", "content": content}


def assistant(*blocks: Body) -> Body:
    return {"role": "assistant", "content": list(blocks)}


def text(value: str) -> Body:
    return {"type": "text", "text": value}


def call(call_id: str, **extra: Any) -> Body:
    return {"type": "tool_use", "id": call_id, "name": "look", "input": {"b": 1, "a": 2}, **extra}


def result(call_id: str, **extra: Any) -> Body:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "seen", **extra}


def request_of(*messages: Body, **extra: Any) -> Body:
    body = {
        "model": "claude-sonnet-5-5",
        "max_tokens": 100,
        "system": "Be brief.",
        "tools": [TOOL],
        "messages": list(messages),
        **extra,
    }
    return copy.deepcopy(body)


def message_of(*blocks: Body, stop_reason: str = "tool_use", **extra: Any) -> Body:
    return {"role": "assistant", "content": list(blocks), "stop_reason": stop_reason, **extra}


ONE_CALL = (user("Hi"), assistant(call("toolu_1")))
ANSWERED = (*ONE_CALL, user([result("toolu_1")]))


@pytest.mark.parametrize(
    "body",
    [
        request_of(user("Hi")),
        request_of(*ANSWERED),
        request_of(
            user("Hi"),
            assistant(call("toolu_1"), call("toolu_2")),
            user([result("toolu_2"), result("toolu_1")]),
        ),
        request_of(*ONE_CALL, user([result("toolu_1"), text("And hurry.")])),
        request_of(*ANSWERED, {"role": "system", "content": "Be kind."}),
        request_of(
            *ANSWERED,
            {"role": "system", "content": [text("Be kind.")]},
            assistant(text("Ok.")),
            user("Thanks"),
        ),
        request_of(user("Hi"), user("Are you there?")),
        request_of(
            user("Hi"),
            assistant({"type": "thinking", "thinking": "", "signature": "s"}, text("Ho")),
            user("?"),
        ),
        request_of(*ONE_CALL, user([result("toolu_1", content="")])),
        request_of(*ONE_CALL, user([{"type": "tool_result", "tool_use_id": "toolu_1"}])),
        request_of(user("Hi"), tool_choice={"type": "auto"}, thinking={"type": "adaptive"}),
        request_of(
            user([text("Hi") | {"cache_control": {"type": "ephemeral"}}]), cache_control={"type": "ephemeral"}
        ),
    ],
)
def test_a_valid_request_has_no_violations(body: Body) -> None:
    assert violations(body) == []


BROKEN: list[tuple[str, Body, str]] = [
    ("call_without_result", request_of(*ONE_CALL, user("Well?")), "`tool_use` ids were found without"),
    (
        "one_result_missing",
        request_of(user("Hi"), assistant(call("toolu_1"), call("toolu_2")), user([result("toolu_1")])),
        "immediately after: toolu_2",
    ),
    (
        "results_split_over_two_messages",
        request_of(
            user("Hi"),
            assistant(call("toolu_1"), call("toolu_2")),
            user([result("toolu_1")]),
            user([result("toolu_2")]),
        ),
        "immediately after: toolu_2",
    ),
    (
        "result_too_late",
        request_of(*ONE_CALL, user("Wait"), user([result("toolu_1")])),
        "unexpected `tool_use_id`",
    ),
    ("unknown_result", request_of(user([result("toolu_9")])), "unexpected `tool_use_id`"),
    (
        "second_result",
        request_of(*ONE_CALL, user([result("toolu_1"), result("toolu_1")])),
        "must have a single result",
    ),
    ("answered_again", request_of(*ANSWERED, user([result("toolu_1")])), "unexpected `tool_use_id`"),
    (
        "text_before_results",
        request_of(*ONE_CALL, user([text("Here:"), result("toolu_1")])),
        "must come first",
    ),
    (
        "id_used_again",
        request_of(*ANSWERED, assistant(call("toolu_1")), user([result("toolu_1")])),
        "ids must be unique: toolu_1",
    ),
    (
        "id_twice_in_a_turn",
        request_of(user("Hi"), assistant(call("toolu_1"), call("toolu_1")), user([result("toolu_1")])),
        "ids must be unique: toolu_1",
    ),
    (
        "input_not_an_object",
        request_of(user("Hi"), assistant(call("toolu_1", input="x")), user([result("toolu_1")])),
        "input: ",
    ),
    ("empty_text", request_of(user([text("")])), "must be non-empty"),
    ("blank_text", request_of(user([text(" \n")])), "must contain non-whitespace text"),
    ("blank_string", request_of(user(" ")), "must contain non-whitespace text"),
    (
        "blank_text_in_a_result",
        request_of(*ONE_CALL, user([result("toolu_1", content=[text("")])])),
        "must be non-empty",
    ),
    (
        "blank_system",
        request_of(user("Hi"), system=[text("")]),
        "system.0: text content blocks must be non-empty",
    ),
    ("empty_content", request_of(user("Hi"), assistant(), user("?")), "must have non-empty content"),
    ("no_content", request_of({"role": "user"}), "content: Input should be"),
    (
        "thinking_without_signature",
        request_of(user("Hi"), assistant({"type": "thinking", "thinking": "Hm"}, text("Ho")), user("?")),
        "signature: Field required",
    ),
    (
        "redacted_thinking_without_data",
        request_of(user("Hi"), assistant({"type": "redacted_thinking"}, text("Ho")), user("?")),
        "data: Field required",
    ),
    (
        "prefill",
        request_of(user("Hi"), assistant(text("Sure"))),
        "does not support assistant message prefill",
    ),
    (
        "assistant_first",
        request_of(assistant(text("Hi")), user("Hi")),
        'first message must use the "user" role',
    ),
    ("unknown_role", request_of({"role": "tool", "content": "x"}), "role: must be one of"),
    ("extra_key", request_of({"role": "user", "content": "Hi", "id": 1}), "messages.0.id: Extra inputs"),
    (
        "parsed_output",
        request_of(user("Hi"), assistant(text("Ho") | {"parsed_output": None}), user("?")),
        "parsed_output: Extra inputs are not permitted",
    ),
    (
        "system_after_assistant",
        request_of(user("Hi"), assistant(text("Ho")), {"role": "system", "content": "Be kind."}),
        "must come after a user message",
    ),
    (
        "system_before_user",
        request_of(user("Hi"), {"role": "system", "content": "Be kind."}, user("?")),
        "must not come directly before a user message",
    ),
    (
        "system_with_image",
        request_of(user("Hi"), {"role": "system", "content": [{"type": "image", "source": {}}]}),
        "system messages hold text only",
    ),
    ("tool_use_of_a_user", request_of(user([call("toolu_1")])), "can only be in `assistant` messages"),
    (
        "document_of_an_assistant",
        request_of(user("Hi"), assistant({"type": "document"}), user("?")),
        "in `user` messages",
    ),
    ("citations_of_a_user", request_of(user([text("Hi") | {"citations": []}])), "citations: not permitted"),
    (
        "five_cache_markers",
        request_of(
            user([text("Hi") | {"cache_control": {"type": "ephemeral"}}] * 4),
            cache_control={"type": "ephemeral"},
        ),
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    ),
    ("temperature", request_of(user("Hi"), temperature=0), "temperature: sampling parameters"),
    ("top_p", request_of(user("Hi"), top_p=1), "top_p: sampling parameters"),
    ("top_k", request_of(user("Hi"), top_k=1), "top_k: sampling parameters"),
    (
        "thinking_budget",
        request_of(user("Hi"), thinking={"type": "enabled", "budget_tokens": 1024}),
        "budget_tokens",
    ),
    ("thinking_disabled", request_of(user("Hi"), thinking={"type": "disabled"}), "disabled is not supported"),
    ("forced_tool", request_of(user("Hi"), tool_choice={"type": "any"}), "a forced tool is not supported"),
    ("tool_twice", request_of(user("Hi"), tools=[TOOL, TOOL]), "Tool names must be unique: look"),
    ("no_max_tokens", request_of(user("Hi"), max_tokens=0), "max_tokens"),
    ("no_model", request_of(user("Hi"), model=""), "model"),
    ("no_messages", request_of(), "at least one message"),
    ("lone_surrogate", request_of(user("\ud83d")), "no low surrogate"),
    ("too_many_images", request_of(user([{"type": "image", "source": {}}] * 101)), "at most 100 images"),
    (
        "toolset_missing",
        request_of(user("Hi"), assistant(call("toolu_1", toolset_name="browser")), user([result("toolu_1")])),
        "must carry toolset_name 'browser'",
    ),
    (
        "text_beside_a_programmatic_result",
        request_of(
            user("Hi"),
            assistant(call("toolu_1", caller={"type": "code_execution_20260120", "tool_id": "srvtoolu_1"})),
            user([result("toolu_1"), text("And?")]),
        ),
        "only `tool_result` blocks are allowed",
    ),
]


@pytest.mark.parametrize(
    ("body", "sentence"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN]
)
def test_a_broken_rule_is_named_with_and_without_state(body: Body, sentence: str) -> None:
    assert any(sentence in found for found in violations(body)), violations(body)
    found = HistoryRules().check(body)
    assert any(sentence in one for one in found), found


def test_a_paused_turn_may_come_last() -> None:
    assert violations(request_of(user("Hi"), assistant(text("Wait"))), paused=True) == []


# Rules that span requests


@pytest.fixture
def rules() -> HistoryRules:
    return HistoryRules()


THOUGHT = {"type": "thinking", "thinking": "Hm", "signature": "sig-1"}
FIRST = request_of(user("Hi"))
REPLY = message_of(THOUGHT, call("toolu_1"))
NEXT = request_of(user("Hi"), assistant(THOUGHT, call("toolu_1")), user([result("toolu_1")]))


def ask(rules: HistoryRules, body: Body, reply: Body | None = None) -> list[str]:
    examined = rules.examine(copy.deepcopy(body))
    if reply is not None:
        rules.answered(examined, reply)
    return examined.problems


def test_a_history_that_only_grows_is_accepted(rules: HistoryRules) -> None:
    assert ask(rules, FIRST, REPLY) == []
    assert ask(rules, NEXT, message_of(text("Done."), stop_reason="end_turn")) == []
    longer = [*NEXT["messages"], assistant(text("Done.")), user("Thanks")]
    assert ask(rules, NEXT | {"messages": longer}) == []


def test_a_request_sent_again_is_accepted(rules: HistoryRules) -> None:
    assert ask(rules, FIRST, REPLY) == []
    assert ask(rules, NEXT) == []
    assert ask(rules, FIRST, REPLY) == []
    assert ask(rules, NEXT) == []


def test_a_turn_with_the_keys_of_its_blocks_in_another_order_is_accepted(rules: HistoryRules) -> None:
    ask(rules, FIRST, REPLY)
    body = copy.deepcopy(NEXT)
    turn = body["messages"][1]["content"]
    turn[:] = [dict(reversed(block.items())) for block in turn]
    assert ask(rules, body) == []


def test_a_turn_without_its_blank_text_is_accepted(rules: HistoryRules) -> None:
    ask(rules, FIRST, message_of(text("\n"), THOUGHT, call("toolu_1")))
    assert ask(rules, NEXT) == []


def test_moving_cache_control_is_no_change(rules: HistoryRules) -> None:
    marker = {"cache_control": {"type": "ephemeral"}}
    assert (
        ask(rules, request_of(user([text("Hi") | marker]), system=[text("Be brief.") | marker]), REPLY) == []
    )
    body = copy.deepcopy(NEXT)
    body["messages"][2]["content"][0] |= marker
    assert ask(rules, body) == []
    assert ask(rules, NEXT) == []


def test_leaving_out_the_first_thinking_blocks_is_no_change(rules: HistoryRules) -> None:
    ask(rules, FIRST, REPLY)
    second = {"type": "thinking", "thinking": "Hm hm", "signature": "sig-2"}
    ask(rules, NEXT, message_of(second, call("toolu_2")))
    tail = user([result("toolu_2")])
    bare = [user("Hi"), assistant(call("toolu_1")), user([result("toolu_1")])]
    assert ask(rules, request_of(*bare, assistant(second, call("toolu_2")), tail)) == []
    assert ask(rules, request_of(*bare, assistant(call("toolu_2")), tail)) == []
    whole = NEXT["messages"]
    assert ask(rules, request_of(*whole, assistant(second, call("toolu_2")), tail)) == []
    found = ask(rules, request_of(*whole, assistant(call("toolu_2")), tail))
    assert found[0].startswith("messages.3: not what it was before")


def edited_input(body: Body) -> None:
    body["messages"][1]["content"][1]["input"] = {"a": 2, "b": 1}


def edited_thinking(body: Body) -> None:
    body["messages"][1]["content"][0]["thinking"] = "Hm!"


def edited_opening_block(body: Body) -> None:
    body["messages"][0]["content"] = [text("Hi")]


def added_null(body: Body) -> None:
    body["messages"][1]["content"][1]["toolset_name"] = None


def inserted_message(body: Body) -> None:
    body["messages"].insert(1, {"role": "system", "content": "Be kind."})


def reordered_tool(body: Body) -> None:
    body["tools"] = [dict(reversed(TOOL.items()))]


def added_tool(body: Body) -> None:
    body["tools"] = [TOOL, TOOL | {"name": "other"}]


def renamed_system(body: Body) -> None:
    body["system"] = "Be long."


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (edited_input, "messages.1: not what it was before"),
        (edited_thinking, "messages.1: not what it was before"),
        (added_null, "messages.1: not what it was before"),
        (edited_opening_block, "messages.0: not what it was before"),
        (inserted_message, "messages.2: this assistant turn was never sent by the API at this place"),
        (reordered_tool, "tools: changed since the first request"),
        (added_tool, "tools: changed since the first request"),
        (renamed_system, "messages.1: this turn is bound to a different conversation"),
    ],
)
def test_a_change_of_what_was_sent_is_a_violation(
    rules: HistoryRules, change: Callable[[Body], None], sentence: str
) -> None:
    ask(rules, FIRST, REPLY)
    body = copy.deepcopy(NEXT)
    change(body)
    found = ask(rules, body)
    assert len(found) == 1
    assert found[0].startswith(sentence)
    assert ask(rules, NEXT) == [], "a refused request leaves no trace"


def test_the_api_forgives_a_changed_prefix_when_asked_to_drop_bound_blocks(rules: HistoryRules) -> None:
    ask(rules, FIRST, REPLY)
    binding = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    assert ask(rules, NEXT | {"tools": [], "thinking": binding}) == []


def test_a_user_message_that_changed_is_shown_with_its_difference(rules: HistoryRules) -> None:
    ask(rules, FIRST, REPLY)
    ask(rules, NEXT)
    found = ask(rules, request_of(*NEXT["messages"][:2], user([result("toolu_1", content="unseen")])))
    assert found[0].startswith("messages.2: not what it was before in this conversation. It was ...")
    assert 'content":"seen"' in found[0]
    assert 'content":"unseen"' in found[0]


def test_a_conversation_may_fork_where_forks_are_allowed() -> None:
    rules = HistoryRules(forks=True)
    ask(rules, FIRST, REPLY)
    ask(rules, NEXT)
    assert ask(rules, request_of(*NEXT["messages"][:2], user([result("toolu_1", content="unseen")]))) == []
    body = copy.deepcopy(NEXT)
    edited_thinking(body)
    assert ask(rules, body) != []


def test_conversations_are_told_apart_by_the_function_given() -> None:
    rules = HistoryRules(conversation=lambda body, headers: headers["x-run"])
    assert rules.check(FIRST, {"x-run": "1"}) == []
    assert rules.check(request_of(user("Ho")), {"x-run": "2"}) == []
    assert rules.check(request_of(user("Ho")), {"x-run": "1"})[0].startswith(
        "messages.0: not what it was before"
    )


def test_a_history_from_before_the_server_is_accepted_and_then_frozen(rules: HistoryRules) -> None:
    assert ask(rules, NEXT) == []
    body = copy.deepcopy(NEXT)
    edited_thinking(body)
    assert ask(rules, body)[0].startswith("messages.1: not what it was before")


def test_only_a_turn_that_the_api_paused_may_come_last(rules: HistoryRules) -> None:
    ask(rules, FIRST, message_of(text("Searching."), stop_reason="pause_turn"))
    assert ask(rules, request_of(user("Hi"), assistant(text("Searching.")))) == []
    other = HistoryRules()
    ask(other, FIRST, message_of(text("Done."), stop_reason="end_turn"))
    assert "prefill" in ask(other, request_of(user("Hi"), assistant(text("Done."))))[0]


def test_a_finished_turn_is_not_gone_on_with(rules: HistoryRules) -> None:
    ask(rules, FIRST, message_of(text("Done."), stop_reason="end_turn"))
    found = ask(rules, request_of(user("Hi"), assistant(text("Done.")), assistant(text("More.")), user("?")))
    assert any("stopped for end_turn cannot be gone on with" in one for one in found)


@pytest.mark.parametrize(("is_error", "accepted"), [(False, False), (True, True)])
def test_the_tools_of_a_truncated_turn_are_not_run(
    rules: HistoryRules, is_error: bool, accepted: bool
) -> None:
    ask(rules, FIRST, message_of(call("toolu_1"), stop_reason="max_tokens"))
    answer = user([result("toolu_1", is_error=is_error)])
    found = ask(rules, request_of(user("Hi"), assistant(call("toolu_1")), answer))
    assert (found == []) is accepted


def test_pending_code_execution_needs_its_container(rules: HistoryRules) -> None:
    running = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution", "input": {}}
    ask(rules, FIRST, message_of(running, stop_reason="pause_turn", container={"id": "c1"}))
    body = request_of(user("Hi"), assistant(running))
    assert ask(rules, body)[0].startswith("container: container_id is required")
    assert ask(rules, body | {"container": "c1"}) == []


def test_a_caller_may_change_its_lists_after_a_check(rules: HistoryRules) -> None:
    body = copy.deepcopy(FIRST)
    rules.check(body)
    body["messages"][0]["content"] = "Ho"
    assert rules.check(FIRST) == []
