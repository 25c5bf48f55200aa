"""A decision is about one call as it is stored, is used once, and lasts: doubts, repetitions, changes."""

from __future__ import annotations

from typing import Any

import pytest

from anvil_django import (
    ApprovalRequiredError,
    ToolContext,
    approvals,
    exactjson,
    models,
    tasks,
    tool,
)
from anvil_django.errors import (
    DecisionError,
    UnfitDecisionError,
)
from anvil_django.testing import ScriptedMessagesAPI, say, tool_call

from .waiting import (
    UNKNOWN,
    ask,
    ask_in_doubt,
    call,
    case,
    crash_at,
    desk,
    effects,
    free,
    go,
    look,
    on,
    paid,
    pay,
    paying,
    question,
    run,
    told,
)
from .world import reviewer, world

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("clock")]

# In doubt


def test_a_doubt_may_be_settled_as_happened(messages_api: ScriptedMessagesAPI, clock: Any) -> None:
    with desk(free):
        ask_in_doubt(messages_api, clock)
        assert (case().kind, case().expires_at, run().status) == ("in_doubt", None, "suspended")
        approvals.settle(case(), user=reviewer(), verdict="happened", result="paid 500 to ann")
        assert on().status == "done"

    assert effects() == ["500 to ann"]
    assert (told(), case().decisions.get().verdict) == ({"toolu_1": "paid 500 to ann"}, "happened")


def test_a_doubt_may_be_settled_as_not_happened(messages_api: ScriptedMessagesAPI, clock: Any) -> None:
    with desk(free):
        ask_in_doubt(messages_api, clock)
        world.effects.clear()
        approvals.settle(case(), user=reviewer(), verdict="not_happened")
        assert on().status == "done"

    assert effects() == ["500 to ann"]
    assert (call().attempts, case().decisions.get().verdict) == (2, "not_happened")


def test_a_doubt_may_be_left_unknown(messages_api: ScriptedMessagesAPI, clock: Any) -> None:
    with desk(free):
        ask_in_doubt(messages_api, clock)
        with pytest.raises(UnfitDecisionError, match="reason"):
            approvals.settle(case(), user=reviewer(), verdict="unknown")
        approvals.settle(case(), user=reviewer(), verdict="unknown", reason="The bank is closed.")
        assert on().status == "done"

    assert told() == {"toolu_1": f"{UNKNOWN} Reason given: The bank is closed."}
    assert case().decisions.get().verdict == "unknown"


@pytest.mark.parametrize(
    ("verdict", "result"), [("happened", None), ("not_happened", "x"), ("unknown", "x"), ("perhaps", None)]
)
def test_a_doubt_is_settled_clearly_or_not_at_all(
    messages_api: ScriptedMessagesAPI, clock: Any, verdict: str, result: Any
) -> None:
    with desk(free):
        ask_in_doubt(messages_api, clock, then=())
        with pytest.raises(UnfitDecisionError):
            approvals.settle(case(), user=reviewer(), verdict=verdict, result=result, reason="x")
        with pytest.raises(UnfitDecisionError, match="cannot be edited"):
            approvals.approve(case(), user=reviewer(), edited_input={"to": "bob", "amount": 1})

    assert case().decisions.count() == 0


def test_only_a_doubt_can_be_settled(messages_api: ScriptedMessagesAPI) -> None:
    with desk(pay):
        ask(messages_api, paying(), then=())
        with pytest.raises(UnfitDecisionError, match="Only a call in doubt"):
            approvals.settle(case(), user=reviewer(), verdict="not_happened")


def test_a_doubt_that_comes_after_an_approval_is_a_question_of_its_own(
    messages_api: ScriptedMessagesAPI, clock: Any
) -> None:
    with desk(pay):
        ask(messages_api, paying())
        approvals.approve(case(), user=reviewer())
        crash_at("tool.returned")
        clock.advance(61)
        tasks.advance("r")
        assert (run().status, case().kind, effects()) == ("suspended", "in_doubt", ["500 to ann"])
        approvals.settle(case(), user=reviewer(), verdict="happened", result="paid")
        assert on().status == "done"

    assert effects() == ["500 to ann"]
    assert [row.kind for row in models.Approval.objects.order_by("id")] == ["tool", "in_doubt"]


