"""What a tool can return, raise and ask that is meant to hurt: told to the model, and never a lost record."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from anvil_django import (
    ApprovalRequiredError,
    exactjson,
    tool,
)
from anvil_django.models import Run, ToolCall
from anvil_django.stores import DjangoStateStore
from anvil_django.testing import Kill, ScriptedMessagesAPI, kill_at, say, tool_call

from .driving import agent, results, resume, run, stored
from .hostile import (
    BLANK,
    ERRORS,
    LARGE,
    TEXTS,
    UNSTORABLE,
    VALUES,
    Sly,
    mended,
)
from .hostile_checks import quiet, requests_are_valid, shown_everywhere
from .world import world

__all__ = ["quiet"]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("quiet")]

ran: list[str] = []
given: list[Any] = []


@tool(side_effect=True)
def give(number: int) -> Any:
    """Give what the test has prepared."""
    ran.append(f"give {number}")
    return _made(given[number])


@tool(side_effect=True, atomic=True)
def give_atomically(number: int) -> Any:
    """The same in a transaction."""
    ran.append(f"atomic {number}")
    return _made(given[number])


@tool
def read(number: int) -> Any:
    """The same without an effect."""
    return _made(given[number])


def _made(value: Any) -> Any:
    value = value() if callable(value) else value
    if (isinstance(value, Exception) and not isinstance(value, ValueError | AssertionError)) or _raises:
        raise value
    return value


_raises: list[int] = []
GIVERS = agent(give, give_atomically, read)


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    yield
    ran.clear()
    given.clear()
    _raises.clear()
    world.effects.clear()


def give_all(messages_api: ScriptedMessagesAPI, values: list[Any]) -> list[dict[str, Any]]:
    """Have every kind of tool give every value; a crash before the model hears of it changes nothing."""
    given.extend(values)
    calls = [
        tool_call(name, {"number": number})
        for number in range(len(values))
        for name in ("give", "give_atomically", "read")
    ]
    messages_api.script(say(*calls), say("Done."))
    with pytest.raises(Kill), kill_at("model.before#2"):
        run(GIVERS, DjangoStateStore())
    begun = list(ran)
    Run.objects.update(lease_until=None)
    before = stored(DjangoStateStore()).messages
    done = resume(GIVERS, DjangoStateStore())
    assert (done.status, ran) == ("done", begun), "what is done is not done again"
    assert len(ran) == 2 * len(values)
    assert set(ToolCall.objects.values_list("status", flat=True)) == {"done"}
    assert exactjson.dumps(done.messages[: len(before)]) == exactjson.dumps(before)
    assert exactjson.dumps(stored(DjangoStateStore()).messages) == exactjson.dumps(done.messages)
    requests_are_valid([request.body for request in messages_api.requests])
    shown_everywhere("r")
    return results(done)


def test_every_text_that_a_tool_returns_is_its_result(messages_api: ScriptedMessagesAPI) -> None:
    told = give_all(messages_api, [*TEXTS.values(), *BLANK.values()])

    expected = [mended(text) if text.strip() else "(no output)" for text in given]
    assert [result["content"] for result in told[::3]] == expected
    assert [result["content"] for result in told[1::3]] == expected
    assert not any(result.get("is_error") for result in told)


def test_every_value_that_a_tool_returns_is_its_result(messages_api: ScriptedMessagesAPI) -> None:
    told = give_all(messages_api, list(VALUES.values()))

    for value, result in zip(VALUES.values(), told[::3], strict=True):
        clean = exactjson.encode(value)
        assert result["content"] == (clean if isinstance(clean, str) else exactjson.readable(clean))


def test_what_cannot_be_stored_is_told_and_its_effect_is_recorded(messages_api: ScriptedMessagesAPI) -> None:
    told = give_all(messages_api, list(UNSTORABLE.values()))

    assert all(result["is_error"] for result in told)
    for result in (*told[::3], *told[1::3]):
        assert "effect has happened" in result["content"]
        assert "Do not call it again" in result["content"]


def test_every_error_of_a_tool_is_told(messages_api: ScriptedMessagesAPI) -> None:
    _raises.append(1)
    told = give_all(messages_api, list(ERRORS.values()))

    assert all(result["is_error"] and result["content"].strip() for result in told)
    texts = [mended(text).strip() for text in TEXTS.values()]
    assert [result["content"] for result in told[::3]][: len(texts)] == [
        f"ValueError: {text}" for text in texts
    ]
    assert max(len(result["content"]) for result in told) <= 2_000


def test_megabytes_are_cut_for_the_model_and_the_effect_is_recorded(
    messages_api: ScriptedMessagesAPI,
) -> None:
    told = give_all(messages_api, [LARGE, {"hostile": LARGE}])

    assert all(90_000 < len(result["content"]) <= 100_000 for result in told)


MARKED = {"type": "text", "text": "hostile", "cache_control": {"type": "ephemeral"}}


def test_blocks_that_are_none_are_sent_as_text_and_markers_of_the_cache_are_left_out(
    messages_api: ScriptedMessagesAPI,
) -> None:
    fakes = [
        [{"type": "text", "text": "hostile", "extra": 1}],
        [{"type": "image", "source": {}, "hostile": 1}],
        [{"type": "thinking", "thinking": "hostile", "signature": "x"}],
        [{"type": ["text"], "text": "hostile"}],
    ]
    told = give_all(messages_api, [[MARKED] * 9, *fakes])

    assert told[0]["content"] == [{"type": "text", "text": "hostile"}] * 9
    assert [json.loads(result["content"]) for result in told[3::3]] == fakes


# What it shows to the person it asks for.


@tool(side_effect=True)
def sign(number: int, what: Any = None) -> str:
    """Sign something, once a person has seen it."""
    ran.append(exactjson.dumps(exactjson.clean(what)))
    raise ApprovalRequiredError(given[number])


def test_any_payload_waits_for_its_person_and_is_shown(messages_api: ScriptedMessagesAPI) -> None:
    odd = [VALUES[name] for name in ("deep", "10 to the 5000", "hostile keys", "all texts")]
    given.extend([*odd, UNSTORABLE["a cycle"], UNSTORABLE["a text that fails"], LARGE, Sly()])
    values = [value() if callable(value) else value for value in given]
    given[:] = values
    messages_api.script(say(*(tool_call("sign", {"number": i}) for i in range(len(values)))))

    waiting = run(agent(sign), DjangoStateStore())

    assert (waiting.status, len(waiting.pending)) == ("suspended", len(values))
    assert stored(DjangoStateStore()).pending == waiting.pending
    shown_everywhere("r")
