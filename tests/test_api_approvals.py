"""The queue over REST: every verdict, claims, filters, who may what, and what a list costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connection
from django.test.utils import CaptureQueriesContext
from rest_framework.test import APIClient

from anvil_django import approvals, exactjson, tasks
from anvil_django.clock import FixedClock
from anvil_django.models import Approval
from anvil_django.testing import ScriptedMessagesAPI, say

from . import cases
from .cases import ask, ask_for_money, go_on
from .rest import APPROVALS, client_of, errors, person, problem

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def bank() -> Iterator[None]:
    with cases.bank():
        yield


@pytest.fixture
def rita() -> Any:
    return person("rita", "decide_approval", groups=("Tellers",))


@pytest.fixture
def reviewer(rita: Any) -> APIClient:
    return client_of(rita)


def teller(name: str) -> APIClient:
    return client_of(person(name, "decide_approval", groups=("Tellers",)))


def post(client: APIClient, approval: Approval, verb: str, **body: Any) -> Any:
    return client.post(f"{APPROVALS}{approval.pk}/{verb}/", body, format="json")


def get(client: APIClient, approval: Approval) -> dict[str, Any]:
    body: dict[str, Any] = client.get(f"{APPROVALS}{approval.pk}/").json()
    return body


# Verdicts.


def test_an_answer_stands_in_the_tools_place(messages_api: ScriptedMessagesAPI, reviewer: APIClient) -> None:
    approval = ask(messages_api)

    body = post(reviewer, approval, "answer", answer={"did": "it myself"}, reason="Faster.").json()

    (decision,) = body["decisions"]
    assert (decision["verdict"], decision["approved"]) == ("answered", True)
    assert (decision["answer"], decision["reason"]) == ({"did": "it myself"}, "Faster.")
    assert go_on(messages_api, approval) == '"{\\"did\\":\\"it myself\\"}"'
    assert cases.done == []


@pytest.mark.parametrize(
    ("body", "status", "verdict", "told", "done"),
    [
        (
            {"verdict": "happened", "result": "sent to ann, no. 7"},
            "approved",
            "happened",
            "sent to ann, no. 7",
            [],
        ),
        ({"verdict": "not_happened"}, "approved", "not_happened", "sent to ann", ["mailed ann"]),
        ({"verdict": "unknown", "reason": "No log."}, "rejected", "unknown", "effect is unknown", []),
    ],
    ids=["happened", "not happened", "unknown"],
)
def test_a_call_in_doubt_is_settled(
    messages_api: ScriptedMessagesAPI,
    reviewer: APIClient,
    body: dict[str, Any],
    status: str,
    verdict: str,
    told: str,
    done: list[str],
) -> None:
    approval = ask(messages_api, "mail")

    answer = post(reviewer, approval, "settle", **body).json()

    assert (answer["kind"], answer["status"]) == ("in_doubt", status)
    assert answer["decisions"][0]["verdict"] == verdict
    assert told in go_on(messages_api, approval)
    assert cases.done == done


@pytest.mark.parametrize(
    ("body", "verdict", "told", "then"),
    [
        # Which is not enough: the next question follows.
        ({}, "approved", "max_cost was raised by 1E-7.", "suspended"),
        ({"edited_input": {"raise_by": "0.50"}}, "edited", "max_cost was raised by 0.50.", "done"),
    ],
    ids=["by as much again", "by a named amount"],
)
def test_a_limit_is_raised(
    messages_api: ScriptedMessagesAPI,
    reviewer: APIClient,
    body: dict[str, Any],
    verdict: str,
    told: str,
    then: str,
) -> None:
    approval = ask_for_money(messages_api)
    asked = get(reviewer, approval)
    assert (asked["kind"], asked["tool"], asked["input"]["raise_by"]) == ("limit", "max_cost", "1E-7")
    assert not {"answer", "settle"} & set(asked["links"])

    answer = post(reviewer, approval, "approve", **body).json()

    assert (answer["status"], answer["decisions"][0]["verdict"]) == ("approved", verdict)
    if then == "done":
        messages_api.script(say("Understood."), match="[r1]")
    assert tasks.advance("r1") == then
    approval.call.refresh_from_db()
    assert exactjson.loads(approval.call.result) == told


def test_a_limit_that_is_not_raised_ends_the_run(
    messages_api: ScriptedMessagesAPI, reviewer: APIClient
) -> None:
    approval = ask_for_money(messages_api)

    post(reviewer, approval, "reject", reason="Enough.")

    assert tasks.advance("r1") == "done"
    approval.run.refresh_from_db()
    assert approval.run.stop_reason == "max_cost"


@pytest.mark.parametrize(
    ("name", "verb", "body", "field"),
    [
        ("deploy", "approve", {"edited_input": {"version": 5}}, "edited_input"),
        ("deploy", "settle", {"verdict": "not_happened"}, ""),
        ("mail", "approve", {"edited_input": {"to": "bob"}}, "edited_input"),
        ("mail", "settle", {"verdict": "happened"}, "result"),
        ("mail", "settle", {"verdict": "not_happened", "result": "x"}, "result"),
        ("mail", "settle", {"verdict": "unknown"}, "reason"),
        ("spend", "answer", {"answer": "x"}, "answer"),
        ("spend", "approve", {"edited_input": {"raise_by": "much"}}, "edited_input.raise_by"),
        ("spend", "approve", {"edited_input": {"raise_by": "-1"}}, "edited_input.raise_by"),
        ("spend", "approve", {"edited_input": {"raise_by": "1", "to": "me"}}, "edited_input"),
    ],
)
def test_a_decision_that_does_not_fit_the_case_is_422_and_names_the_field(
    messages_api: ScriptedMessagesAPI,
    reviewer: APIClient,
    name: str,
    verb: str,
    body: dict[str, Any],
    field: str,
) -> None:
    approval = ask_for_money(messages_api) if name == "spend" else ask(messages_api, name)

    answer = problem(post(reviewer, approval, verb, **body), 422, "decision_unfit")

    told = [(error["field"], error["code"], error["detail"]) for error in answer.get("errors", [])]
    assert told == ([(field, "decision_unfit", answer["detail"])] if field else [])
    assert get(reviewer, approval)["status"] == "pending"
    assert not approval.decisions.exists()


@pytest.mark.parametrize(
    ("verb", "body", "wrong"),
    [
        ("answer", {}, {"answer": "required"}),
        ("answer", {"answer": None}, {"answer": "null"}),
        ("answer", {"answer": "x", "reviewer": "boss"}, {"reviewer": "unknown_field"}),
        ("settle", {}, {"verdict": "required"}),
        ("settle", {"verdict": "maybe"}, {"verdict": "invalid_choice"}),
        ("settle", {"verdict": "happened", "result": None}, {"result": "null"}),
        ("settle", {"verdict": "approved"}, {"verdict": "invalid_choice"}),
        ("claim", {"user": "boss"}, {"user": "unknown_field"}),
        ("release", {"force": True}, {"force": "unknown_field"}),
    ],
)
def test_a_body_that_is_not_clear_is_refused(
    messages_api: ScriptedMessagesAPI,
    reviewer: APIClient,
    verb: str,
    body: dict[str, Any],
    wrong: dict[str, str],
) -> None:
    approval = ask(messages_api, "mail")

    assert errors(post(reviewer, approval, verb, **body)) == wrong
    approval.refresh_from_db()
    assert (approval.status, approval.claimed_by) == ("pending", None)


def test_two_people_have_to_agree_and_an_edit_begins_a_new_round(
    messages_api: ScriptedMessagesAPI, reviewer: APIClient
) -> None:
    approval = ask(messages_api, "close")
    second = teller("tom")

    first = post(reviewer, approval, "approve").json()
    assert (first["status"], first["needed"], first["agreed"], first["proposal"]) == ("pending", 2, 1, None)
    assert (first["may_decide"], first["why_not"]) == (
        False,
        "You have agreed to this already; it needs another person too.",
    )
    edited = post(second, approval, "approve", edited_input={"account": "DE-2"}).json()
    assert (edited["status"], edited["agreed"], edited["proposal"]) == ("pending", 1, {"account": "DE-2"})
    again = post(reviewer, approval, "approve").json()

    assert (again["status"], again["agreed"]) == ("approved", 2)
    assert [d["verdict"] for d in again["decisions"]] == ["approved", "edited", "edited"]
    go_on(messages_api, approval)
    assert cases.done == ["closed DE-2"]


@pytest.mark.parametrize(
    ("verb", "body"), [("approve", {}), ("answer", {"answer": "Closed."})], ids=["approve", "answer"]
)
def test_a_yes_with_the_digest_that_was_read_is_to_nothing_newer(
    messages_api: ScriptedMessagesAPI, reviewer: APIClient, verb: str, body: dict[str, Any]
) -> None:
    approval = ask(messages_api, "close")
    read = get(reviewer, approval)["digest"]
    post(teller("tom"), approval, "approve", edited_input={"account": "DE-2"})

    refused = problem(post(reviewer, approval, verb, digest=read, **body), 409, "changed_since_read")

    assert refused["detail"] == (
        "Somebody changed the arguments of 'close' since you read the case. Read it again."
    )
    assert get(reviewer, approval)["agreed"] == 1
    again = get(reviewer, approval)["digest"]
    assert again != read
    assert post(reviewer, approval, "approve", digest=again).json()["status"] == "approved"


# Claims.


def test_a_claim_keeps_others_from_deciding_until_it_is_released(
    messages_api: ScriptedMessagesAPI, reviewer: APIClient, clock: FixedClock
) -> None:
    approval = ask(messages_api)
    other = teller("tom")

    mine = post(reviewer, approval, "claim").json()
    assert (mine["claimed_by"], mine["claimed_at"], mine["may_decide"]) == (
        "rita",
        "2026-01-01T00:00:00Z",
        True,
    )
    theirs = get(other, approval)
    assert (theirs["claimed_by"], theirs["may_decide"], theirs["why_not"]) == (
        "rita",
        False,
        "It is claimed by rita, who is reading it.",
    )
    for verb in ("approve", "claim", "release"):
        body = problem(post(other, approval, verb), 409, "claimed")
        assert body["claimed_by"] == "rita"
        assert "decided_by" not in body
    assert post(reviewer, approval, "release").json()["claimed_by"] == ""
    assert post(other, approval, "approve").json()["status"] == "approved"
    problem(post(reviewer, approval, "claim"), 409, "already_decided")


def test_a_claim_that_is_over_is_none(
    messages_api: ScriptedMessagesAPI, reviewer: APIClient, clock: FixedClock
) -> None:
    approval = ask(messages_api)
    other = teller("tom")
    post(reviewer, approval, "claim")
    clock.advance(901)

    seen = get(other, approval)

    assert (seen["claimed_by"], seen["claimed_at"], seen["may_decide"]) == ("", None, True)
    assert post(other, approval, "claim").json()["claimed_by"] == "tom"


# Who.


VERBS: dict[str, dict[str, Any]] = {
    "approve": {},
    "reject": {"reason": "No."},
    "answer": {"answer": "x"},
    "settle": {"verdict": "not_happened"},
    "claim": {},
    "release": {},
}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("who", ["anonymous", "without permission", "view-only", "requester", "outsider"])
def test_who_may_not_decide_has_no_effect_and_is_told_why(
    messages_api: ScriptedMessagesAPI, verb: str, who: str
) -> None:
    clara = person("clara", "decide_approval", groups=("Tellers",))
    approval = ask(messages_api, "mail", user=clara)
    permission = "You need the permission “Can decide approvals”."
    client, code, sentence = {
        "anonymous": lambda: (APIClient(), "not_authenticated", "Authentication credentials"),
        "without permission": lambda: (
            client_of(person("paul", groups=("Tellers",))),
            "permission_denied",
            "You need the permission anvil_django.decide_approval or anvil_django.view_approval.",
        ),
        "view-only": lambda: (
            client_of(person("vera", "view_approval", "change_approval", "view_run", groups=("Tellers",))),
            "not_allowed",
            permission,
        ),
        "requester": lambda: (
            client_of(clara),
            "not_allowed",
            "You started this run, so somebody else has to decide.",
        ),
        "outsider": lambda: (
            client_of(person("otto", "decide_approval")),
            "not_allowed",
            "This case is for Tellers.",
        ),
    }[who]()

    body = problem(post(client, approval, verb, **VERBS[verb]), 403, code)

    assert body["detail"].startswith(sentence)
    approval.refresh_from_db()
    assert (approval.status, approval.claimed_by, approval.claimed_name) == ("pending", None, "")
    assert not approval.decisions.exists()
    assert cases.done == []


def test_a_superuser_is_not_exempt_unless_the_site_says_so(
    messages_api: ScriptedMessagesAPI, django_user_model: Any, settings: Any
) -> None:
    root = django_user_model.objects.create_superuser("root")
    approval = ask(messages_api, user=root)

    problem(post(client_of(root), approval, "approve"), 403, "not_allowed")
    settings.ANVIL = {"SUPERUSER_BYPASS": True}

    assert post(client_of(root), approval, "approve").json()["status"] == "approved"


def test_the_owner_reads_that_they_may_not_decide(messages_api: ScriptedMessagesAPI) -> None:
    clara = person("clara")
    ask(messages_api, user=clara)

    (waiting,) = client_of(clara).get("/api/agents/v1/runs/r1/").json()["pending_approvals"]

    assert (waiting["may_decide"], waiting["why_not"]) == (
        False,
        "You need the permission “Can decide approvals”.",
    )


def test_what_is_over_can_be_decided_by_nobody(
    messages_api: ScriptedMessagesAPI, reviewer: APIClient, clock: FixedClock
) -> None:
    late, decided = ask(messages_api, "close"), ask(messages_api, run_id="r2")
    post(teller("tom"), decided, "reject", reason="No.")
    clock.advance(7200)

    assert get(reviewer, late)["why_not"] == "Its time is over; it counts as a no."
    assert get(reviewer, decided)["why_not"] == "It is already rejected."
    problem(post(reviewer, late, "answer", answer="x"), 410, "approval_expired")
    assert "current_status" in problem(post(reviewer, decided, "answer", answer="x"), 409, "already_decided")


def test_an_escalated_case_is_for_both_groups(
    messages_api: ScriptedMessagesAPI, reviewer: APIClient, clock: FixedClock
) -> None:
    approval = ask(messages_api, "close")
    manager = client_of(person("mona", "decide_approval", groups=("Managers",)))

    before = get(manager, approval)
    assert (before["reviewers"], before["escalates_at"], before["expires_at"]) == (
        "Tellers",
        "2026-01-01T01:00:00Z",
        "2026-01-01T02:00:00Z",
    )
    assert before["why_not"] == "This case is for Tellers."
    clock.advance(3600)

    after = get(manager, approval)
    assert (after["reviewers"], after["may_decide"]) == ("Tellers or Managers", True)
    assert get(reviewer, approval)["may_decide"]


# Lists.


def listed(client: APIClient, query: str = "") -> list[str]:
    return sorted(row["run_id"] for row in client.get(f"{APPROVALS}?{query}").json()["results"])


def test_the_queue_is_filtered(messages_api: ScriptedMessagesAPI, reviewer: APIClient) -> None:
    ask(messages_api, "deploy", run_id="a")
    ask(messages_api, "wire", run_id="b")
    ask(messages_api, "mail", run_id="c")
    ask_for_money(messages_api, run_id="d")

    assert listed(reviewer, "kind=tool") == ["a", "b"]
    assert listed(reviewer, "kind=in_doubt") == ["c"]
    assert listed(reviewer, "kind=limit") == listed(reviewer, "agent=spender") == ["d"]
    assert listed(reviewer, "agent=teller&tool=wire") == ["b"]
    assert listed(reviewer, "run_id=a") == ["a"]
    assert listed(reviewer, "run_id=A") == listed(reviewer, "tool=none") == []


def test_claims_are_filtered_while_they_last(
    messages_api: ScriptedMessagesAPI, rita: Any, reviewer: APIClient, clock: FixedClock
) -> None:
    free, mine, theirs = (ask(messages_api, run_id=run_id) for run_id in ("free", "mine", "theirs"))
    approvals.claim(mine, user=rita)
    approvals.claim(theirs, user=person("tom", "decide_approval"))

    assert listed(reviewer, "mine=true") == ["mine"]
    assert listed(reviewer, "mine=false") == ["free", "theirs"]
    assert listed(reviewer, "unclaimed=true") == ["free"]
    assert listed(reviewer, "unclaimed=false") == ["mine", "theirs"]
    assert listed(reviewer, "decidable=true") == ["free", "mine"]
    clock.advance(901)
    assert listed(reviewer, "mine=true") == []
    assert listed(reviewer, "unclaimed=true") == ["free", "mine", "theirs"]
    assert free.status == "pending"


def test_decidable_is_what_each_case_says_of_itself(
    messages_api: ScriptedMessagesAPI, rita: Any, clock: FixedClock, settings: Any, django_user_model: Any
) -> None:
    settings.ANVIL = {"APPROVAL_TTL": 7000}
    ask(messages_api, "deploy", run_id="open", user=person("clara"))
    ask(messages_api, "deploy", run_id="own", user=rita)
    ask(messages_api, "wire", run_id="group")
    ask(messages_api, "audit", run_id="permission")
    ask(messages_api, "close", run_id="quorum")
    agreed = ask(messages_api, "close", run_id="agreed")
    approvals.approve(agreed, user=rita)
    taken = ask(messages_api, "deploy", run_id="claimed")
    approvals.claim(taken, user=person("tom", "decide_approval"))
    root = django_user_model.objects.create_superuser("root")
    people = {
        "rita": rita,
        "mona": person("mona", "decide_approval", groups=("Managers",)),
        "olga": person("olga", "decide_approval", "control_run"),
        "vera": person("vera", "view_approval"),
        "root": root,
    }

    def check(expected: dict[str, set[str]]) -> None:
        for name, user in people.items():
            client = client_of(django_user_model.objects.get(pk=user.pk))
            rows = client.get(APPROVALS).json()["results"]
            may = {row["run_id"] for row in rows if row["may_decide"]}
            assert set(listed(client, "decidable=true")) == may == expected[name], name
            assert set(listed(client, "decidable=false")) == {row["run_id"] for row in rows} - may
            assert all(bool(row["why_not"]) is not row["may_decide"] for row in rows)

    everybody = {"open", "own"}
    check(
        {
            "rita": {"open", "group", "quorum"},
            "mona": everybody,
            "olga": everybody | {"permission"},
            "vera": set(),
            "root": everybody | {"permission"},
        }
    )
    settings.ANVIL = {"FOUR_EYES": False, "CLAIM_SECONDS": 0.5}
    clock.advance(3600)
    everybody |= {"claimed"}
    check(
        {
            "rita": everybody | {"group", "quorum"},
            "mona": everybody | {"quorum", "agreed"},
            "olga": everybody | {"permission"},
            "vera": set(),
            "root": everybody | {"permission"},
        }
    )
    settings.ANVIL = {"SUPERUSER_BYPASS": True}
    clock.advance(3500)  # All but the two with a time of their own are over.
    people = {"root": root}
    check({"root": {"quorum", "agreed"}})


@pytest.mark.parametrize(
    ("query", "wrong"),
    [
        ("kind=odd", {"kind": "invalid_choice"}),
        ("mine=perhaps", {"mine": "invalid"}),
        ("tool=%00", {"tool": "null_characters_not_allowed"}),
        ("run_id=" + "x" * 201, {"run_id": "max_length"}),
    ],
)
def test_a_wrong_filter_is_named(reviewer: APIClient, query: str, wrong: dict[str, str]) -> None:
    assert errors(reviewer.get(f"{APPROVALS}?{query}")) == wrong


@pytest.mark.parametrize("query", ["", "decidable=true", "unclaimed=true", "mine=true", "decidable=false"])
def test_a_list_takes_as_many_statements_for_many_as_for_one(
    messages_api: ScriptedMessagesAPI, rita: Any, query: str
) -> None:
    def statements() -> int:
        client = client_of(rita)
        with CaptureQueriesContext(connection) as queries:
            assert client.get(f"{APPROVALS}?{query}").json()["results"]
        return len(queries)

    def add(run_id: str) -> None:
        user = rita if query == "decidable=false" else None
        approval = ask(messages_api, "close", run_id=run_id, user=user)
        if query == "mine=true":
            approvals.claim(approval, user=rita)
        approvals.approve(approval, user=tom) if query == "" else None

    tom = person("tom", "decide_approval", groups=("Tellers",))
    add("r0")
    one = statements()
    for number in range(1, 5):
        add(f"r{number}")

    assert statements() == one
    assert Group.objects.count() == 1