# The same call again


def test_the_same_call_after_a_rejection_is_declined_without_asking(
    messages_api: ScriptedMessagesAPI,
) -> None:
    with desk(pay):
        ask(
            messages_api,
            paying(),
            then=[
                # The keys in another order are the same arguments.
                say(tool_call("pay", {"amount": 500, "to": "ann"}, id="toolu_2")),
                say(paying(amount=499, id="toolu_3")),
                "Done.",
            ],
        )
        approvals.reject(case(), user=reviewer(), reason="No.")
        assert on().status == "suspended"
        assert (call("toolu_2").outcome, question().call.call_id) == ("declined", "toolu_3")
        approvals.approve(question(), user=reviewer())
        assert on().status == "done"

    assert effects() == ["499 to ann"]
    assert models.Approval.objects.count() == 2


def test_the_same_call_in_another_run_is_asked(messages_api: ScriptedMessagesAPI) -> None:
    with desk(pay):
        ask(messages_api, paying(), user=None)
        approvals.reject(case(), user=reviewer(), reason="No.")
        on()
        assert go("s").status == "suspended"
        approvals.approve(case(run_id="s"), user=reviewer())
        assert on("s").status == "done"

    assert effects() == ["500 to ann"]


def test_the_same_call_after_an_expiry_is_asked_again(messages_api: ScriptedMessagesAPI, clock: Any) -> None:
    short = tool(side_effect=True, requires_approval=True, approval_ttl=60)(pay.fn)
    with desk(short):
        ask(messages_api, paying(), then=[say(paying(id="toolu_2"))])
        clock.advance(61)
        tasks.recover()
        assert on().status == "suspended"

    assert question().call.call_id == "toolu_2"


def test_a_call_that_asked_by_itself_is_declined_after_a_rejection_too(
    messages_api: ScriptedMessagesAPI,
) -> None:
    tried: list[str] = []

    @tool(side_effect=True)
    def pay_if(to: str, amount: int, ctx: ToolContext) -> str:
        """Pay, and ask on the way."""
        tried.append(to)
        if not ctx.approved:
            raise ApprovalRequiredError({"to": to})
        return paid(to, amount, ctx)

    with desk(pay_if):
        ask(messages_api, paying("pay_if"), then=[say(paying("pay_if", id="toolu_2")), "Done."])
        approvals.reject(case(), user=reviewer(), reason="No.")
        assert on().status == "done"

    assert (tried, effects(), call("toolu_2").outcome) == (["ann"], [], "declined")


# Asked


@pytest.mark.parametrize("how", ["sync", "async", "thread", "helper"])
def test_a_raise_swallowed_by_the_tool_still_suspends(messages_api: ScriptedMessagesAPI, how: str) -> None:
    def check(ctx: ToolContext) -> None:
        if not ctx.approved:
            raise ApprovalRequiredError({"why": how})

    def sync(to: str, amount: int, ctx: ToolContext) -> str:
        """Pay."""
        try:
            check(ctx)
        except Exception:
            return "went wrong somehow"
        return paid(to, amount, ctx)

    async def coroutine(to: str, amount: int, ctx: ToolContext) -> str:
        """Pay."""
        return sync(to, amount, ctx)

    def helper(to: str, amount: int, ctx: ToolContext) -> str:
        """Pay."""
        for _ in range(3):  # As a library that repeats what failed would.
            try:
                check(ctx)
                return paid(to, amount, ctx)
            except Exception:
                continue
        raise ValueError("gave up")

    function: Any = {"async": coroutine, "helper": helper}.get(how, sync)
    swallowing = tool(side_effect=True, name="swallow", timeout=30 if how == "thread" else None)(function)
    with desk(swallowing):
        ask(messages_api, paying("swallow"))
        assert (run().status, effects()) == ("suspended", [])
        assert exactjson.loads(case().payload) == {"why": how}
        approvals.approve(case(), user=reviewer())
        assert on().status == "done"

    assert effects() == ["500 to ann"]


