"""The faults of other approval queues, each by its name; every verdict, and what the model is told."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from anvil_django import (
    ToolContext,
    approvals,
    exactjson,
    models,
    start_run,
    tasks,
    tool,
)
from anvil_django.errors import (
    AlreadyDecidedError,
    DecisionError,
    NotAllowedError,
    UnfitDecisionError,
)
from anvil_django.stores import DjangoStateStore
from anvil_django.testing import Kill, ScriptedMessagesAPI, kill_at, say

from .waiting import (
    UNKNOWN,
    ask,
    call,
    case,
    crash_at,
    desk,
    effects,
    free,
    look,
    on,
    paid,
    pay,
    paying,
    person,
    run,
    told,
)
from .world import reviewer

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clock")]

REJECTED = (
    "A reviewer did not approve this call, so it was not run. Do not call it again with these arguments."
)
EXPIRED = "Nobody approved this call in time, so it was not run."


class Rule:
    """An approval rule that remembers what it was asked, and may change its mind."""

    def __init__(self) -> None:
        self.large = 100
        self.asked: list[tuple[int, Any, dict[str, Any], str]] = []

        @tool(side_effect=True, requires_approval=self._is_large)
        def pay_by_rule(to: str, amount: int, ctx: ToolContext) -> str:
            """Pay somebody; large amounts need a person."""
            return paid(to, amount, ctx)

        self.tool = pay_by_rule

    def _is_large(self, arguments: dict[str, Any], ctx: ToolContext) -> bool:
        self.asked.append((arguments["amount"], ctx.user, ctx.metadata, ctx.idempotency_key))
        if arguments["amount"] == 13:
            raise RuntimeError("no idea")
        return bool(arguments["amount"] > self.large)


@pytest.fixture
def rule() -> Rule:
    return Rule()


# The faults


def test_a_rejected_call_is_not_executed_because_a_predicate_was_asked_again(
    messages_api: ScriptedMessagesAPI, rule: Rule, clock: Any
) -> None:
    with desk(rule.tool):
        ask(messages_api, paying("pay_by_rule"))
        rule.large = 10_000  # By now it would let the call pass.
        approvals.reject(case(), user=reviewer(), reason="No.")
        with pytest.raises(Kill), kill_at(2):
            tasks.advance("r")
        clock.advance(61)
        assert on().status == "done"

    assert [amount for amount, *_ in rule.asked] == [500]
    assert effects() == []
    assert call().outcome == "rejected"


def test_decisions_are_not_matched_by_position(messages_api: ScriptedMessagesAPI) -> None:
    with desk(pay):
        ask(
            messages_api,
            paying(to="ann", id="toolu_1"),
            paying(to="bob", id="toolu_2"),
            paying(to="cid", id="toolu_3"),
        )
        approvals.approve(case("toolu_3"), user=reviewer())
        approvals.reject(case("toolu_1"), user=reviewer(), reason="Not ann.")
        approvals.answer(case("toolu_2"), user=reviewer(), answer="Bob was paid in cash.")
        assert on().status == "done"

    assert effects() == ["500 to cid"]
    assert told() == {
        "toolu_1": f"{REJECTED} Reason given: Not ann.",
        "toolu_2": "Bob was paid in cash.",
        "toolu_3": "paid 500 to cid",
    }


def test_a_missing_answer_is_not_read_as_yes(messages_api: ScriptedMessagesAPI, clock: Any) -> None:
    with desk(pay):
        ask(messages_api, paying(), paying(to="bob", id="toolu_2"), then=())
        approvals.approve(case("toolu_2"), user=reviewer())
        for _ in range(3):
            tasks.advance("r")
            tasks.recover()
            clock.advance(100_000)
            assert (run().status, effects()) == ("suspended", [])
        with pytest.raises(UnfitDecisionError):
            approvals.answer(case(), user=reviewer(), answer=None)

    assert case().status == "pending"


@pytest.mark.parametrize("codenames", [(), ("view_approval",), ("view_approval", "change_approval")])
def test_staff_with_view_only_permission_cannot_approve(
    messages_api: ScriptedMessagesAPI, codenames: tuple[str, ...]
) -> None:
    onlooker = person("vera", *codenames, may_decide=False, is_staff=True)
    with desk(pay):
        ask(messages_api, paying(), then=())
        for act in (
            lambda: approvals.approve(case(), user=onlooker),
            lambda: approvals.reject(case(), user=onlooker, reason="No."),
            lambda: approvals.answer(case(), user=onlooker, answer="x"),
            lambda: approvals.settle(case(), user=onlooker, verdict="unknown", reason="x"),
            lambda: approvals.claim(case(), user=onlooker),
            lambda: approvals.release(case(), user=onlooker),
        ):
            with pytest.raises(NotAllowedError, match="Can decide approvals"):
                act()

        assert on().status == "suspended"
    assert (case().status, case().claimed_by, case().decisions.count(), effects()) == ("pending", None, 0, [])


def test_an_approval_does_not_expire_on_paper_only(messages_api: ScriptedMessagesAPI, clock: Any) -> None:
    short = tool(side_effect=True, requires_approval=True, approval_ttl=60)(pay.fn)
    with desk(short):
        ask(messages_api, paying())
        clock.advance(60)
        with pytest.raises(DecisionError, match="it counts as a no"):
            approvals.approve(case(), user=reviewer())
        assert case().status == "pending"
        tasks.recover()
        with pytest.raises(AlreadyDecidedError, match="already expired by nobody in time"):
            approvals.approve(case(), user=reviewer())
        assert on().status == "done"

    assert (case().status, call().outcome, effects()) == ("expired", "expired", [])
    assert told() == {"toolu_1": EXPIRED}


def test_no_approval_names_nobody(messages_api: ScriptedMessagesAPI) -> None:
    from django.contrib.auth.models import AnonymousUser
    from django.db import IntegrityError, transaction

    with desk(pay):
        ask(messages_api, paying(), then=())
        for nobody in (None, AnonymousUser()):
            with pytest.raises(NotAllowedError):
                approvals.approve(case(), user=nobody)
        with pytest.raises(IntegrityError), transaction.atomic():
            models.Decision.objects.create(
                approval=case(),
                reviewer="",
                verdict="approved",
                digest=case().digest,
                created_at=run().created_at,
            )
        approvals.approve(case(), user=reviewer())

    decision = case().decisions.get()
    assert (decision.reviewer, decision.user, decision.reviewer_key) == (
        "Rita (rita)",
        reviewer(),
        str(reviewer().pk),
    )


# Verdicts about a call that needs permission


def test_an_approved_call_runs_once_with_the_models_arguments(messages_api: ScriptedMessagesAPI) -> None:
    with desk(pay):
        ask(messages_api, paying())
        approvals.approve(case(), user=reviewer(), reason="Fine.")
        assert on().status == "done"

    assert effects() == ["500 to ann"]
    assert told() == {"toolu_1": "paid 500 to ann"}
    assert (case().decisions.get().verdict, case().decisions.get().reason) == ("approved", "Fine.")
    assert case().used_at is not None


def test_a_rejection_needs_a_reason(messages_api: ScriptedMessagesAPI) -> None:
    with desk(pay):
        ask(messages_api, paying(), then=())
        for blank in ("", "  \n"):
            with pytest.raises(UnfitDecisionError, match="Give a reason"):
                approvals.reject(case(), user=reviewer(), reason=blank)

    assert case().decisions.count() == 0


def test_rejection_expiry_and_doubt_are_told_in_different_words(
    messages_api: ScriptedMessagesAPI, clock: Any
) -> None:
    short = tool(side_effect=True, requires_approval=True, approval_ttl=60, name="short")(pay.fn)
    with desk(pay, short, free):
        messages_api.script(
            say(paying(), paying("short", id="toolu_2"), paying("free", id="toolu_3")),
            say(paying(id="toolu_4")),
            say("Done."),
        )
        start_run("desk", "Go.", run_id="r")
        crash_at("tool.returned")
        clock.advance(61)
        tasks.advance("r")
        tasks.recover()
        approvals.reject(case(), user=reviewer(), reason="Too much.")
        approvals.reject(case("toolu_3"), user=reviewer(), reason="The bank is closed.")
        assert on().status == "done"

    assert told() == {
        "toolu_1": f"{REJECTED} Reason given: Too much.",
        "toolu_2": EXPIRED,
        "toolu_3": f"{UNKNOWN} Reason given: The bank is closed.",
        "toolu_4": "A reviewer has already rejected this same call in this run. "
        "It was not run, and nobody was asked again.",
    }
    assert all(block["is_error"] for block in _blocks())
    assert [row.outcome for row in models.ToolCall.objects.order_by("call_id")] == [
        "rejected",
        "expired",
        "unknown",
        "declined",
    ]


def _blocks() -> list[dict[str, Any]]:
    from .driving import results

    checkpoint = DjangoStateStore().load("r")
    assert checkpoint is not None
    return results(checkpoint)


@pytest.mark.parametrize(
    ("answer", "content"),
    [
        ("Paid in cash.", "Paid in cash."),
        ({"receipt": Decimal("1.50")}, '{"receipt":"1.50"}'),
        (False, "false"),
        (0, "0"),
        ([], "[]"),
    ],
)
def test_an_answer_in_the_tools_place_is_the_result_and_nothing_runs(
    messages_api: ScriptedMessagesAPI, answer: Any, content: str
) -> None:
    with desk(pay):
        ask(messages_api, paying())
        approvals.answer(case(), user=reviewer(), answer=answer)
        assert on().status == "done"

    assert (effects(), told()) == ([], {"toolu_1": content})
    assert (call().outcome, call().is_error, case().decisions.get().verdict) == (
        "answered",
        False,
        "answered",
    )


# Edits


def test_edited_arguments_run_and_both_versions_are_kept(messages_api: ScriptedMessagesAPI) -> None:
    with desk(pay):
        ask(messages_api, paying())
        before = exactjson.dumps(_messages()[1])
        approvals.approve(case(), user=reviewer(), edited_input={"to": "bob", "amount": 5}, reason="Less.")
        assert on().status == "done"

    assert effects() == ["5 to bob"]
    assert exactjson.dumps(_messages()[1]) == before
    assert call().input == '{"to":"ann","amount":500}'
    decision = case().decisions.get()
    assert (decision.verdict, decision.edited_input) == ("edited", '{"to":"bob","amount":5}')
    assert told() == {
        "toolu_1": "Note: a reviewer changed the arguments of this call. "
        'It was run with: {"to":"bob","amount":5}\npaid 5 to bob'
    }
    assert messages_api.requests[-1].body["messages"][1]["content"][0]["input"] == {
        "to": "ann",
        "amount": 500,
    }


def _messages() -> list[dict[str, Any]]:
    checkpoint = DjangoStateStore().load("r")
    assert checkpoint is not None
    return checkpoint.messages


@pytest.mark.parametrize(
    "edited",
    [{"to": "bob"}, {"to": "bob", "amount": "many"}, {"to": "bob", "amount": 1, "also": True}, {}],
    ids=["missing", "of another type", "unknown", "empty"],
)
def test_edited_arguments_are_checked_by_the_tools_schema(
    messages_api: ScriptedMessagesAPI, edited: dict[str, Any]
) -> None:
    with desk(pay):
        ask(messages_api, paying(), then=())
        with pytest.raises(UnfitDecisionError, match="do not fit the tool"):
            approvals.approve(case(), user=reviewer(), edited_input=edited)

    assert (case().status, case().decisions.count()) == ("pending", 0)


def test_the_rule_is_asked_about_edited_arguments_and_a_rule_that_fails_means_no(
    messages_api: ScriptedMessagesAPI, rule: Rule
) -> None:
    with desk(rule.tool):
        ask(messages_api, paying("pay_by_rule"))
        with pytest.raises(UnfitDecisionError, match="RuntimeError"):
            approvals.approve(case(), user=reviewer(), edited_input={"to": "ann", "amount": 13})
        assert (case().status, case().decisions.count()) == ("pending", 0)
        approvals.approve(case(), user=reviewer(), edited_input={"to": "ann", "amount": 600})
        assert on().status == "done"

    assert [amount for amount, *_ in rule.asked] == [500, 13, 600]
    assert effects() == ["600 to ann"]


def test_the_rule_is_asked_about_edits_in_the_same_circumstances_as_about_the_call(
    messages_api: ScriptedMessagesAPI, rule: Rule
) -> None:
    starter = person("stella", may_decide=False)
    with desk(rule.tool):
        messages_api.script(say(paying("pay_by_rule")), say("Done."))
        start_run("desk", "Go.", run_id="r", user=starter, metadata={"budget": 7})
        tasks.advance("r")
        approvals.approve(case(), user=reviewer(), edited_input={"to": "ann", "amount": 5})
        tasks.advance("r")

    assert rule.asked == [
        (500, starter, {"budget": 7}, "r:toolu_1"),
        (5, starter, {"budget": 7}, "r:toolu_1"),
    ]


def test_edits_of_a_tool_that_is_gone_are_refused(messages_api: ScriptedMessagesAPI) -> None:
    with desk(pay):
        ask(messages_api, paying())
    with desk(look):
        with pytest.raises(DecisionError, match="not available here"):
            approvals.approve(case(), user=reviewer(), edited_input={"to": "bob", "amount": 5})
        approvals.approve(case(), user=reviewer())
        assert on().status == "done"

    assert (call().outcome, told()) == ("refused", {"toolu_1": "Tool 'pay' not found."})
