"""What the tools did to the world, against what is recorded of their calls and what should have happened."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from ..facts import EffectKind, ExpectedEffect, ExpectedRun, Finding
from .log import Line
from .rows import Approval, Call, Decision, Refund, Run, Tables

CLOCKS = 0.5
"""Seconds by which the database's clock and that of a worker may differ."""
NEVER_RAN = {"refused", "rejected", "expired", "declined"}
Problems = Iterator[tuple[str, str]]


@dataclass
class Case:
    """One call with all that is known about it."""

    run: Run
    call: Call
    kind: EffectKind
    expected: ExpectedEffect | None
    asked: list[tuple[Approval, Decision | None]]
    began: list[Line] = field(default_factory=list)
    ended: list[Line] = field(default_factory=list)
    refunds: list[Refund] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.expected.name if self.expected else f"{self.call.name} ({self.call.call_id})"

    @property
    def names(self) -> set[str]:
        """The effects that it may have, by what the model or a reviewer wrote."""
        edited = [decision.edited_input for _, decision in self.asked if decision is not None]
        return {_name(text) for text in (self.call.input, *edited) if text}

    @property
    def verdicts(self) -> list[str]:
        return [decision.verdict for _, decision in self.asked if decision is not None]

    @property
    def has_happened(self) -> bool:
        return bool(self.refunds if self.kind == "atomic" else self.ended)


def check_effects(
    tables: Tables, lines: list[Line], expected: Mapping[str, ExpectedRun]
) -> Iterator[Finding]:
    """Every effect belongs to a call, and happened as often as its record says."""
    cases = {(case.run.run_id, case.call.call_id): case for case in _cases(tables, lines, expected)}
    yield from _phantoms(cases, tables, lines, known_only=not expected)
    for line in lines:
        if case := cases.get((line.run, line.call)):
            (case.began if line.event == "began" else case.ended).append(line)
    for refund in tables.refunds:
        run_id, _, call_id = refund.idempotency_key.rpartition(":")
        if case := cases.get((run_id, call_id)):
            case.refunds.append(refund)
    for case in cases.values():
        for kind, sentence in _checked(case):
            yield Finding(kind, case.run.run_id, f"{case.name}: {sentence}")
    yield from _expected(cases, tables, expected)


def _cases(tables: Tables, lines: list[Line], expected: Mapping[str, ExpectedRun]) -> Iterator[Case]:
    seen = {(line.run, line.call): line for line in lines}
    for run in tables.runs:
        wanted = expected.get(run.run_id)
        by_name = {effect.name: effect for effect in wanted.effects} if wanted else {}
        for call in tables.calls_of[run.id]:
            effect = by_name.get(_name(call.input))
            asked = [(row, tables.last_decision(row)) for row in tables.approvals_of_call[call.id]]
            line = seen.get((run.run_id, call.call_id))
            yield Case(run, call, _kind(call, effect, line), effect, asked)


def _name(text: str) -> str:
    """The effect that these arguments ask for."""
    arguments = json.loads(text)
    return str(arguments.get("name", "")) if isinstance(arguments, dict) else ""


def _kind(call: Call, effect: ExpectedEffect | None, line: Line | None) -> EffectKind:
    """As the script says, or the tool; else as the runtime has noted it."""
    if effect is not None:
        return effect.kind
    if line is not None:
        return line.kind  # type: ignore[return-value]
    if call.effect == "external":
        return "idempotent" if call.on_interrupt == "retry" else "external"
    return "atomic" if call.effect == "atomic" else "read"


def _phantoms(
    cases: Mapping[tuple[str, str], Case], tables: Tables, lines: list[Line], *, known_only: bool
) -> Iterator[Finding]:
    """Effects of calls that nobody recorded, and keys that are not those of their calls."""
    phantoms: set[tuple[str, str]] = set()
    calls_of_key: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for line in lines:
        place = line.run, line.call
        calls_of_key[line.key].add(place)
        case = cases.get(place)
        if case is None or line.effect not in case.names:
            if place not in phantoms:
                sentence = f"{line.effect} belongs to no recorded call ({line.call})"
                yield Finding("phantom effect", line.run, sentence)
            phantoms.add(place)
        elif line.key != f"{line.run}:{line.call}":
            yield Finding("wrong key", line.run, f"{line.effect} {line.event} under the key {line.key}")
    for key, places in calls_of_key.items():
        if len(places) > 1:
            run_id = min(places)[0]
            yield Finding("wrong key", run_id, f"the key {key} was handed to {len(places)} calls")
    for refund in tables.refunds:
        run_id, _, call_id = refund.idempotency_key.rpartition(":")
        if (run_id, call_id) not in cases and not (known_only and run_id not in tables.run_by_name):
            yield Finding(
                "phantom effect", run_id, f"refund {refund.id} ({refund.reason}) belongs to no call"
            )


def _checked(case: Case) -> Problems:
    if case.kind == "atomic":
        yield from _atomic(case)
    elif case.kind in {"external", "idempotent"}:
        yield from _side_effect(case)
    yield from _allowed(case)
    yield from _result(case)


def _side_effect(case: Case) -> Problems:
    call = case.call
    if case.kind == "external" and len(case.ended) > 1:
        yield "effect twice", f"happened {len(case.ended)} times"
        return
    if len({line.key for line in case.ended}) > 1:
        yield "effect twice", "happened under several keys"
        return
    if case.kind == "external":
        yield from _begun_again(case)
    if call.outcome not in NEVER_RAN and len(case.began) > call.attempts:
        yield "effect unrecorded", f"began {len(case.began)} times, and {call.attempts} attempts are recorded"
    if len(case.began) < len(case.ended):
        yield "effect unrecorded", f"ended {len(case.ended)} times, and began {len(case.began)} times"


