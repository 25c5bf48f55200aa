"""Whatever people, crashes, redeliveries and sweeps do to a turn with several gated calls, in whatever order.

After every step: no call ran without an approval of its own digest that its start used up, every effect
happened at most once (or once more for each person who said that it had not), nobody decided who may not, and
no run stands still without a reason that can be read. At the end every call has exactly one result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

import pytest
from django.db import transaction
from django_q.models import OrmQ
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from anvil_django import (
    ApprovalRequiredError,
    ToolContext,
    approvals,
    exactjson,
    runs,
    start_run,
    tasks,
    tool,
)
from anvil_django.errors import AnvilError, ApprovalExpiredError, ClaimedError, DecisionError, NotAllowedError
from anvil_django.history import blocks_of
from anvil_django.models import Approval, Decision, Run, ToolCall
from anvil_django.stores import DjangoStateStore
from anvil_django.testing import (
    Kill,
    ScriptedMessagesAPI,
    Turn,
    fixed_clock,
    kill_at,
    say,
    tool_call,
    violations,
)
from example_project.shop.models import SentEmail

from .waiting import desk, person

pytestmark = pytest.mark.django_db

LARGE = 100
CALLS = [
    ("pay", 500),
    ("pay_by_two", 500),
    ("pay_by_rule", 500),
    ("pay_by_rule", 5),
    ("pay_soon", 500),
    ("book", 500),
    ("charge", 500),
    ("mail", 5),
    ("look", 5),
]


class Witness:
    """Sees every effect at the moment it happens, where no rollback reaches."""

    def __init__(self) -> None:
        self.effects: Counter[str] = Counter()
        self.faults: list[str] = []

    def see(self, name: str, to: str, amount: int, ctx: ToolContext) -> str:
        arguments = {"to": to, "amount": amount}
        asked = Approval.objects.filter(run__run_id=ctx.run_id, call__call_id=ctx.call_id)
        digest = exactjson.digest(ctx.run_id, ctx.call_id, name, arguments)
        used = asked.filter(status="approved", used_at__isnull=False, digest=digest)
        gated = name in {"pay", "pay_by_two", "pay_soon", "charge"} or amount > LARGE
        if (gated or asked.exists()) and not used.exists():
            self.faults.append(f"{name} {arguments} ran under {list(asked.values('status', 'digest'))}")
        return f"{name}: {amount} to {to}"

    def act(self, name: str, to: str, amount: int, ctx: ToolContext) -> str:
        self.effects[ctx.idempotency_key] += 1
        return self.see(name, to, amount, ctx)


witness = Witness()


@tool(side_effect=True, requires_approval=True)
def pay(to: str, amount: int, ctx: ToolContext) -> str:
    """Pay somebody."""
    return witness.act("pay", to, amount, ctx)


@tool(side_effect=True, requires_approval=True, approvals=2)
def pay_by_two(to: str, amount: int, ctx: ToolContext) -> str:
    """Pay somebody if two people agree."""
    return witness.act("pay_by_two", to, amount, ctx)


@tool(side_effect=True, requires_approval=lambda arguments, ctx: arguments["amount"] > LARGE)
def pay_by_rule(to: str, amount: int, ctx: ToolContext) -> str:
    """Pay somebody; large amounts need a person."""
    return witness.act("pay_by_rule", to, amount, ctx)


@tool(side_effect=True, requires_approval=True, approval_ttl=300, reviewers="Finance")
def pay_soon(to: str, amount: int, ctx: ToolContext) -> str:
    """Pay somebody; Finance has five minutes."""
    return witness.act("pay_soon", to, amount, ctx)


@tool(side_effect=True, atomic=True)
def book(to: str, amount: int, ctx: ToolContext) -> str:
    """Write to our own database, and ask on the way."""
    if amount > LARGE and not ctx.approved:
        raise ApprovalRequiredError({"to": to})
    SentEmail.objects.create(to="c@example.com", subject=to, body="", idempotency_key=ctx.idempotency_key)
    return witness.see("book", to, amount, ctx)


@tool(side_effect=True, on_interrupt="retry", requires_approval=True)
def charge(to: str, amount: int, ctx: ToolContext) -> str:
    """Charge a card at a provider that knows the key."""
    witness.effects[ctx.idempotency_key] = 1
    return witness.see("charge", to, amount, ctx)


@tool(side_effect=True)
def mail(to: str, amount: int, ctx: ToolContext) -> str:
    """Send a mail; asks nobody."""
    return witness.act("mail", to, amount, ctx)


@tool
def look(to: str, amount: int) -> str:
    """Look at something."""
    return "fine"


TOOLS = [pay, pay_by_two, pay_by_rule, pay_soon, book, charge, mail, look]

# What happens.

WHO = ["rita", "sam", "finn", "finn", "root", "starter", "vera", "gone"]
MAY = {"rita", "sam", "finn", "root"}
VERDICTS = ["approve", "approve", "reject", "edit", "answer", "claim", "release"]
DOUBTS = ["happened", "not_happened", "unknown"]
STEPS = {
    "decide": 20,
    "everybody": 10,
    "crash": 20,
    "crash_once_decided": 10,
    "wait": 10,
    "late": 3,
    "sweep": 6,
    "advance": 6,
    "redeliver": 6,
    "forget": 3,
    "pause": 2,
    "resume": 4,
    "tamper": 2,
    "tamper_once_decided": 3,
    "cancel": 1,
}
"""How often each is drawn."""
ARGUMENTS: dict[str, Callable[[Random], tuple[Any, ...]]] = {
    "decide": lambda r: (r.choice(WHO), r.randrange(8), r.choice([*VERDICTS, *DOUBTS])),
    "everybody": lambda r: (r.choice(["agrees", "agrees", "refuses"]),),
    "crash": lambda r: (r.randint(1, 14),),
    "crash_once_decided": lambda r: (r.randint(1, 14),),
    "wait": lambda r: (r.choice([30, 61, 301, 901]),),
    "tamper": lambda r: (r.randrange(8),),
    "tamper_once_decided": lambda r: (r.randrange(8),),
}


def draw_steps(random: Random) -> list[tuple[Any, ...]]:
    names = random.choices(list(STEPS), list(STEPS.values()), k=random.randint(5, 20))
    return [(name, *ARGUMENTS.get(name, lambda r: ())(random)) for name in names]


class World:
    """One run, and everybody who has to do with it."""

    def __init__(self, run_id: str, people: dict[str, Any], clock: Any) -> None:
        self.run_id, self.people, self.clock = run_id, people, clock
        self.tampered = False
        self.not_happened: Counter[str] = Counter()

    @property
    def run(self) -> Run:
        return Run.objects.get(run_id=self.run_id)

    def cases(self, **which: Any) -> list[Approval]:
        return list(Approval.objects.filter(**which).select_related("run", "call").order_by("id"))

    # Steps.

    def perform(self, name: str, *arguments: Any) -> None:
        getattr(self, name)(*arguments)

    def advance(self) -> None:
        tasks.advance(self.run_id)

    def redeliver(self) -> None:
        tasks.advance(self.run_id)
        tasks.advance(self.run_id)

    def crash(self, boundary: int) -> None:
        try:
            with kill_at(boundary):
                tasks.advance(self.run_id)
        except Kill:
            self.clock.advance(61)

    def crash_once_decided(self, boundary: int) -> None:
        self.everybody("agrees")
        self.crash(boundary)

    def late(self) -> None:
        self.clock.advance(301)
        self.everybody("agrees")

    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)

    def sweep(self) -> None:
        tasks.recover()

    def forget(self) -> None:
        OrmQ.objects.all().delete()

    def pause(self) -> None:
        try:
            runs.pause(self.run_id)
        except AnvilError:
            assert self.run.status in {"suspended", "done", "failed", "cancelled"}

    def resume(self) -> None:
        try:
            runs.resume(self.run_id)
        except AnvilError:
            assert self.run.status == "suspended"

    def cancel(self) -> None:
        try:
            runs.cancel(self.run_id)
        except AnvilError:
            assert self.run.status == "done"

    def tamper(self, number: int) -> None:
        cases = self.cases()
        if cases:
            self.tampered = True
            call = cases[number % len(cases)].call
            ToolCall.objects.filter(pk=call.pk).update(input='{"to":"eve","amount":500}')

    def tamper_once_decided(self, number: int) -> None:
        self.everybody("agrees")
        self.tamper(number)

    def decide(self, who: str, number: int, verdict: str) -> None:
        cases = self.cases()
        if not cases:
            return
        # Mostly those that wait; now and then one that is decided already.
        cases = [case for case in cases if case.status == "pending" or number > 5] or cases
        case, user = cases[number % len(cases)], self.people[who]
        before = case.decisions.count()
        try:
            give(case, user, verdict)
        except NotAllowedError:
            assert case.decisions.count() == before
            return
        except DecisionError:
            assert case.decisions.count() == before
            assert who in MAY
            return
        assert who in MAY
        assert case.reviewers != "Finance" or who == "finn"
        if verdict in {"claim", "release"}:
            return
        assert case.decisions.count() == before + 1
        last = case.decisions.last()
        if last.verdict == "not_happened" and case.status == "approved":
            self.not_happened[f"{self.run_id}:{case.call.call_id}"] += 1

    def everybody(self, verdict: str) -> None:
        for case in self.cases(status="pending"):
            if verdict == "agrees":
                self.settle(case)
            else:
                with suppress(DecisionError):
                    give(case, self.people["finn"], "reject")

    # Invariants.

    def check(self) -> None:
        assert witness.faults == []
        for key, times in witness.effects.items():
            assert times <= 1 + self.not_happened[key], key
        for key in SentEmail.objects.values_list("idempotency_key", flat=True):
            assert SentEmail.objects.filter(idempotency_key=key).count() == 1
        may = {str(self.people[name].pk) for name in MAY}
        for decision in Decision.objects.select_related("approval"):
            if (decision.channel, decision.verdict) != ("expiry", "expired"):
                ends = decision.approval.expires_at
                assert decision.reviewer_key in may
                assert ends is None or decision.created_at < ends
        for case in self.cases(status="approved"):
            agreeing = case.agreeing()
            assert {row.digest for row in agreeing} == {case.digest}
            assert len({row.reviewer_key for row in agreeing}) >= case.needed
        self.check_reason()

    def check_reason(self) -> None:
        run = self.run
        if run.status == "suspended":
            assert self.cases(status="pending"), "it waits for nobody"
        elif run.status in {"paused", "failed"}:
            assert run.error
        elif run.status == "queued":
            assert run.ticket_at or run.next_attempt_at
        elif run.status == "running":
            assert run.lease_owner
        else:
            self.check_end()

    def check_end(self) -> None:
        assert not self.cases(status="pending")
        assert not ToolCall.objects.exclude(status="done").exists()
        checkpoint = DjangoStateStore().load(self.run_id)
        assert checkpoint is not None
        blocks = [block for message in checkpoint.messages for block in blocks_of(message)]
        asked = [block["id"] for block in blocks if block["type"] == "tool_use"]
        answered = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        assert answered == asked
        again = [*checkpoint.messages, {"role": "user", "content": "And now?"}]
        if checkpoint.messages[-1]["role"] == "user":
            again = checkpoint.messages
        assert violations({"model": "m", "max_tokens": 1, "messages": again, "stream": True}) == []

    def check_declined(self) -> None:
        """What a person had rejected before was declined when the model asked for it again."""
        rejected = {
            (case.call.name, case.call.input): case.call.seq
            for case in self.cases(kind="tool", status="rejected")
        }
        for call in ToolCall.objects.exclude(effect="limit"):
            since = rejected.get((call.name, call.input))
            if since is not None and call.seq > since:
                assert call.outcome in {"declined", "cancelled"}
                assert not call.approvals.exists()

    # The end.

    def finish(self) -> None:
        """What careful people do until the run is over."""
        for _ in range(40):
            status = self.run.status
            if status in {"done", "cancelled"}:
                return
            if status in {"failed", "paused"}:
                runs.resume(self.run_id)
            for case in self.cases(status="pending"):
                self.settle(case)
            tasks.recover()
            tasks.advance(self.run_id)
            self.check()
            self.clock.advance(61)
        pytest.fail(f"stuck: {self.run.status} {self.run.error}")

    def settle(self, case: Approval) -> None:
        happened = witness.effects[f"{self.run_id}:{case.call.call_id}"]
        yes = "approve" if case.kind == "tool" else "happened" if happened else "not_happened"
        for who in ("finn", "rita", "sam"):
            case.refresh_from_db()
            if case.status != "pending":
                return
            try:
                give(case, self.people[who], yes)
            except ClaimedError:
                self.clock.advance(901)
            except (NotAllowedError, ApprovalExpiredError):
                continue
            except DecisionError:  # Its arguments were changed under everybody's feet.
                with suppress(DecisionError):
                    give(case, self.people[who], "reject")
            else:
                if yes == "not_happened" and case.status == "approved":
                    self.not_happened[f"{self.run_id}:{case.call.call_id}"] += 1


def give(case: Approval, user: Any, verdict: str) -> None:
    match verdict:
        case "approve":
            approvals.approve(case, user=user)
        case "reject":
            approvals.reject(case, user=user, reason="No.")
        case "edit":
            approvals.approve(case, user=user, edited_input={"to": "edited", "amount": 300})
        case "answer":
            approvals.answer(case, user=user, answer="by hand")
        case "claim":
            approvals.claim(case, user=user)
        case "release":
            approvals.release(case, user=user)
        case "happened":
            approvals.settle(case, user=user, verdict=verdict, result="it happened")
        case _:
            approvals.settle(case, user=user, verdict=verdict, reason="x")


@pytest.fixture
def people() -> dict[str, Any]:
    return {
        "rita": person("rita"),
        "sam": person("sam"),
        "finn": person("finn", groups=["Finance"]),
        "root": person("root", is_superuser=True),
        "starter": person("starter", is_superuser=True),
        "vera": person("vera", "view_approval", "change_approval", groups=["Finance"], may_decide=False),
        "gone": person("gone", groups=["Finance"], is_active=False),
    }


@pytest.fixture
def scripts() -> dict[str, list[Turn]]:
    """What the model says, by the first message of the run."""
    return {}


@settings(
    max_examples=20,
    derandomize=True,
    deadline=None,
    phases=[Phase.generate],  # There is nothing to shrink: all follows from a seed.
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(random=st.randoms(use_true_random=True))
def test_whatever_happens_to_a_turn_with_several_gated_calls(
    messages_api: ScriptedMessagesAPI, people: dict[str, Any], scripts: dict[str, list[Turn]], random: Random
) -> None:
    plan, again = random.choices(CALLS, k=random.randint(2, 5)), random.choices(CALLS, k=2)
    happenings = draw_steps(random)
    note(f"{plan=}, {again=}, {happenings=}")
    number = len(scripts) + 1
    turns = [asking(plan, "a"), asking([*plan, *again], "b"), say("Done.")]
    scripts[f"Example {number}."] = turns
    if number == 1:
        messages_api.add(lambda request: scripts[request.opening][request.assistant_turns])
    witness.effects.clear()
    witness.faults.clear()
    with desk(*TOOLS), fixed_clock() as clock, transaction.atomic():
        world = World(f"r{number}", people, clock)
        start_run("desk", f"Example {number}.", run_id=world.run_id, user=people["starter"])
        tasks.advance(world.run_id)
        for happening in happenings:
            world.perform(*happening)
            world.check()
        world.finish()
        world.check()
        if not world.tampered:
            world.check_declined()
        transaction.set_rollback(True)


def asking(plan: list[tuple[str, int]], turn: str) -> Turn:
    """The model asks for these calls, some of which it asked for before."""
    return say(
        *[
            tool_call(name, {"to": f"p{i}", "amount": amount}, id=f"toolu_{turn}{i}")
            for i, (name, amount) in enumerate(plan)
        ]
    )