def test_siblings_that_need_nobody_run_at_once(messages_api: ScriptedMessagesAPI) -> None:
    with desk(pay, look, free):
        ask(
            messages_api,
            paying(),
            tool_call("look", {"thing": "door"}, id="toolu_2"),
            paying("free", to="bob", id="toolu_3"),
        )
        assert (run().status, world.looked, effects()) == ("suspended", ["door"], ["500 to bob"])
        approvals.reject(case(), user=reviewer(), reason="No.")
        assert on().status == "done"

    assert (world.looked, effects()) == (["door"], ["500 to bob"])
    assert list(told()) == ["toolu_1", "toolu_2", "toolu_3"]


# Bound


@pytest.mark.parametrize("when", ["before the decision", "after it"])
def test_arguments_changed_in_the_database_are_not_run(messages_api: ScriptedMessagesAPI, when: str) -> None:
    with desk(pay):
        ask(messages_api, paying())
        seen = case()
        if when == "before the decision":
            models.ToolCall.objects.update(input='{"to":"eve","amount":500}')
            with pytest.raises(DecisionError, match="not those that were asked about"):
                approvals.approve(case(), user=reviewer())
            with pytest.raises(DecisionError, match="not those that were asked about"):
                approvals.answer(case(), user=reviewer(), answer="x")
            approvals.approve(seen, user=reviewer())  # As read before the change.
        else:
            approvals.approve(seen, user=reviewer())
            models.ToolCall.objects.update(input='{"to":"eve","amount":500}')
        assert on().status == "done"

    assert effects() == []
    assert told() == {"toolu_1": "The approval does not match this call, so it was not run."}
    assert (call().outcome, case().used_at) == ("rejected", None)


def test_a_case_whose_stored_arguments_were_changed_can_still_be_rejected(
    messages_api: ScriptedMessagesAPI,
) -> None:
    with desk(pay):
        ask(messages_api, paying())
        models.ToolCall.objects.update(input='{"to":"eve","amount":500}')
        approvals.reject(case(), user=reviewer(), reason="Something is wrong here.")
        assert on().status == "done"

    assert effects() == []


@pytest.mark.parametrize("column", ["edited_input", "digest"])
def test_a_decision_changed_in_the_database_starts_nothing(
    messages_api: ScriptedMessagesAPI, column: str
) -> None:
    with desk(pay):
        ask(messages_api, paying())
        approvals.approve(case(), user=reviewer(), edited_input={"to": "bob", "amount": 5})
        with _writing() as cursor:
            value = '{"to":"eve","amount":5}' if column == "edited_input" else "0" * 64
            cursor.execute(f"UPDATE anvil_django_decision SET {column} = %s", [value])
        assert on().status == "done"

    assert (effects(), call().outcome) == ([], "rejected")


def test_an_approval_whose_digest_was_changed_in_the_database_starts_nothing(
    messages_api: ScriptedMessagesAPI,
) -> None:
    with desk(pay):
        ask(messages_api, paying())
        approvals.approve(case(), user=reviewer())
        models.Approval.objects.update(digest="0" * 64)
        assert on().status == "done"

    assert (effects(), case().used_at) == ([], None)


def test_an_approval_that_was_used_starts_nothing(messages_api: ScriptedMessagesAPI) -> None:
    with desk(pay):
        ask(messages_api, paying())
        approvals.approve(case(), user=reviewer())
        models.Approval.objects.update(used_at=case().decided_at)
        assert on().status == "done"

    assert (effects(), call().outcome) == ([], "rejected")


@pytest.mark.parametrize("effect", ["read-only", "idempotent", "atomic"])
def test_arguments_changed_between_two_attempts_of_an_approved_call_are_not_run(
    messages_api: ScriptedMessagesAPI, clock: Any, effect: str
) -> None:
    options: dict[str, Any] = {
        "read-only": {},
        "idempotent": {"side_effect": True, "on_interrupt": "retry"},
        "atomic": {"side_effect": True, "atomic": True},
    }[effect]
    again = tool(requires_approval=True, name="again", **options)(pay.fn)
    with desk(again):
        ask(messages_api, paying("again"))
        approvals.approve(case(), user=reviewer())
        crash_at("atomic.before_commit" if effect == "atomic" else "tool.returned")
        world.effects.clear()
        models.ToolCall.objects.update(input='{"to":"eve","amount":500}')
        clock.advance(61)
        on()

    assert effects() == []
    assert (run().status, call().is_error) == ("done", True)


def _writing() -> Any:
    from django.db import connection

    return connection.cursor()
