"""A site at rest on which all went well, small faults included: the auditor must find nothing wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from anvil_django import approvals, runs, start_run, tasks
from anvil_django.agents import registered, unregister
from anvil_django.models import AgentVersion, Approval, Run
from anvil_django.testing import ScriptedMessagesAPI, pause, say, thinking, tool_call
from anvil_django.testing.turns import Block, Turn
from tests.world import order, registered_agent, reviewer

from .facts import Billed, EffectKind, ExpectedEffect, ExpectedRun
from .scenarios import KINDS, conversation

AGENT, LIMITED = "audited_shop", "audited_limited_shop"


class Died(BaseException):
    """The worker died in a tool."""


@dataclass(frozen=True)
class Healthy:
    """What the runs left beside the tables."""

    log: str
    billed: list[Billed]
    expected: dict[str, ExpectedRun]


def call(tool: str, name: str) -> Block:
    """A call of one of the campaign's tools."""
    more = {"order": name.split(".")[0], "amount": "5"} if KINDS[tool] == "atomic" else {}
    return tool_call(tool, {"name": name, "nap": 0.0, **more})


SCRIPTS: dict[str, list[Turn]] = {
    "plain": [
        say(thinking("Hm."), "First.", call("look", "plain.look"), call("charge", "plain.charge")),
        pause("Still looking."),
        say(call("post", "plain.post")),
        say("plain is over."),
    ],
    "atomic": [
        say(call("refund", "atomic.refund"), call("fail", "atomic.fail")),
        say("atomic is over."),
    ],
    "asks": [
        say(call("charge_asking", "asks.charge"), call("refund_asking", "asks.refund")),
        say("asks is over."),
    ],
    "refused": [say(call("charge_asking", "refused.charge")), say("refused is over.")],
    "edited": [say(call("charge_asking", "edited.charge")), say("edited is over.")],
    "doubt": [say(call("charge", "doubt.charge")), say("doubt is over.")],
    "happened": [say(call("charge", "happened.charge")), say("happened is over.")],
    "waits": [say(call("charge_asking", "waits.charge"), call("refund_asking", "waits.refund"))],
    "cancelled": [say(call("charge_asking", "cancelled.charge"))],
    "limited": [say(call("look", "limited.look")), say("limited is over.")],
    "queued": [],
    "paused": [],
}
FORKED = say("forked is over.")
"""What the model says to "forked", which goes on where "plain" ended."""


def expected() -> dict[str, ExpectedRun]:
    """What the scripts should come to."""
    return {
        run_id: ExpectedRun(
            tuple(_effects(turns)), len(turns), f"{run_id} is over.", may_be_cancelled=run_id == "cancelled"
        )
        for run_id, turns in {**SCRIPTS, "forked": [FORKED]}.items()
    }


def _effects(turns: list[Turn]) -> Iterator[ExpectedEffect]:
    for turn in turns:
        for block in turn.content:
            if block["type"] == "tool_use":
                tool: str = block["name"]
                kind: EffectKind = KINDS[tool]
                asks, fails = tool.endswith("_asking"), tool == "fail"
                yield ExpectedEffect(block["input"]["name"], tool, kind, asks=asks, fails=fails)


@contextmanager
def healthy(folder: Path) -> Iterator[Healthy]:
    """Real runs of the real runtime, committed, and gone after the block."""
    was_known = "fault_shop" in registered()
    from . import agents  # Registers an agent, which the rest of the suite has no use for.

    if not was_known:
        unregister("fault_shop")
    tools = [agents.look, agents.charge, agents.charge_asking, agents.post, agents.refund]
    tools += [agents.refund_asking, agents.fail]
    api = ScriptedMessagesAPI(conversation=conversation)
    for run_id, turns in SCRIPTS.items():
        if turns:
            api.add(turns, match=f"[{run_id}]")
    api.add([FORKED], match="[plain]")
    limited = registered_agent(LIMITED, tools=tools, on_limit="ask", max_iterations=1)
    with api, pytest.MonkeyPatch.context() as patch, registered_agent(AGENT, tools=tools), limited:
        patch.setenv("ANVIL_FAULTS_FOLDER", str(folder))
        client = api.client()
        patch.setattr(
            agents, "note", dying(agents.note, {("ended", "plain.post"), ("began", "doubt.charge")})
        )
        patch.setattr(agents, "note", dying(agents.note, {("ended", "happened.charge")}))
        try:
            with override_settings(ANVIL={"CLIENT": lambda: client}):
                _play()
            billed = [Billed(item.message_id, _run_of(item), item.usage) for item in api.billed]
            yield Healthy((folder / "effects.jsonl").read_text(), billed, expected())
        finally:
            client.close()
            _clear()


def _run_of(item: Any) -> str:
    """The run that was answered; a fork begins as its parent did."""
    forked = (item.conversation, item.turn) == ("plain", len(SCRIPTS["plain"]))
    return "forked" if forked else str(item.conversation)


def dying(note: Callable[..., None], fatal: set[tuple[str, str]]) -> Callable[..., None]:
    """``agents.note``, after which the worker dies once at each of these places."""

    def noting(event: str, name: str, *rest: Any) -> None:
        note(event, name, *rest)
        if (event, name) in fatal:
            fatal.discard((event, name))
            raise Died

    return noting


def _play() -> None:
    rita = reviewer("auditor_rita")
    for run_id in SCRIPTS:
        order(run_id)
        start_run(LIMITED if run_id == "limited" else AGENT, f"[{run_id}] Please see to it.", run_id=run_id)
        if run_id not in {"queued", "paused"}:
            advance(run_id)
    runs.pause("paused", by="rita")
    for approval in pending("asks"):
        approvals.approve(approval, user=rita)
        runs.say("asks", "Hurry up.", by="rita")
    approvals.reject(pending("refused")[0], user=rita, reason="No.")
    edited = {"name": "edited.charge", "nap": 0.001}
    approvals.approve(pending("edited")[0], user=rita, edited_input=edited)
    approvals.settle(pending("doubt")[0], user=rita, verdict="not_happened")
    approvals.settle(pending("happened")[0], user=rita, verdict="happened", result="done")
    approvals.approve(pending("limited")[0], user=rita)
    runs.fork("plain", message="And now?", new_id="forked")
    for run_id in ("asks", "refused", "edited", "doubt", "happened", "limited", "forked"):
        advance(run_id)
    runs.cancel("cancelled", by="rita")


def advance(run_id: str) -> None:
    """Advance a run as far as it goes; a worker that dies is replaced."""
    try:
        tasks.advance(run_id)
    except Died:
        assert len(list(runs.recover(run_id=run_id))) == 1
        tasks.advance(run_id)


def pending(run_id: str) -> list[Approval]:
    """The open questions of a run."""
    return list(Approval.objects.filter(run__run_id=run_id, status="pending").order_by("id"))


def _clear() -> None:
    from django.contrib.auth import get_user_model
    from django_q.models import OrmQ

    from example_project.shop.models import Order, Refund

    Run.objects.filter(agent__in=[AGENT, LIMITED]).delete()
    AgentVersion.objects.filter(agent__in=[AGENT, LIMITED]).delete()
    Refund.objects.all().delete()
    Order.objects.all().delete()
    OrmQ.objects.all().delete()
    get_user_model().objects.filter(username="auditor_rita").delete()
