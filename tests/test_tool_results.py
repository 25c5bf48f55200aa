"""What a tool returns reaches the model as it is stored, however odd it is."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from anvil_django import ToolContext, exactjson, tool
from anvil_django.stores import MemoryStateStore, StateStore
from anvil_django.testing import ScriptedMessagesAPI, say, tool_call
from example_project.shop.models import Order

from .driving import agent, result, run, stored

pytestmark = pytest.mark.usefixtures("clock")


@pytest.fixture
def memory() -> MemoryStateStore:
    return MemoryStateStore()


HOSTILE: list[tuple[str, Any, str]] = [
    ("nul", "a\x00b", "a\ufffdb"),
    ("surrogate", "a\ud800b", "a\ufffdb"),
    ("nan", {"x": float("nan"), "y": float("-inf")}, '{"x":"NaN","y":"-Infinity"}'),
    ("huge", [10**5000], '["[left out: an integer of more than 4300 digits]"]'),
    ("none", None, "(no output)"),
    ("blank", " \n", "(no output)"),
    ("empty", [], "[]"),
    ("decimal", {"amount": Decimal("1.10")}, '{"amount":"1.10"}'),
    ("time", datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
    ("unicode", {"ä": "\u2028\U0001f600"}, '{"ä":"\u2028\U0001f600"}'),
]


@pytest.mark.parametrize(("value", "told"), [case[1:] for case in HOSTILE], ids=[case[0] for case in HOSTILE])
def test_any_result_is_stored_and_sent_as_the_same_text(
    store: StateStore, messages_api: ScriptedMessagesAPI, value: Any, told: str
) -> None:
    ran: list[str] = []

    @tool(side_effect=True)
    def give(ctx: ToolContext) -> Any:
        """Give something odd."""
        ran.append(ctx.call_id)
        return value

    messages_api.script(say(tool_call("give")), say("Done."))

    done = run(agent(give), store)

    assert (done.status, len(ran)) == ("done", 1)
    assert result(done) == {"type": "tool_result", "tool_use_id": ran[0], "content": told}
    assert exactjson.dumps(stored(store).messages) == exactjson.dumps(done.messages)
    sent = messages_api.requests[1].body["messages"]
    assert exactjson.dumps(sent) == exactjson.dumps(done.messages[:3])


def test_a_result_nested_five_thousand_deep_is_made_safe_before_it_can_fail_the_record(
    store: StateStore, messages_api: ScriptedMessagesAPI
) -> None:
    @tool(side_effect=True)
    def dig() -> Any:
        """Give a deep list."""
        deep: list[Any] = []
        for _ in range(5000):
            deep = [deep]
        return deep

    messages_api.script(say(tool_call("dig")), say("Done."))

    done = run(agent(dig), store)

    assert "nested more than 100 levels" in result(done)["content"]
    assert "is_error" not in result(done)


def test_a_model_instance_is_refused_with_the_path_and_the_effect_is_not_repeated(
    memory: MemoryStateStore, messages_api: ScriptedMessagesAPI
) -> None:
    ran: list[str] = []

    @tool(side_effect=True)
    def order(number: str) -> Any:
        """Give an order."""
        ran.append(number)
        return {"orders": [Order(number=number)]}

    messages_api.script(say(tool_call("order", {"number": "A-1"})), say("Done."))

    done = run(agent(order), memory)

    assert ran == ["A-1"]
    assert result(done)["is_error"] is True
    assert "result.orders[0] is a model instance (shop.Order)" in result(done)["content"]
    assert "effect has happened" in result(done)["content"]


def test_a_large_result_is_cut_with_a_note(store: StateStore, messages_api: ScriptedMessagesAPI) -> None:
    @tool
    def read() -> str:
        """Read a large file."""
        return "x" * 5_000_000

    messages_api.script(say(tool_call("read")), say("Done."))

    content = result(run(agent(read), store))["content"]

    assert 99_990 < len(content) <= 100_000
    assert content.endswith("of 5000000 characters]")


def test_content_blocks_are_passed_on(store: StateStore, messages_api: ScriptedMessagesAPI) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}

    @tool
    def picture() -> Any:
        """Give a picture."""
        return [{"type": "text", "text": "Look:"}, {"type": "text", "text": "  "}, image]

    messages_api.script(say(tool_call("picture")), say("Done."))

    done = run(agent(picture), store)

    assert result(done)["content"] == [{"type": "text", "text": "Look:"}, image]
    assert stored(store).messages == done.messages


def test_an_async_tool_is_awaited(memory: MemoryStateStore, messages_api: ScriptedMessagesAPI) -> None:
    @tool
    async def fetch(url: str, ctx: ToolContext) -> str:
        """Fetch a page."""
        return f"{url} for {ctx.run_id}"

    messages_api.script(say(tool_call("fetch", {"url": "u"})), say("Done."))

    assert result(run(agent(fetch), memory))["content"] == "u for r"
