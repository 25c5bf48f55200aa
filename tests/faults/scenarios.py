"""The runs of a campaign, made from its seed: what the model says, what comes of it, who decides what."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from anvil_django.testing import fault, pause, say, thinking, tool_call
from anvil_django.testing.fault import Fault
from anvil_django.testing.scripts import Request
from anvil_django.testing.turns import Block, Turn

from .facts import EffectKind, ExpectedEffect, ExpectedRun

Plan = Literal["approve", "reject", "race"]
KINDS: dict[str, EffectKind] = {
    "look": "read",
    "charge": "external",
    "charge_asking": "external",
    "post": "idempotent",
    "refund": "atomic",
    "refund_asking": "atomic",
    "fail": "external",
}
STALL_SECONDS = 2.5
"""Longer than the client waits for a byte."""
MODEL_FAULT_SHARE = 0.12
"""How many of the turns are preceded by a fault."""
_TOOLS = ["look", "charge", "post", "refund", "charge_asking", "refund_asking", "fail"]
_WEIGHTS = [26, 24, 16, 16, 7, 6, 5]


@dataclass(frozen=True)
class Scenario:
    """One run."""

    run_id: str
    turns: list[Turn]
    expected: ExpectedRun
    plans: Mapping[str, Plan] = field(default_factory=dict)
    """By the name of the effect that a person is asked about."""
    model_faults: Counter[str] = field(default_factory=Counter)

    @property
    def opening(self) -> str:
        return f"[{self.run_id}] Please see to it."


def make(seed: int, number: int, *, cancellable: bool) -> Scenario:
    """The run of that number: the same for the same seed."""
    rng = random.Random(f"{seed}:{number}")
    run_id = f"r{number:04d}"
    turns: list[Turn] = []
    effects: list[ExpectedEffect] = []
    plans: dict[str, Plan] = {}
    for _ in range(rng.choice([1, 2, 2, 3, 3, 4])):
        if rng.random() < 0.12:
            turns.append(pause(thinking("This takes longer."), "Still looking."))
        calls: list[Block] = []
        for _ in range(rng.choice([1, 1, 2, 2, 3, 4])):
            name = f"{run_id}.{len(effects) + 1}"
            tool = rng.choices(_TOOLS, _WEIGHTS)[0]
            effects.append(
                ExpectedEffect(name, tool, KINDS[tool], asks=tool.endswith("_asking"), fails=tool == "fail")
            )
            if tool.endswith("_asking"):
                plans[name] = rng.choice(["approve", "approve", "reject", "race", "race", "race"])
            calls.append(tool_call(tool, _arguments(tool, name, run_id, rng)))
        head: list[Block | str] = [thinking("Hm.")] if rng.random() < 0.4 else []
        if rng.random() < 0.3:
            head.append("I see to it.")
        turns.append(say(*head, *calls, delay=rng.choice([0.0, 0.02, 0.05, 0.3])))
    last = f"{run_id} is seen to."
    turns.append(say(last))
    faults: Counter[str] = Counter()
    for position, turn in enumerate(turns):
        if rng.random() < MODEL_FAULT_SHARE:
            kind = rng.choice(sorted(_FAULTS))
            faults[kind] += 1
            turns[position] = turn.after(_FAULTS[kind])
    expected = ExpectedRun(tuple(effects), len(turns), last, may_be_cancelled=cancellable)
    return Scenario(run_id, turns, expected, plans, faults)


_FAULTS: dict[str, Fault] = {
    "529 overloaded": fault.overloaded(),
    "429 rate limited": fault.rate_limited(1),
    "500 error": fault.http(500),
    "overloaded in mid stream": fault.overloaded_mid_stream(),
    "connection dropped in mid stream": fault.dropped(),
    "stream ends early": fault.early_eof(),
    "stall": fault.stall(STALL_SECONDS),
    "garbage": fault.garbage(),
    "no answer": fault.no_answer(),
}


def _arguments(tool: str, name: str, run_id: str, rng: random.Random) -> dict[str, Any]:
    arguments: dict[str, Any] = {"name": name, "nap": rng.choice([0.02, 0.1, 0.2, 0.3, 0.5])}
    if KINDS[tool] == "atomic":
        # A transaction is open meanwhile; on SQLite it is the only one that writes.
        arguments |= {"order": run_id, "amount": str(rng.randrange(1, 100)), "nap": 0.03}
    elif tool == "look" and rng.random() < 0.15:
        arguments["nap"] = 1.2
    return arguments


class Model:
    """The scripted answers of all runs, and how many faults were served."""

    def __init__(self, scenarios: list[Scenario]) -> None:
        self._by_run = {scenario.run_id: scenario for scenario in scenarios}
        self._asked: Counter[tuple[str, int]] = Counter()
        self.faults_served = 0

    def __call__(self, request: Request) -> Turn:
        """Called by the server, under its lock, for every request."""
        turns = self._by_run[request.conversation].turns
        turn = turns[min(request.assistant_turns, len(turns) - 1)]
        place = request.conversation, request.assistant_turns
        if self._asked[place] < len(turn.preceded_by):
            self.faults_served += 1
        self._asked[place] += 1
        return turn


def conversation(body: Mapping[str, Any], headers: Mapping[str, str]) -> str:
    """The run id, which every opening begins with."""
    content = body["messages"][0]["content"]
    text = content if isinstance(content, str) else content[0]["text"]
    return str(text[1 : text.index("]")])
