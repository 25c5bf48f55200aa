"""A scenario run once undisturbed, and once more for each boundary of it, with a crash there.

    SCENARIO = Scenario(
        agent="support",
        input="Refund order A-1, please.",
        turns=[say(tool_call("refund_order", {"number": "A-1"})), say("Refunded.")],
        effects=lambda: Refund.objects.values_list("order__number", "amount"),
    )

    @pytest.mark.django_db
    def test_a_refund_survives_any_crash(messages_api):
        crash_everywhere(SCENARIO, messages_api)

After each crash another process goes on as the workers do, and the run must end as it did undisturbed: the
same status and stop reason, the same history byte for byte, the same usage, no rule of the Messages API
broken, and each effect once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from django.db import connections, transaction

from anvil_django import Agent, Checkpointer, Decision, start_run, tasks
from anvil_django.clock import FixedClock
from anvil_django.conf import get_settings
from anvil_django.models import Approval, Run
from anvil_django.recovery import recover
from anvil_django.states import TERMINAL, ApprovalKind, Outcome, RunStatus
from anvil_django.stores import DjangoStateStore
from anvil_django.testing.clocks import fixed_clock
from anvil_django.testing.endings import Ending, differences, result_of
from anvil_django.testing.killpoints import Kill, Place, Reached, Where, hooked, label
from anvil_django.testing.server import ScriptedMessagesAPI
from anvil_django.testing.turns import Turn

RUN_ID = "crash-everywhere"
PATIENCE = 200
"""How often a run is offered to a worker, or to people, before it counts as one that does not end."""
SHOWN = 5
"""How many failed boundaries are told in full."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """What ``crash_everywhere`` runs.

    Args:
        agent: The agent, or its name.
        input: What the run is started with, as for ``start_run``.
        effects: All that the agent's side effects have left in the world, as values whose ``repr`` tells them
            apart: rows, mails, calls of a fake client. ``list`` where there are none.
        turns: What the model says; left out where the test has scripted the Messages API itself.
        reset: Makes the world as it is before the run; called before each round. What the test's own database
            transaction holds is rolled back without it.
        decide: What a person does with an ``Approval`` that asks for permission or for a higher limit; by
            default it is approved, by as many people as it takes.
        settle: What a person does with an ``Approval`` about a call in doubt. By default it is looked up in
            ``effects`` whether it happened: if so, the result is that of the undisturbed run; if not, the
            call is run.
        user: Who starts the run.
        metadata: Goes along with the run.
    """

    agent: Agent | str
    input: str | Sequence[Mapping[str, Any]]
    effects: Callable[[], Iterable[Any]]
    turns: Sequence[Turn] = ()
    reset: Callable[[], object] | None = None
    decide: Callable[[Approval], object] | None = None
    settle: Callable[[Approval], object] | None = None
    user: Any = None
    metadata: Mapping[str, Any] | None = None

    def happened(self) -> list[str]:
        """The effects as text, sorted."""
        return sorted(repr(effect) for effect in self.effects())


@dataclass(frozen=True)
class CrashReport:
    """What ``crash_everywhere`` found."""

    #: The run without a crash.
    undisturbed: Ending
    #: Every boundary of the run in order, as ``kill_at`` takes it: ``"tool.returned#2"``.
    boundaries: list[str]
    #: The tools whose calls were in doubt, by the boundary of the crash.
    in_doubt: dict[str, list[str]] = field(default_factory=dict)
    #: What was wrong after a crash, a sentence each, by its boundary.
    failures: dict[str, list[str]] = field(default_factory=dict)

    def check(self) -> None:
        """Fail on what was wrong.

        Raises:
            AssertionError: With the boundaries, and what was different after a crash there.
        """
        if not self.failures:
            return
        lines = [f"{len(self.failures)} of {len(self.boundaries)} crashes changed what came of the run:"]
        for where, found in list(self.failures.items())[:SHOWN]:
            lines += [f"  a crash at {where}:", *(f"    - {sentence}" for sentence in found)]
        if more := list(self.failures)[SHOWN:]:
            lines.append(f"  and at {', '.join(more)}")
        lines.append(f'Only that one again: crash_everywhere(..., only="{next(iter(self.failures))}")')
        raise AssertionError("\n".join(lines))


def crash_everywhere(
    scenario: Scenario, api: ScriptedMessagesAPI, *, only: Where | None = None, subtests: Any = None
) -> CrashReport:
    """Run a scenario once undisturbed, then once for each boundary of it with a crash there.

    In a test inside a transaction (``@pytest.mark.django_db``, ``TestCase``) each round is rolled back. In
    one that commits (``transaction=True``) the run is deleted and ``Scenario.reset`` has to undo the effects.

    Args:
        scenario: What to run.
        api: The Messages API that the agent's client talks to: the fixture ``messages_api``.
        only: Crash at this boundary only: ``7``, ``"tool.returned#2"``, or ``"tool.returned"`` for every time
            that it is reached.
        subtests: The fixture of pytest 9: each boundary is then a result of its own in pytest's report.

    Raises:
        AssertionError: A crash changed what came of the run; or the rounds cannot be compared, because the
            world was not the same before each, or the run does not take the same way twice.
        ValueError: The run does not reach ``only``.
    """
    if scenario.turns:
        api.add(scenario.turns, keyed="history")
    undisturbed = _Round(scenario, api).play()
    names = undisturbed.reached
    report = CrashReport(undisturbed, [label(names, n + 1) for n in range(len(names))])
    if undisturbed.problems:
        raise AssertionError("Without any crash: " + "; ".join(undisturbed.problems))
    for number in _numbers(only, names):
        where = label(names, number)
        ending = _Round(scenario, api, undisturbed).play(number)
        if ending.doubts:
            report.in_doubt[where] = ending.doubts
        found = differences(undisturbed, ending)
        if found:
            report.failures[where] = found
        if subtests is not None:
            with subtests.test(where):
                if found:
                    raise AssertionError("\n  - ".join([f"a crash at {where}:", *found]))
    if subtests is None:
        report.check()
    return report


def _numbers(only: Where | None, names: Sequence[str]) -> list[int]:
    """Which of the boundaries to crash at, counted from 1."""
    numbers = list(range(1, len(names) + 1))
    if only is None:
        return numbers
    place = Place.parse(only)
    if only == place.name:
        chosen = [number for number in numbers if names[number - 1] == only]
    else:
        chosen = [number for number in numbers if place.is_last_of(names[:number])]
    if not chosen:
        raise ValueError(f"The run does not come to {only}; it comes to {len(names)} boundaries.")
    return chosen


class _Round:
    """One run of the scenario, from a clean world to its end.

    Args:
        scenario: What is run.
        api: Where its model is.
        undisturbed: How it ends without a crash; None: that is what is found out.
    """

    def __init__(
        self, scenario: Scenario, api: ScriptedMessagesAPI, undisturbed: Ending | None = None
    ) -> None:
        self._scenario, self._api, self._undisturbed = scenario, api, undisturbed
        self._store = DjangoStateStore()
        self._doubts: list[str] = []
        # What had happened when the tool that runs now began; None between two tools.
        self._before_tool: list[str] | None = None
        self._took_effect = False

    def play(self, number: int | None = None) -> Ending:
        """Run it, with a crash at the ``number``-th boundary, and take everything back."""
        self._api.rewind()
        problems = len(self._api.problems(unconsumed=False))
        with _undone(self._store):
            if self._scenario.reset is not None:
                self._scenario.reset()
            start = self._scenario.happened()
            if self._undisturbed is not None and start != self._undisturbed.start:
                raise AssertionError(
                    "The world is not the same before each round: give Scenario a reset. Before the first "
                    f"one there were {self._undisturbed.start}, and now {start}."
                )
            reached = Reached(None if number is None else Place("", number))
            self._live_twice(reached)
            self._check_way(reached, number)
            checkpoint = self._store.load(RUN_ID)
            assert checkpoint is not None
            return Ending.of(
                checkpoint,
                start=start,
                effects=self._scenario.happened(),
                reached=reached.names,
                doubts=self._doubts,
                unknown=self._unknown(),
                problems=self._api.problems(unconsumed=False)[problems:],
            )

    def _live_twice(self, reached: Reached) -> None:
        """Go on after the crash as the next process does, which nothing kills."""
        settings = get_settings()
        wait = max(settings.lease_seconds, settings.ticket_seconds) + 1
        with fixed_clock() as clock:
            try:
                with hooked(lambda name: self._watch(reached, name)):
                    self._live(clock, wait)
            except Kill:
                clock.advance(wait)  # The dead worker's lease runs out.
                with hooked(None):
                    self._live(clock, wait)

    def _watch(self, reached: Reached, name: str) -> None:
        """Note what had happened when a tool began, and whether it has taken effect when the crash comes."""
        if name == "tool.before":
            self._before_tool = self._scenario.happened()
        elif name == "save.done":
            self._before_tool = None  # Its result is stored; what may be in doubt now has not begun.
        try:
            reached(name)
        except Kill:
            if name == reached.killed_at and self._before_tool is not None:
                self._took_effect = self._scenario.happened() != self._before_tool
            raise

    def _live(self, clock: FixedClock, wait: float) -> None:
        scenario = self._scenario
        # After a crash the caller asks again, which is the same run.
        start_run(
            scenario.agent, scenario.input, user=scenario.user, run_id=RUN_ID, metadata=scenario.metadata
        )
        for _ in range(PATIENCE):
            list(recover(run_id=RUN_ID))
            tasks.advance(RUN_ID)
            run = Run.objects.get(run_id=RUN_ID)
            if run.status == RunStatus.SUSPENDED:
                self._answer()
            elif run.status in {*TERMINAL, RunStatus.PAUSED}:
                return
            else:
                clock.advance(wait)  # For the sweep: the doorbell was not answered.
        raise AssertionError(f"The run does not end: it is {run.status}. {run.error}")

    def _answer(self) -> None:
        pending = Approval.objects.filter(run__run_id=RUN_ID, status="pending").select_related("run", "call")
        for approval in pending:
            if approval.kind == ApprovalKind.IN_DOUBT:
                self._doubts.append(approval.tool)
                (self._scenario.settle or self._settle)(approval)
            else:
                (self._scenario.decide or self._approve)(approval)

    def _approve(self, approval: Approval, answer: Any = None) -> None:
        for person in range(approval.needed):
            decision = Decision(approved=True, reviewer=f"Reviewer {person + 1}", answer=answer)
            self._store.decide(RUN_ID, approval.call.call_id, decision)

    def _settle(self, approval: Approval) -> None:
        if self._undisturbed is None:
            raise AssertionError(
                f"A call of {approval.tool!r} is in doubt although nothing crashed: give Scenario a settle."
            )
        happened = self._took_effect
        answer = result_of(self._undisturbed, approval.call.call_id) if happened else None
        self._approve(approval, answer)

    def _unknown(self) -> list[str]:
        """The calls of which the model was told that nobody knows what came of them."""
        calls = Run.objects.get(run_id=RUN_ID).tool_calls.filter(outcome=str(Outcome.UNKNOWN))
        return list(calls.order_by("seq").values_list("call_id", flat=True))

    def _check_way(self, reached: Reached, number: int | None) -> None:
        if self._undisturbed is None or number is None:
            return
        expected = self._undisturbed.reached[:number]
        for n, (name, other) in enumerate(zip_longest(reached.names, expected), start=1):
            if name != other:
                came = label(reached.names, n) if name else "its end"
                raise AssertionError(
                    "The run does not take the same way twice, so that its crashes cannot be compared: this "
                    f"time it came to {came} instead of {label(expected, n)}."
                )


@contextmanager
def _undone(store: DjangoStateStore) -> Iterator[None]:
    """Take back what the block writes: by the transactions the test is in, or else by deleting the run."""
    held = [one.alias for one in connections.all(initialized_only=True) if one.in_atomic_block]
    with ExitStack() as stack:
        for alias in held:
            block = transaction.atomic(using=alias)
            # As the blocks of TestCase: inside of it ``atomic(durable=True)`` is outermost.
            block._from_testcase = True  # type: ignore[attr-defined]
            stack.enter_context(block)
        try:
            yield
        finally:
            for alias in held:
                transaction.set_rollback(True, using=alias)
            if store.alias not in held:
                Checkpointer(store, RUN_ID).delete()
