"""Calls that wait for a person: asked once, decided once, run as decided, and told to the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from anvil_django import ApprovalRequiredError, Decision, ToolContext, exactjson, tool
from anvil_django.clock import FixedClock
from anvil_django.endings import cancel
from anvil_django.errors import AlreadyDecidedError, BadInputError, DecisionError
from anvil_django.stores import StateStore
from anvil_django.testing import Kill, ScriptedMessagesAPI, kill_at, say, tool_call

from .driving import NO, YES, agent, result, results, resume, roles, run, stored

pytestmark = pytest.mark.usefixtures("clock")


class Bank:
    """Tools that pay, each asking for a person in its own way."""

    def __init__(self) -> None:
        self.paid: list[tuple[str, int]] = []
        self.asked: list[int] = []
        self.large = 100

        @tool(side_effect=True, requires_approval=True)
        def pay(to: str, amount: int, ctx: ToolContext) -> str:
            """Pay somebody."""
            self.paid.append((to, amount))
            return f"paid {amount} to {to}"

        @tool(side_effect=True, requires_approval=self._is_large)
        def pay_by_rule(to: str, amount: int) -> str:
            """Pay somebody; large amounts need a person."""
            self.paid.append((to, amount))
            return f"paid {amount} to {to}"

        @tool(side_effect=True)
        def pay_if(to: str, amount: int, ctx: ToolContext) -> str:
            """Pay somebody, and ask on the way."""
            if not ctx.approved:
                raise ApprovalRequiredError({"to": to, "amount": Decimal(amount)})
            self.paid.append((to, amount))
            return f"paid {amount} to {to}"

        @tool(side_effect=True)
        def pay_blindly(to: str, amount: int, ctx: ToolContext) -> str:
            """Pay somebody; swallows what it should not."""
            try:
                if not ctx.approved:
                    raise ApprovalRequiredError({"to": to})
            except Exception:
                return "went wrong somehow"
            self.paid.append((to, amount))
            return f"paid {amount} to {to}"

        self.tools = [pay, pay_by_rule, pay_if, pay_blindly]

    def _is_large(self, arguments: dict[str, Any], ctx: ToolContext) -> bool:
        self.asked.append(arguments["amount"])
        return bool(arguments["amount"] > self.large)


@pytest.fixture
def bank() -> Bank:
    return Bank()


def paying(name: str = "pay", to: str = "ann", amount: int = 500, id: str = "toolu_1") -> dict[str, Any]:
    return tool_call(name, {"to": to, "amount": amount}, id=id)


# Asked


@pytest.mark.parametrize("name", ["pay", "pay_by_rule", "pay_if", "pay_blindly"])
def test_the_call_waits_and_runs_once_a_person_approves(
    store: StateStore, messages_api: ScriptedMessagesAPI, bank: Bank, name: str
) -> None:
    messages_api.script(say(paying(name)), say("Done."))
    definition = agent(*bank.tools)

    waiting = run(definition, store)

    assert (waiting.status, bank.paid, waiting.error) == ("suspended", [], "")
    (pending,) = waiting.pending
    assert (pending.call_id, pending.tool, pending.kind) == ("toolu_1", name, "tool")
    assert pending.input == {"to": "ann", "amount": 500}
    done = resume(definition, store, YES)
    assert (done.status, bank.paid) == ("done", [("ann", 500)])
    assert result(done)["content"] == "paid 500 to ann"
    told = stored(store).approvals["toolu_1"]
    assert (told["approved"], told["reviewer"], told["outcome"]) == (True, "rita", "returned")


def test_the_payload_of_the_request_is_shown(
    store: StateStore, messages_api: ScriptedMessagesAPI, bank: Bank
) -> None:
    messages_api.script(say(paying("pay_if")))

    (pending,) = run(agent(*bank.tools), store).pending

    assert pending.payload == {"to": "ann", "amount": "500"}


def test_the_verdict_of_a_rule_is_stored_and_not_asked_again(
    store: StateStore, messages_api: ScriptedMessagesAPI, bank: Bank
) -> None:
    messages_api.script(
        say(paying("pay_by_rule", amount=500), paying("pay_by_rule", "bob", 50, id="toolu_2")), say("Done.")
    )
    definition = agent(*bank.tools)
    waiting = run(definition, store)
    assert ([p.call_id for p in waiting.pending], bank.paid) == (["toolu_1"], [("bob", 50)])
    bank.large = 10_000

    still = resume(definition, store)
    rejected = resume(definition, store, NO)

    assert (still.status, rejected.status) == ("suspended", "done")
    assert bank.asked == [500, 50]
    assert bank.paid == [("bob", 50)]


def test_resuming_without_a_decision_changes_and_spends_nothing(
    store: StateStore, messages_api: ScriptedMessagesAPI, bank: Bank, clock: FixedClock
) -> None:
    messages_api.script(say(paying()))
    definition = agent(*bank.tools)
    waiting = run(definition, store)
    before = stored(store).to_dict()
    clock.advance(1000)

    assert resume(definition, store) == waiting
    assert run(definition, store) == waiting
    assert stored(store).to_dict() == before
    assert len(messages_api.requests) == 1


# Decided


def test_a_rejected_call_never_runs_and_the_model_reads_why(
    store: StateStore, messages_api: ScriptedMessagesAPI, bank: Bank
) -> None:
    messages_api.script(say(paying()), say("Understood."))
    definition = agent(*bank.tools)
    run(definition, store)

    done = resume(definition, store, NO)

    assert (done.status, done.final_text, bank.paid) == ("done", "Understood.", [])
    assert result(done)["is_error"] is True
    assert "did not approve" in result(done)["content"]
    assert result(done)["content"].endswith("Reason given: Too risky.")
    told = stored(store).approvals["toolu_1"]
    assert (told["approved"], told["reason"], told["outcome"]) == (False, "Too risky.", "rejected")


def test_edited_arguments_are_run_and_told_and_the_models_own_block_stays(
    store: StateStore, messages_api: ScriptedMessagesAPI, bank: Bank
) -> None:
    messages_api.script(say(paying()), say("Done."))
    definition = agent(*bank.tools)
    run(definition, store)

    done = resume(definition, store, replace(YES, edited_input={"to": "bob", "amount": 5}))

    assert bank.paid == [("bob", 5)]
    assert done.messages[1]["content"][0]["input"] == {"to": "ann", "amount": 500}
    note, answer = result(done)["content"]
    assert "a reviewer changed the arguments" in note["text"]
    assert '{"to":"bob","amount":5}' in note["text"]
    assert answer["text"] == "paid 5 to bob"
    assert exactjson.dumps(stored(store).messages) == exactjson.dumps(done.messages)


def test_an_answer_in_the_tools_place_is_its_result(
    store: StateStore, messages_api: ScriptedMessagesAPI, bank: Bank
) -> None:
    messages_api.script(say(paying()), say("Done."))
    definition = agent(*bank.tools)
    run(definition, store)

    done = resume(definition, store, replace(YES, answer={"paid": Decimal("500.00"), "by": "cheque\x00"}))

    assert (bank.paid, done.status) == ([], "done")
    assert result(done) == {
        "type": "tool_result",
        "tool_use_id": "toolu_1",
        "content": '{"paid":"500.00","by":"cheque\ufffd"}',
    }
    assert stored(store).approvals["toolu_1"]["outcome"] == "answered"


@pytest.mark.parametrize(
    ("approval", "told"),
    [
        (replace(YES, reviewer=" "), "names a person"),
        (replace(YES, approved=1), "must be True or False"),  # type: ignore[arg-type]
        (replace(NO, edited_input={"to": "bob", "amount": 1}), "cannot carry"),
        (replace(NO, answer="x"), "cannot carry"),
        (replace(YES, edited_input={"to": "bob"}), "do not fit the tool"),
        (replace(YES, edited_input=[1]), "must be an object"),  # type: ignore[arg-type]
        (replace(YES, answer=object()), "answer is"),
        ({"toolu_9": YES}, "toolu_9"),
        ({"toolu_1": YES, "toolu_9": YES}, "toolu_9"),
        ({"toolu_1": YES, "toolu_2": replace(NO, reviewer="")}, "names a person"),
        (YES, "toolu_1, toolu_2"),
    ],
    ids=range(11),
)
def test_a_decision_that_cannot_be_taken_decides_nothing(
    store: StateStore, messages_api: ScriptedMessagesAPI, bank: Bank, approval: Any, told: str
) -> None:
    both = "toolu_2" in told or (isinstance(approval, dict) and "toolu_2" in approval)
    more = [paying("pay", "bob", id="toolu_2")] if both else []
    messages_api.script(say(paying(), *more))
    definition = agent(*bank.tools)
    run(definition, store)
    before = stored(store).to_dict()

    with pytest.raises(DecisionError, match=told):
        resume(definition, store, approval)

    assert stored(store).to_dict() == before
    assert bank.paid == []


def test_decisions_may_come_one_by_one(
    store: StateStore, messages_api: ScriptedMessagesAPI, bank: Bank
) -> None:
    messages_api.script(
        say(paying(), paying("pay_if", "bob", 7, "toolu_2"), paying("pay", "cid", 9, "toolu_3")), say("Done.")
    )
    definition = agent(*bank.tools)
    run(definition, store)

    first = resume(definition, store, {"toolu_3": YES})
    second = resume(definition, store, {"toolu_1": NO})

    assert (first.status, second.status) == ("suspended", "suspended")
    assert [p.call_id for p in second.pending] == ["toolu_2"]
    done = resume(definition, store, YES)
    assert done.status == "done"
    assert sorted(bank.paid) == [("bob", 7), ("cid", 9)]
    assert [block["tool_use_id"] for block in results(done)] == ["toolu_1", "toolu_2", "toolu_3"]
    assert [block.get("is_error", False) for block in results(done)] == [True, False, False]


def test_a_second_decision_is_refused_and_names_who_was_faster(
    store: StateStore, messages_api: ScriptedMessagesAPI, bank: Bank
) -> None:
    messages_api.script(say(paying(), paying("pay", "bob", id="toolu_2")), say("Done."))
    definition = agent(*bank.tools)
    run(definition, store)
    resume(definition, store, {"toolu_1": NO})

    with pytest.raises(AlreadyDecidedError, match="rita"):
        resume(definition, store, {"toolu_1": replace(YES, reviewer="max")})
    resume(definition, store, {"toolu_2": NO})
    with pytest.raises(DecisionError):
        resume(definition, store, {"toolu_1": YES})

    assert bank.paid == []


def test_the_same_tool_of_another_agent_is_not_run(
    store: StateStore, messages_api: ScriptedMessagesAPI, bank: Bank
) -> None:
    messages_api.script(say(paying()))
    run(agent(*bank.tools), store)

    with pytest.raises(BadInputError, match="'tester'"):
        resume(agent(*bank.tools, name="other"), store, YES)

    assert (bank.paid, stored(store).status) == ([], "suspended")


def test_an_approval_is_used_once_however_often_the_process_dies(
    store: StateStore, messages_api: ScriptedMessagesAPI, bank: Bank, clock: FixedClock
) -> None:
    messages_api.script(say(paying()), say("Done."))
    definition = agent(*bank.tools)
    run(definition, store)
    with pytest.raises(Kill), kill_at(5) as reached:
        resume(definition, store, YES)
    assert (reached.killed_at, bank.paid) == ("tool.returned", [("ann", 500)])
    clock.advance(61)

    doubtful = resume(definition, store)

    assert (doubtful.status, doubtful.pending[0].kind) == ("suspended", "in_doubt")
    with pytest.raises(DecisionError, match="in doubt cannot be edited"):
        resume(definition, store, replace(YES, edited_input={"to": "bob", "amount": 1}))
    done = resume(definition, store, replace(NO, reason="Ask the bank."))
    assert (done.status, bank.paid) == ("done", [("ann", 500)])
    assert "unknown" in result(done)["content"]
    assert "Ask the bank." in result(done)["content"]


def test_an_approved_call_that_asks_again_has_failed(
    store: StateStore, messages_api: ScriptedMessagesAPI
) -> None:
    @tool
    def nag() -> str:
        """Always ask."""
        raise ApprovalRequiredError

    messages_api.script(say(tool_call("nag")), say("Done."))
    run(agent(nag), store)

    done = resume(agent(nag), store, YES)

    assert (done.status, result(done)["is_error"]) == ("done", True)
    assert "already approved" in result(done)["content"]


def test_a_hostile_reason_is_stored_and_told(
    store: StateStore, messages_api: ScriptedMessagesAPI, bank: Bank
) -> None:
    messages_api.script(say(paying()), say("Done."))
    definition = agent(*bank.tools)
    run(definition, store)

    done = resume(definition, store, replace(NO, reason="no\x00 \ud800 <b>\u202e"))

    assert result(done)["content"].endswith("Reason given: no\ufffd \ufffd <b>\u202e")
    assert exactjson.dumps(stored(store).messages) == exactjson.dumps(done.messages)


def test_a_tool_that_a_deploy_removed_while_its_call_waited_is_not_found(
    store: StateStore, messages_api: ScriptedMessagesAPI, bank: Bank
) -> None:
    messages_api.script(say(paying()), say("Done."))
    run(agent(*bank.tools), store)

    done = resume(agent(), store, YES)

    assert (done.status, bank.paid) == ("done", [])
    assert result(done) == {
        "type": "tool_result",
        "tool_use_id": "toolu_1",
        "content": "Tool 'pay' not found.",
        "is_error": True,
    }


# Steered meanwhile


def advance_any(store: StateStore, act: Callable[[Any], None]) -> None:
    """Take the idle run and end it."""
    claimed = store.claim("r", "host/1/1/1/x", 60, any_idle=True)
    assert claimed is not None
    checkpoint, lease = claimed
    act(checkpoint)
    store.save(checkpoint, lease, progress=True, heed=())


def test_cancelling_while_calls_wait_answers_every_call_and_voids_the_question(
    store: StateStore, messages_api: ScriptedMessagesAPI, bank: Bank
) -> None:
    messages_api.script(say(paying(), paying("pay_by_rule", "bob", 1, "toolu_2")))
    definition = agent(*bank.tools)
    run(definition, store)

    advance_any(store, cancel)

    ended = resume(definition, store)
    assert (ended.status, ended.pending, ended.stop_reason) == ("cancelled", [], "cancelled")
    assert [block["tool_use_id"] for block in results(ended)] == ["toolu_1", "toolu_2"]
    assert results(ended)[0]["content"] == "Cancelled before completion."
    with pytest.raises(DecisionError):
        resume(definition, store, {"toolu_1": YES})
    assert bank.paid == [("bob", 1)]


@pytest.mark.parametrize(
    ("request_", "status"), [("cancel", "cancelled"), ("pause", "paused")], ids=["cancel", "pause"]
)
def test_what_is_asked_of_a_running_run_is_done_at_the_next_step(
    store: StateStore, messages_api: ScriptedMessagesAPI, request_: Any, status: str
) -> None:
    ran: list[str] = []

    @tool(side_effect=True)
    def send(to: str) -> str:
        """Send something."""
        ran.append(to)
        store.request("r", request_)
        return "sent"

    calls = [tool_call("send", {"to": "a"}, id="toolu_1"), tool_call("send", {"to": "b"}, id="toolu_2")]
    messages_api.script(say(*calls), *([say("Done.")] if request_ == "pause" else []))

    stopped = run(agent(send), store)

    assert (stopped.status, ran) == (status, ["a"])
    if request_ == "cancel":
        assert [block["content"] for block in results(stopped)] == ["sent", "Cancelled before completion."]
    else:
        assert roles(stopped) == ["user", "assistant"]
        paused = resume(agent(send), store)
        assert (paused.status, ran) == ("paused", ["a", "b"])
        assert resume(agent(send), store).status == "done"


def test_a_pause_that_comes_with_the_last_answer_does_not_lose_it(
    store: StateStore, messages_api: ScriptedMessagesAPI
) -> None:
    @tool
    def look() -> str:
        """Look."""
        return "fine"

    def script(request: Any) -> Any:
        if request.assistant_turns == 1:
            waiting.append("asked")
        return say("Done.") if request.assistant_turns else say(tool_call("look"))

    waiting: list[str] = []
    messages_api.add(script)
    from anvil_django import Checkpointer, stream_agent
    from anvil_django.events import TextDelta

    for event in stream_agent(agent(look), "Go.", checkpoint=Checkpointer(store, "r")):
        if isinstance(event, TextDelta):
            store.request("r", "pause")

    assert (stored(store).status, stored(store).final_text) == ("done", "Done.")


def test_decision_equality_survives_storage() -> None:
    decision = Decision(approved=True, reviewer="rita", answer={"a": [1, None]})

    assert Decision.from_dict(exactjson.loads(exactjson.dumps(decision.to_dict()))) == decision


def test_an_edit_that_the_tools_own_rule_cannot_judge_decides_nothing(
    store: StateStore, messages_api: ScriptedMessagesAPI
) -> None:
    paid: list[int] = []

    @tool(side_effect=True, requires_approval=lambda arguments, ctx: 1000 // arguments["amount"] < 10)
    def transfer(amount: int) -> str:
        """Transfer an amount; large ones need a person."""
        paid.append(amount)
        return f"transferred {amount}"

    messages_api.script(say(tool_call("transfer", {"amount": 500})), say("Done."))
    definition = agent(transfer)
    run(definition, store)

    with pytest.raises(DecisionError, match="approval rule of transfer failed"):
        resume(definition, store, replace(YES, edited_input={"amount": 0}))

    assert [p.tool for p in stored(store).pending] == ["transfer"]
    assert paid == []
    assert resume(definition, store, replace(YES, edited_input={"amount": 200})).status == "done"
    assert paid == [200]
