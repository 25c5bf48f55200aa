"""``anvil_approvals``: what it lists, what it decides and as whom, and all it says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from anvil_django import approvals
from anvil_django.clock import FixedClock
from anvil_django.management.terminal import duration
from anvil_django.models import Approval
from anvil_django.testing import ScriptedMessagesAPI

from . import cases
from .cases import ask, ask_for_money, go_on
from .rest import person

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def bank() -> Iterator[None]:
    with cases.bank():
        yield


@pytest.fixture
def rita() -> Any:
    return person("rita", "decide_approval", groups=("Tellers",))


def command(*args: Any, error: str = "") -> tuple[str, str]:
    """What the command writes to stdout and stderr; ``error`` is the whole message it must fail with."""
    out, err = StringIO(), StringIO()
    given = [str(arg) for arg in args]
    if error:
        with pytest.raises(CommandError) as caught:
            call_command("anvil_approvals", *given, stdout=out, stderr=err, no_color=True)
        assert str(caught.value) == error
    else:
        call_command("anvil_approvals", *given, stdout=out, stderr=err, no_color=True)
    return out.getvalue(), err.getvalue()


# The queue.


def test_cases_are_listed_oldest_first(
    messages_api: ScriptedMessagesAPI, rita: Any, clock: FixedClock
) -> None:
    first = ask(messages_api, "close", user=person("clara"), run_id="r1")
    approvals.approve(first, user=rita)
    clock.advance(3900)
    second = ask(messages_api, "mail", run_id="r2")
    approvals.claim(second, user=rita)
    third = ask_for_money(messages_api, run_id="r3")
    width = max(2, len(str(third.pk)))
    key, a, b, c = (str(text).ljust(width) for text in ("ID", first.pk, second.pk, third.pk))
    limit = third.call.input

    out, err = command()

    assert out == (
        f"{key}  KIND      AGENT    TOOL      REQUESTER  AGE    EXPIRES  CLAIMED  NEEDED  ARGUMENTS\n"
        f"{a}  tool      teller   close     clara      1h 5m  in 55m   -        1 of 2  "
        '{"account":"DE-1"}\n'
        f'{b}  in_doubt  teller   mail      -          0s     -        rita     0 of 1  {{"to":"ann"}}\n'
        f"{c}  limit     spender  max_cost  -          0s     -        -        0 of 1  {limit}\n"
    )
    assert err == ""
    assert command("list") == (out, err)


def test_cases_are_filtered_and_cut_off(messages_api: ScriptedMessagesAPI, rita: Any) -> None:
    for run_id in ("r1", "r2", "r3"):
        ask(messages_api, run_id=run_id)
    approvals.reject(Approval.objects.get(run__run_id="r1"), user=rita, reason="No.")

    def runs(*args: Any) -> list[str]:
        return [row["run_id"] for row in json.loads(command("list", "--json", *args)[0])]

    assert runs() == ["r2", "r3"]
    assert runs("--status", "rejected") == ["r1"]
    assert runs("--status", "all", "--run", "r2") == ["r2"]
    assert command("list", "--limit", "1")[1] == "There are more than these 1; --limit shows more.\n"
    assert command("list", "--run", "none") == ("No cases.\n", "")


def test_a_case_in_json_says_all_of_it(
    messages_api: ScriptedMessagesAPI, rita: Any, clock: FixedClock
) -> None:
    approval = ask(messages_api, "close", user=person("clara"))
    approvals.approve(approval, user=rita, edited_input={"account": "DE-2"}, reason="Typo.")

    (row,) = json.loads(command("list", "--json")[0])

    assert row == {
        "id": approval.pk,
        "status": "pending",
        "kind": "tool",
        "agent": "teller",
        "run_id": "r1",
        "call_id": "toolu_r1",
        "tool": "close",
        "input": {"account": "DE-1"},
        "proposal": {"account": "DE-2"},
        "payload": {"reason": "close always needs approval."},
        "requester": "clara",
        "reviewers": "Tellers",
        "needed": 2,
        "agreed": 1,
        "claimed_by": "",
        "claimed_at": None,
        "requested_at": "2026-01-01T00:00:00+00:00",
        "escalates_at": "2026-01-01T01:00:00+00:00",
        "expires_at": "2026-01-01T02:00:00+00:00",
        "decided_at": None,
        "decisions": [
            {
                "reviewer": "rita",
                "verdict": "edited",
                "reason": "Typo.",
                "channel": "code",
                "created_at": "2026-01-01T00:00:00+00:00",
            }
        ],
    }


def test_what_a_model_wrote_cannot_steer_the_terminal(messages_api: ScriptedMessagesAPI) -> None:
    hostile = "\x1b]0;owned\x07red \x1b[31mtext\x9b2J \u202eecil\u202c\r"
    ask(messages_api, "deploy", {"version": hostile})

    out, _ = command()
    as_json, _ = command("list", "--json")

    assert not set(out + as_json) & set("\x1b\x9b\r\x07\x00\u202e\u202c")
    assert json.loads(as_json)[0]["input"] == {"version": hostile}


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-5, "0s"), (59, "59s"), (60, "1m"), (3600, "1h"), (11100, "3h 5m"), (86400, "1d"), (187_000, "2d 3h")],
)
def test_durations_are_short(seconds: int, shown: str) -> None:
    assert duration(timedelta(seconds=seconds)) == shown


# Deciding.


def test_several_cases_are_approved_as_a_named_person(messages_api: ScriptedMessagesAPI, rita: Any) -> None:
    first, second = ask(messages_api), ask(messages_api, "wire", run_id="r2")
    third = ask(messages_api, "close", run_id="r3")

    out, err = command("approve", first.pk, second.pk, third.pk, "--user", "rita", "--reason", "Fine.")

    assert out == "3 cases as rita: 2 approved, 1 agreed to, waiting for more people.\n"
    assert err == ""
    decision = first.decisions.get()
    assert (decision.user, decision.reviewer, decision.channel, decision.reason) == (
        rita,
        "rita",
        "command",
        "Fine.",
    )
    go_on(messages_api, first)
    assert cases.done == ["deployed 1.2"]


def test_what_cannot_be_decided_is_skipped_and_the_rest_goes_on(
    messages_api: ScriptedMessagesAPI, rita: Any
) -> None:
    decided, own = ask(messages_api), ask(messages_api, run_id="r2", user=rita)
    audit, good = ask(messages_api, "audit", run_id="r3"), ask(messages_api, run_id="r4")
    claimed = ask(messages_api, run_id="r5")
    tom = person("tom", "decide_approval")
    approvals.reject(decided, user=tom, reason="No.")
    approvals.claim(claimed, user=tom)
    pks = [approval.pk for approval in (decided, own, audit, good, claimed)]

    out, err = command(
        "approve",
        *pks,
        good.pk,
        10**20,
        "--user",
        "rita",
        error="5 of 6 not decided; the reasons are above.",
    )

    assert out == "6 cases as rita: 1 approved, 5 not decided.\n"
    assert err == (
        f"approval {pks[0]}: not decided: The call of 'deploy' is already rejected by tom; "
        "nothing was changed.\n"
        f"approval {pks[1]}: not decided: You started this run, so somebody else has to decide.\n"
        f"approval {pks[2]}: not decided: This case is for anvil_django.control_run.\n"
        f"approval {pks[4]}: not decided: The call of 'deploy' is claimed by tom, who is reading it. "
        "Ask them to release it, or wait.\n"
        f"approval {10**20}: not decided: No case has the id {10**20}. "
        "List them with: manage.py anvil_approvals list --status all\n"
    )
    assert Approval.objects.get(pk=good.pk).status == "approved"


def test_a_case_is_rejected_with_the_reason(messages_api: ScriptedMessagesAPI, rita: Any) -> None:
    approval = ask(messages_api)

    assert command("reject", approval.pk, "--user", "rita", "--reason", "Not on a Friday.") == (
        "1 case as rita: 1 rejected.\n",
        "",
    )
    assert "Not on a Friday." in go_on(messages_api, approval)


def test_a_case_is_approved_with_other_arguments(messages_api: ScriptedMessagesAPI, rita: Any) -> None:
    approval = ask(messages_api)

    command("approve", approval.pk, "--user", "rita", "--edit", '{"version": "1.1"}')

    go_on(messages_api, approval)
    assert cases.done == ["deployed 1.1"]


@pytest.mark.parametrize(
    ("given", "stored"),
    [("Did it myself.", "Did it myself."), ('{"no": 7}', {"no": 7}), ('"7"', "7"), ("7", "7")],
)
def test_an_answer_is_text_or_json(
    messages_api: ScriptedMessagesAPI, rita: Any, given: str, stored: Any
) -> None:
    approval = ask(messages_api)

    assert command("answer", approval.pk, "--user", "rita", "--answer", given)[0] == (
        "1 case as rita: 1 answered.\n"
    )
    assert json.loads(approval.decisions.get().answer) == stored


@pytest.mark.parametrize(
    ("options", "verdict"),
    [
        (["happened", "--result", "sent, no. 7"], "happened"),
        (["not_happened"], "not_happened"),
        (["unknown", "--reason", "No log."], "unknown"),
    ],
)
def test_a_call_in_doubt_is_settled(
    messages_api: ScriptedMessagesAPI, rita: Any, options: list[str], verdict: str
) -> None:
    approval = ask(messages_api, "mail")

    assert command("settle", approval.pk, "--user", "rita", "--verdict", *options)[0] == (
        "1 case as rita: 1 settled.\n"
    )
    assert approval.decisions.get().verdict == verdict


def test_a_limit_is_raised_by_a_named_amount(messages_api: ScriptedMessagesAPI, rita: Any) -> None:
    approval = ask_for_money(messages_api)

    command("approve", approval.pk, "--user", "rita", "--edit", '{"raise_by": "0.50"}')

    approval.refresh_from_db()
    assert (approval.status, approval.proposal) == ("approved", '{"raise_by":"0.50"}')


# As whom.


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("paul", "You need the permission “Can decide approvals”."),
        ("vera", "You need the permission “Can decide approvals”."),
        ("otto", "This case is for Tellers."),
        ("clara", "You started this run, so somebody else has to decide."),
    ],
    ids=["without permission", "view-only", "outsider", "requester"],
)
@pytest.mark.parametrize(
    "verb",
    [
        ["approve"],
        ["reject", "--reason", "No."],
        ["answer", "--answer", "x"],
        ["settle", "--verdict", "not_happened"],
    ],
    ids=lambda verb: verb[0],
)
def test_a_person_who_may_not_decide_has_no_effect_in_a_shell_either(
    messages_api: ScriptedMessagesAPI, verb: list[str], name: str, why: str
) -> None:
    person("paul", groups=("Tellers",))
    person("vera", "view_approval", "change_approval", groups=("Tellers",))
    person("otto", "decide_approval")
    approval = ask(messages_api, "mail", user=person("clara", "decide_approval", groups=("Tellers",)))

    out, err = command(
        verb[0],
        approval.pk,
        "--user",
        name,
        *verb[1:],
        error="1 of 1 not decided; the reasons are above.",
    )

    assert out == f"1 case as {name}: 1 not decided.\n"
    assert err == f"approval {approval.pk}: not decided: {why}\n"
    approval.refresh_from_db()
    assert approval.status == "pending"
    assert not approval.decisions.exists()


def test_the_named_person_must_exist_and_be_active(messages_api: ScriptedMessagesAPI, rita: Any) -> None:
    approval = ask(messages_api)
    rita.is_active = False
    rita.save()

    command("approve", approval.pk, "--user", "nobody", error="There is no user 'nobody'.")
    command("approve", approval.pk, "--user", "rita", error="The account of 'rita' is not active.")
    command("approve", approval.pk, error="Error: the following arguments are required: --user")
    assert not approval.decisions.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["approve", 1, "--edit", "{"], "--edit is not JSON: " + "Expecting property name enclosed in double "
         "quotes: line 1 column 2 (char 1)"),
        (["approve", 1, "--edit", "[1]"], "--edit must be a JSON object: all arguments of the tool."),
        (["approve", 1, 2, "--edit", "{}"], "--edit is for one case: arguments fit one call."),
        (["answer", 1, "--answer", "[x"], "--answer is not JSON: Expecting value: line 1 column 2 (char 1)"),
        (["reject", 1], "Error: the following arguments are required: --reason"),
        (["approve"], "Error: the following arguments are required: ID, --user"),
        (["approve", "x"], "Error: argument ID: 'x' is not a whole number above zero"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused_before_anything_is_decided(
    messages_api: ScriptedMessagesAPI, rita: Any, arguments: list[Any], message: str
) -> None:
    user = ["--user", "rita"] if len(arguments) > 1 else []

    command(*arguments, *user, error=message)

    assert not Approval.objects.exclude(decisions=None).exists()