def _begun_again(case: Case) -> Problems:
    """Each further begin follows on a person's word that the one before did not happen."""
    words = [
        _seconds(decision.created_at)
        for approval, decision in case.asked
        if decision is not None and decision.verdict == "not_happened" and approval.used_at is not None
    ]
    for number, line in enumerate(case.began[1:]):
        if number >= len(words) or words[number] > line.at + CLOCKS:
            yield (
                "begun again unasked",
                f"began {len(case.began)} times, and a person allowed it {len(words)}",
            )
            return


def _atomic(case: Case) -> Problems:
    if len(case.refunds) > 1:
        yield "atomic row doubled", f"{len(case.refunds)} rows"
    elif case.refunds and case.call.outcome not in {"returned", *NEVER_RAN}:
        yield "atomic row unrecorded", f"its row is there, and its call is {_standing(case.call)}"
    elif not case.refunds and case.call.outcome == "returned" and case.expected is not None:
        yield "atomic row missing", "its call returned, and its row is not there"


def _allowed(case: Case) -> Problems:
    """Nothing happens without the yes that it needs, before it, or after a no."""
    if not case.began and not case.has_happened:
        return
    if case.call.outcome in NEVER_RAN:
        yield "effect after a no", f"it began, and its call is {_standing(case.call)}"
        return
    if case.call.outcome == "cancelled" and case.kind == "external":
        yield "effect of a cancelled call", "it began, and is recorded as never begun"
    questions = [(approval, decision) for approval, decision in case.asked if approval.kind == "tool"]
    if not questions and not (case.expected and case.expected.asks):
        return
    approval, decision = questions[-1] if questions else (None, None)
    if decision is not None and decision.verdict not in {"approved", "edited"}:
        yield "effect after a no", f"it began, and {decision.reviewer} said {decision.verdict}"
    elif approval is None or decision is None or approval.used_at is None:
        yield "effect without approval", "it began, and no person's yes was used for it"
    elif case.began and case.began[0].at + CLOCKS < _seconds(decision.created_at):
        yield "effect without approval", f"it began before {decision.reviewer} said yes"


def _result(case: Case) -> Problems:
    """What the model was told is what happened."""
    call = case.call
    # Of an atomic tool only its row tells.
    told = call.outcome == "returned" or (call.outcome == "answered" and "happened" in case.verdicts)
    fails = case.expected is not None and case.expected.fails
    if told and not case.ended and not fails and (case.began or case.expected) and case.kind != "atomic":
        yield "effect lost", f"its call is {_standing(call)}, and it never happened"
    if case.expected is None:
        return
    if case.expected.fails and case.ended:
        yield "phantom effect", "it happened, and its tool can only fail"
    if case.expected.fails and call.outcome == "returned":
        yield "result differs", "it can only fail, and the model was told that it went well"
    if not case.expected.fails and call.outcome == "failed" and call.is_error:
        yield "call failed", f"the model was told {call.result}"
    allowed = bool({"approved", "edited"} & set(case.verdicts))
    if case.run.status == "done" and allowed and call.outcome in {*NEVER_RAN, "cancelled"}:
        yield "decision not followed", f"a person said yes, and its call is {_standing(call)}"


def _expected(
    cases: Mapping[tuple[str, str], Case], tables: Tables, expected: Mapping[str, ExpectedRun]
) -> Iterator[Finding]:
    """Every effect of a finished run was asked for, once, and its call has its result."""
    by_name: dict[str, list[Case]] = defaultdict(list)
    for case in cases.values():
        if case.expected is not None:
            by_name[case.name].append(case)
    for run_id, wanted in expected.items():
        run = tables.run_by_name.get(run_id)
        if run is None:
            continue
        for effect in wanted.effects:
            found = by_name[effect.name]
            if len(found) > 1 and sum(case.has_happened for case in found) > 1 and effect.kind != "read":
                yield Finding("effect twice", run_id, f"{effect.name}: happened in {len(found)} calls")
            if run.status != "done":
                continue
            if not found:
                yield Finding(
                    "effect lost", run_id, f"{effect.name}: the run is done, and it was never asked for"
                )
            yield from _unfinished(run_id, effect, found)


def _unfinished(run_id: str, effect: ExpectedEffect, found: list[Case]) -> Iterator[Finding]:
    """A call of a finished run returned, unless a person or the tool itself is why it did not."""
    for case in found:
        outcome, verdicts = case.call.outcome, set(case.verdicts)
        excused = {
            "failed": True,  # Looked at with its result.
            "rejected": "rejected" in verdicts,
            "expired": "expired" in verdicts,
            "answered": bool({"answered", "happened"} & verdicts),
            "unknown": "unknown" in verdicts or case.call.on_interrupt == "fail",
        }
        if case.call.status != "done" or (outcome != "returned" and not excused.get(outcome, False)):
            sentence = f"{effect.name}: the run is done, and its call is {_standing(case.call)}"
            yield Finding("effect lost", run_id, sentence)


def _standing(call: Call) -> str:
    return call.outcome or call.status


def _seconds(at: datetime | None) -> float:
    return at.timestamp() if at is not None else float("inf")
