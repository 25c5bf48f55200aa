"""What callers can send in that is meant to hurt: stored and sent back, or refused with a reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.urls import reverse
from django.utils.html import escape

from anvil_django import (
    exactjson,
    runs,
    start_run,
    tasks,
)
from anvil_django.errors import AnvilError, BadInputError, TooLargeError, UnknownRunError
from anvil_django.identity import check_idempotency_key, check_run_id
from anvil_django.model_errors import clean_detail
from anvil_django.models import Run, Steering
from anvil_django.stores import DjangoStateStore
from anvil_django.testing import Kill, ScriptedMessagesAPI, kill_at, say, tool_call

from .admin.teller import logged_in
from .admin.teller import person as staff
from .driving import agent, run, stored
from .hostile import (
    BLANK,
    IDENTIFIERS,
    LARGE,
    TEXTS,
    VALUES,
    mended,
)
from .hostile_checks import markup_of_content, quiet, requests_are_valid, send, shown_everywhere
from .rest import APPROVALS, RUNS, Client, client_of, person, problem
from .world import registered_agent

__all__ = ["quiet"]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("quiet")]

USER = {"role": "user"}


def all_as_blocks() -> list[dict[str, Any]]:
    return [{"type": "text", "text": text} for text in TEXTS.values()]


def by_two_workers(run_id: str, messages_api: ScriptedMessagesAPI, *, at: str = "model.before#2") -> None:
    """Advance the run; the first worker dies at a boundary, and another one goes on from what is stored."""
    with pytest.raises(Kill), kill_at(at):
        tasks.advance(run_id)
    Run.objects.filter(run_id=run_id).update(lease_until=None)
    assert len(list(runs.recover(run_id=run_id))) == 1
    before = DjangoStateStore().load(run_id)
    assert before is not None
    tasks.advance(run_id)
    after = DjangoStateStore().load(run_id)
    assert after is not None
    assert exactjson.dumps(after.messages[: len(before.messages)]) == exactjson.dumps(before.messages)
    requests_are_valid([request.body for request in messages_api.requests])
    shown_everywhere(run_id)


# What starts a run.


@pytest.fixture
def worldly() -> Iterator[None]:
    with registered_agent():
        yield


@pytest.mark.usefixtures("worldly")
def test_every_text_as_input_and_metadata_is_stored_shown_and_sent(
    messages_api: ScriptedMessagesAPI, client: Any
) -> None:
    messages_api.script(say(tool_call("look", {"thing": "a"})), say("Done."))
    start_run("worldly", [{**USER, "content": all_as_blocks()}], run_id="r", metadata={"all": TEXTS})

    by_two_workers("r", messages_api)

    sent = [block["text"] for block in messages_api.requests[-1].body["messages"][0]["content"]]
    assert sent == [mended(text) for text in TEXTS.values()]
    assert stored(DjangoStateStore()).metadata == exactjson.clean({"all": TEXTS})


@pytest.mark.usefixtures("worldly")
def test_every_text_as_a_message_to_a_live_run_gets_its_place(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say("Done."))
    start_run("worldly", "Go.", run_id="r")
    for text in TEXTS.values():
        runs.say("r", text, by=text)
    tasks.advance("r")

    texts = [mended(text) for text in TEXTS.values()]
    history = stored(DjangoStateStore()).messages
    assert [message["content"] for message in history[1:-1]] == texts
    assert list(Steering.objects.values_list("sender", flat=True)) == texts
    shown_everywhere("r")


@pytest.mark.usefixtures("worldly")
@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES.keys())
def test_any_value_in_a_block_or_in_metadata_is_stored_or_refused(value: Any) -> None:
    messages = [{**USER, "content": [{"type": "text", "text": "Hi.", "more": value}]}]
    run = start_run("worldly", messages, run_id="r")
    assert exactjson.dumps(stored(DjangoStateStore()).messages) == exactjson.dumps(exactjson.clean(messages))
    Run.objects.all().delete()

    try:
        run = start_run("worldly", "Hi.", run_id="r", metadata={"value": value})
    except TooLargeError:
        assert not Run.objects.exists()
    else:
        assert exactjson.dumps(exactjson.encode({"value": value})) == run.metadata


BAD_MESSAGES: dict[str, Any] = {
    "a role that is a list": [{"role": ["user"], "content": "Hi."}],
    "a role that is an object": [{"role": {}, "content": "Hi."}],
    "a long role": [{"role": "hostile" * 100_000, "content": "Hi."}],
    "content that is bytes": [{**USER, "content": b"hostile"}],
    "a block without a type": [{**USER, "content": [{"text": "hostile"}]}],
    "a type that is a list": [{**USER, "content": [{"type": ["text"]}]}],
    "a result of nothing": [
        {**USER, "content": [{"type": "tool_result", "tool_use_id": ["hostile"] * 9999}]}
    ],
    "results of nothing": [{**USER, "content": [{"type": "tool_result", "tool_use_id": "x" * 99_999}]}],
    "a message that is a text": ["hostile"],
    "nothing": [],
    "a number": 5,
    **{name: [{**USER, "content": [{"type": "text", "text": text}]}] for name, text in BLANK.items()},
}


@pytest.mark.usefixtures("worldly")
@pytest.mark.parametrize("messages", BAD_MESSAGES.values(), ids=BAD_MESSAGES.keys())
def test_what_is_no_input_is_refused_with_a_short_sentence(messages: Any) -> None:
    with pytest.raises(BadInputError) as refused:
        start_run("worldly", messages)

    assert 10 < len(refused.value.message) < 1000
    assert not Run.objects.exists()


@pytest.mark.usefixtures("worldly")
@pytest.mark.parametrize("name", IDENTIFIERS.values(), ids=IDENTIFIERS.keys())
def test_an_identifier_is_taken_as_it_is_or_refused_and_never_found(name: str) -> None:
    for check in (check_run_id, check_idempotency_key):
        try:
            assert check(name) == name
        except BadInputError:
            assert name != "a"
    try:
        start_run("worldly", "Hi.", run_id=name, idempotency_key=name)
    except BadInputError:
        assert not Run.objects.exists()
    for act in (runs.get, runs.cancel, runs.resume, runs.retry, runs.pause, runs.fork):
        with pytest.raises(UnknownRunError):
            act(f"x{name}")  # type: ignore[operator]
    with pytest.raises(UnknownRunError):
        runs.say(f"x{name}", "Hi.")
    with pytest.raises(AnvilError, match="No agent named"):
        start_run(name, "Hi.")


def test_a_run_id_of_thousands_of_digits_is_refused() -> None:
    with pytest.raises(BadInputError, match="at most 200"):
        check_run_id(10**5000)


@pytest.mark.usefixtures("worldly")
def test_whoever_asks_may_have_any_name() -> None:
    start_run("worldly", "Hi.", run_id="r")
    for text in [*TEXTS.values(), "hostile" * 1000]:
        runs.pause("r", by=text)
        runs.resume("r", by=text)
        assert Run.objects.get().requested_by == mended(text)[:200]
    runs.cancel("r", by=TEXTS["nul"])


# What comes over HTTP.


@pytest.fixture
def owner() -> Client:
    return client_of(person("owner", "add_run", "view_run", "control_run", "decide_approval"))


@pytest.mark.usefixtures("worldly")
def test_every_text_over_http_is_stored_or_a_problem(
    owner: Client, messages_api: ScriptedMessagesAPI
) -> None:
    messages_api.script(say("Done."))
    body = {"agent": "worldly", "input": all_as_blocks(), "metadata": {"all": TEXTS}, "run_id": "r"}
    assert send(owner, RUNS, body).status_code == 201
    for text in TEXTS.values():
        assert send(owner, f"{RUNS}r/messages/", {"content": text}).status_code == 202
    tasks.advance("r")
    shown_everywhere("r")

    for text in [TEXTS["astral"], TEXTS["a high surrogate"], *IDENTIFIERS.values()]:
        for field in ("agent", "run_id"):
            refused = send(owner, RUNS, {"agent": "worldly", "input": "Hi.", field: text})
            assert refused.status_code in (200, 201, 422), (field, text)
        key = text.encode("utf-8", "replace").decode("latin-1")
        headers = {"HTTP_IDEMPOTENCY_KEY": key}
        for url, sent in (
            (RUNS, {"agent": "worldly", "input": "Hi."}),
            (f"{RUNS}r/messages/", {"content": "a"}),
        ):
            assert send(owner, url, sent, **headers).status_code in (200, 201, 202, 422)


@pytest.mark.usefixtures("worldly")
def test_no_address_and_no_filter_breaks_the_lists(owner: Client) -> None:
    start_run("worldly", "Hi.", run_id="r")
    admin = logged_in(staff("looking", "view_run", "view_approval"))
    for text in (TEXTS["nul"], TEXTS["a script"]):
        for name in ("agent", "creator", "stop_reason", "cursor", "ordering", "status", "created_after"):
            assert owner.get(RUNS, {name: text}).status_code in (200, 422), (name, text)
        for name in ("agent", "tool", "run_id", "kind", "status", "mine"):
            assert owner.get(APPROVALS, {name: text}).status_code in (200, 422), (name, text)
        for name in (
            "agent",
            "status__exact",
            "stop_reason__exact",
            "q",
            "tool",
            "claim",
            "for",
            "o",
            "p",
            "before",
        ):
            for row in ("run", "approval"):
                response = admin.get(reverse(f"admin:anvil_django_{row}_changelist"), {name: text})
                assert response.status_code in (200, 302, 400, 404), (name, text)
    for path in ("a%00b", "..%2f..%2fetc", "%3Cscript%3E", "a%0d%0ab"):
        problem(owner.get(f"{RUNS}{path}/"), 404, "unknown_run") if "%2f" not in path else None
        assert owner.get(f"{APPROVALS}{path}/").status_code == 404
        for row in ("run", "approval"):
            assert admin.get(f"/admin/anvil_django/{row}/{path}/change/").status_code in (302, 404)


# What an agent is made of, and what the check is worth.


def test_an_agent_cannot_have_a_name_that_no_page_can_show() -> None:
    for name in ("", "a\x00", "a\ud800", "a\u202eb", "a\n", "x" * 101):
        with pytest.raises(AnvilError, match="printable"):
            agent(name=name)


def test_a_system_prompt_of_anything_is_frozen_as_it_is_sent(messages_api: ScriptedMessagesAPI) -> None:
    messages_api.script(say("Done."))
    everything = "\n".join(TEXTS.values())

    done = run(agent(system=everything), DjangoStateStore())

    assert done.status == "done"
    assert messages_api.requests[0].body["system"][0]["text"] == mended(everything)
    shown_everywhere("r")


def test_what_the_api_itself_says_is_stored_as_far_as_it_fits() -> None:
    for text in [*TEXTS.values(), LARGE[:100_000]]:
        said = clean_detail(text)
        assert said == mended(said)
        assert len(said) <= 500


@pytest.mark.parametrize("name", ["an element", "a script", "out of an attribute", "out of a script"])
def test_the_check_of_pages_finds_what_it_looks_for(name: str) -> None:
    assert markup_of_content(f"<p>{TEXTS[name]}</p>")
    assert markup_of_content(f"<p>{escape(TEXTS[name])}</p>") == []
