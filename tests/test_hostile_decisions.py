"""What people can say about a case that is meant to hurt: kept and told, or refused and nothing decided."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from anvil_django import (
    Decision,
    approvals,
    exactjson,
    start_run,
    tasks,
    tool,
)
from anvil_django.errors import DecisionError
from anvil_django.models import Approval, Run
from anvil_django.models import Decision as DecisionRow
from anvil_django.stores import DjangoStateStore
from anvil_django.testing import ScriptedMessagesAPI, say, tool_call

from .admin.teller import APPROVALS as APPROVAL_PAGES
from .admin.teller import logged_in
from .admin.teller import person as staff
from .hostile import (
    BLANK,
    IDENTIFIERS,
    LARGE,
    TEXTS,
    VALUES,
    WHOLE,
    Sly,
    mended,
    nested,
)
from .hostile_checks import markup_of_content, quiet, send, shown_everywhere
from .rest import APPROVALS, Client, client_of, person
from .world import registered_agent, reviewer

__all__ = ["quiet"]

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("quiet")]

ran: list[str] = []


@pytest.fixture(autouse=True)
def clean() -> None:
    ran.clear()


@tool(side_effect=True, requires_approval=True)
def obey(what: Any = None) -> str:
    """Do anything."""
    ran.append(exactjson.dumps(exactjson.clean(what)))
    return "obeyed"


@pytest.fixture
def owner() -> Client:
    return client_of(person("owner", "add_run", "view_run", "control_run", "decide_approval"))


@pytest.fixture
def case(messages_api: ScriptedMessagesAPI) -> Iterator[Any]:
    """A case to decide; a new one each time."""
    numbers = count()
    with registered_agent("obedient", tools=[obey]):
        messages_api.script(say(tool_call("obey", {"what": WHOLE})))

        def ask() -> Approval:
            Run.objects.all().delete()
            start_run("obedient", f"Go, {next(numbers)}.", run_id="r")
            tasks.advance("r")
            return Approval.objects.select_related("run", "call").get()

        yield ask


def test_every_text_as_a_reason_an_answer_and_an_edit(case: Any, messages_api: ScriptedMessagesAPI) -> None:
    rita, everything = reviewer(), "\n".join(TEXTS.values())
    messages_api.script(say("Done."))
    approvals.reject(case(), user=rita, reason=everything)
    tasks.advance("r")
    shown_everywhere("r")
    assert DecisionRow.objects.get().reason == mended(everything)

    for value in (VALUES["10 to the 5000"], VALUES["all texts"], VALUES["deep"], everything):
        approvals.answer(case(), user=rita, answer=value)
        tasks.advance("r")
        assert DecisionRow.objects.get().answer == exactjson.dumps(exactjson.encode(value))
        assert Run.objects.get().status == "done"
    approvals.approve(case(), user=rita, edited_input={"what": VALUES}, reason=everything)
    tasks.advance("r")
    assert ran == [exactjson.dumps(exactjson.encode({"what": VALUES})["what"])]
    shown_everywhere("r")


@pytest.mark.parametrize(
    "said",
    [
        {"reason": LARGE},
        {"answer": LARGE},
        {"edited_input": {"what": LARGE}},
        {"answer": object()},
        {"edited_input": {"what": Sly}},
        {"reason": 5},
        {"reviewer": "\x00" * 0},
    ],
    ids=["reason", "answer", "edit", "no answer", "no edit", "no reason", "nobody"],
)
def test_a_decision_that_cannot_be_kept_decides_nothing(case: Any, said: dict[str, Any]) -> None:
    approval = case()
    with pytest.raises(DecisionError) as refused:
        DjangoStateStore().decide(
            "r", approval.call.call_id, Decision(**{"approved": True, "reviewer": "rita", **said})
        )

    assert len(refused.value.message) < 1000
    approval.refresh_from_db()
    assert (approval.status, DecisionRow.objects.count(), ran) == ("pending", 0, [])


def test_a_decision_over_http_is_stored_or_a_problem(case: Any, owner: Client) -> None:
    url = f"{APPROVALS}{case().pk}/"
    for body in (
        {"reason": text}
        for text in (TEXTS["nul"], TEXTS["a high surrogate"], *BLANK.values(), LARGE[:20_000])
    ):
        assert send(owner, f"{url}reject/", body).status_code == 422, body
    for value in (nested(150), "a\ud800", "x" * 1_000_001):
        for verb, field in (("answer", "answer"), ("approve", "answer"), ("approve", "edited_input")):
            sent = {field: {"what": value} if field == "edited_input" else value}
            assert send(owner, f"{url}{verb}/", sent).status_code in (413, 422), field
    for digest in (*TEXTS.values(), *IDENTIFIERS.values()):
        assert send(owner, f"{url}approve/", {"digest": digest}).status_code in (409, 422)
    assert DecisionRow.objects.count() == 0
    for verb, body in (("reject", {"reason": TEXTS["a script"] + TEXTS["right to left"]}),):
        assert send(owner, f"{url}{verb}/", body).status_code == 200
    shown_everywhere("r")


def test_every_name_of_a_person_is_kept_and_shown(case: Any) -> None:
    for text in (TEXTS["nul"], TEXTS["a low surrogate"], TEXTS["out of an attribute"], "hostile" * 1000):
        approval = case()
        decision = Decision(approved=False, reviewer=text, reason="No.")
        DjangoStateStore().decide("r", approval.call.call_id, decision)
        assert DecisionRow.objects.get().reviewer == mended(text)[:200]
    shown_everywhere("r")


EDITS = {
    "deep": f'{{"what": {"[" * 900}{"]" * 900}}}',
    "deeper": f'{{"what": {"[" * 5000}{"]" * 5000}}}',
    "half a character": '{"what": "\\ud800"}',
    "nul": '{"what": "\\u0000"}',
    "not a number": '{"what": NaN}',
    "1e400": '{"what": 1e400}',
    "10 to the 5000": f'{{"what": 1{"0" * 5000}}}',
    "a list": "[]",
}


@pytest.mark.parametrize("edited", EDITS.values(), ids=EDITS.keys())
def test_an_edit_in_the_admin_that_cannot_be_kept_is_refused_on_the_page(case: Any, edited: str) -> None:
    approval = case()
    admin = logged_in(staff("rita", "decide_approval", "view_approval"))
    sent = {"arguments": edited, "reason": "", "confirmed": "yes", "seen": f"{approval.pk}:{approval.digest}"}

    response = admin.post(f"{APPROVAL_PAGES}{approval.pk}/decide/edit/", sent)

    assert response.status_code == 200
    assert "errorlist" in response.text
    assert markup_of_content(response.text) == []
    assert DecisionRow.objects.count() == 0
