"""``manage.py anvil_run AGENT TEXT``: start a run and follow it in the terminal."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from typing import Any

from django.core.management.base import CommandError, CommandParser

from ... import exactjson, redaction, runs
from ...checkpoint import Checkpointer
from ...clock import get_clock
from ...drive import stream_agent
from ...errors import AnvilError
from ...events import Event, IterationFinished, Retrying, TextDelta, ToolFinished, ToolStarted
from ...history import text_of
from ...identity import check_run_id, new_run_id
from ...models import Message, Run, ToolCall
from ...states import CallStatus, RunStatus
from ...stores.django import DjangoStateStore
from ..terminal import (
    TerminalCommand,
    as_text,
    fitted,
    money,
    named_user,
    one_line,
    open_questions,
    plain,
    standing,
    tokens_of,
)

POLL_SECONDS = 0.3
PATIENCE = 10.0
"""Seconds a run may wait for a worker before the command says what may be wrong."""
INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""


class Command(TerminalCommand):
    """Starts a run and shows its text, tool calls, results and waits until it ends or waits for a person."""

    help = "Start a run of an agent and follow it until it ends or waits for a person."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("agent", help="name of a registered agent")
        parser.add_argument("text", help="what the user says")
        parser.add_argument("--run-id", help="an id of your own; the same request again follows the same run")
        parser.add_argument("--user", metavar="USERNAME", help="who it runs for")
        parser.add_argument("--metadata", metavar="JSON", help="a JSON object that goes along with the run")
        parser.add_argument(
            "--here", action="store_true", help="advance it in this process, without the workers"
        )

    def handle(self, *args: Any, **options: Any) -> None:
        run_id = new_run_id() if options["run_id"] is None else check_run_id(options["run_id"])
        user = None if options["user"] is None else named_user(options["user"])
        request = {"user": user, "metadata": _metadata(options["metadata"])}
        agent, text = options["agent"], options["text"]
        try:
            if options["here"]:
                self._drive(agent, text, run_id, request)
            else:
                self._follow(runs.start(agent, text, run_id=run_id, **request))
        except KeyboardInterrupt:
            self.progress("")
            self.stderr.write(_after_interrupt(run_id, options))
            sys.exit(INTERRUPTED)
        self._end(runs.get(run_id))

    # Advanced by the workers.

    def _follow(self, run: Run) -> None:
        self.stdout.write(f"Run {run.run_id} of {one_line(run.agent)}.")
        since, warned = get_clock().monotonic(), False
        follower = Follower(run)
        while True:
            # The status first: rows stored before a run came to rest are all there when it is seen at rest.
            run = runs.get(run.run_id)
            news = follower.news()
            self.progress("")
            for line in news:
                self.stdout.write(line)
            if run.status not in {str(RunStatus.QUEUED), str(RunStatus.RUNNING)}:
                return
            idle = get_clock().monotonic() - since
            if run.status == str(RunStatus.RUNNING):
                since, warned = get_clock().monotonic(), False
            elif idle > PATIENCE and not warned:
                warned = True
                self.tell(f"{standing(run)}. If no worker runs, start one with: manage.py anvil_worker")
            state = follower.awaited() if run.status == str(RunStatus.RUNNING) else run.why
            self.progress(
                _progress(run.iterations, follower.asked, tokens_of(run), run.cost_usd, state or run.status)
            )
            get_clock().sleep(POLL_SECONDS)

    # Advanced here.

    def _drive(self, agent: str, text: str, run_id: str, request: dict[str, Any]) -> None:
        saver = Checkpointer(DjangoStateStore(), run_id)
        events = stream_agent(agent, text, checkpoint=saver, **request)
        self.stdout.write(f"Run {run_id} of {one_line(agent)}.")
        # Closed whatever happens, so that an interrupted run is handed back between two steps if it can be.
        with closing(events):
            in_text, seen = False, Seen()
            for event in events:
                self.progress("")
                if isinstance(event, TextDelta):
                    self.stdout.write(plain(event.text), ending="")
                    self.stdout.flush()
                    in_text = True
                    continue
                if in_text:
                    self.stdout.write("")
                    in_text = False
                for line in _event_lines(event):
                    self.stdout.write(line)
                self.progress(seen.after(event))
        self.progress("")

    def _end(self, run: Run) -> None:
        tokens = tokens_of(run) - run.output_tokens
        self.stdout.write(
            f"{standing(run)}. Model calls: {run.iterations}; tokens: {tokens} in, {run.output_tokens} out; "
            f"{money(run.cost_usd)}."
        )
        for question in open_questions(run):
            self.stdout.write(f"  {question}")
        if run.status in {str(s) for s in (RunStatus.FAILED, RunStatus.PAUSED)}:
            raise CommandError(
                f"It can go on from its last completed step: manage.py anvil_resume --run {run.run_id}"
            )


def _progress(iterations: int, calls: int, tokens: int, cost: Decimal | None, state: str) -> str:
    """How far a run has come and what it waits for, short enough for the last line of a terminal."""
    counts = f"model calls: {iterations}, tool calls: {calls}, tokens: {tokens}, {money(cost)}"
    return fitted(f"{counts}; {one_line(state)}")


MODEL = "waits for the model"


class Seen:
    """How far a run has come, by its events in this process."""

    def __init__(self) -> None:
        self._iterations = self._calls = self._tokens = 0
        self._cost: Decimal | None = Decimal(0)
        self._state = MODEL

    def after(self, event: Event) -> str:
        """How far it has come once that has happened."""
        match event:
            case ToolStarted():
                self._calls += 1
                self._state = f"runs {event.name}"
            case ToolFinished():
                self._state = MODEL
            case IterationFinished():
                self._iterations = event.iteration
                self._tokens, self._cost = event.total_usage.total, event.total_cost_usd
            case Retrying():
                self._state = "waits for the next attempt"
        return _progress(self._iterations, self._calls, self._tokens, self._cost, self._state)


New = tuple[tuple[int, int, int], str]
"""A line and its place: the number of the message, what it is, the place in the turn."""


class Follower:
    """What is new in the rows of a run since it was last asked."""

    def __init__(self, run: Run) -> None:
        self._run_pk = run.pk
        self._next_message = 0
        self._first_open = 0
        self._shown: dict[int, str] = {}
        self._finished: set[int] = set()

    @property
    def asked(self) -> int:
        """How many tool calls it has made."""
        return len(self._shown)

    def awaited(self) -> str:
        """What a worker that advances it is waiting for."""
        open_calls = [name for pk, name in self._shown.items() if pk not in self._finished]
        return f"runs {', '.join(open_calls)}" if open_calls else MODEL

    def news(self) -> list[str]:
        """New lines in the order in which they happened: texts of both sides, tool calls, their results."""
        found = sorted([*self._messages(), *self._calls()], key=lambda new: new[0])
        return [line for _, line in found]

    def _messages(self) -> Iterator[New]:
        messages = Message.objects.filter(run_id=self._run_pk, seq__gte=self._next_message).order_by("seq")
        for message in messages:
            self._next_message = message.seq + 1
            content = redaction.shown_content(exactjson.loads(message.content))
            text = text_of({"role": message.role, "content": content})
            if text.strip():
                yield (message.seq, 0, 0), _said(message.role, text)

    def _calls(self) -> Iterator[New]:
        calls = ToolCall.objects.filter(run_id=self._run_pk, seq__gte=self._first_open)
        for call in calls.order_by("seq", "index"):
            # A turn is stored with all its calls, and only when every call of the turn before is done.
            self._first_open = call.seq
            if call.pk not in self._shown:
                self._shown[call.pk] = call.name
                yield (call.seq, 1, call.index), _asked(call.name, exactjson.loads(call.input))
            if call.status == str(CallStatus.DONE) and call.pk not in self._finished:
                self._finished.add(call.pk)
                content = exactjson.loads(call.result or "null")
                yield (call.seq, 2, call.index), _answered(call.name, content, call.is_error)


def _event_lines(event: Event) -> Iterator[str]:
    match event:
        case ToolStarted():
            yield _asked(event.name, event.input)
        case ToolFinished():
            yield _answered(event.name, event.content, event.is_error)
        case Retrying():
            yield f"  (the model call failed: {one_line(event.code)}; again in {event.seconds:.1f} s)"


def _said(role: str, text: str) -> str:
    return "> " + plain(text).strip().replace("\n", "\n> ") if role == "user" else plain(text).strip()


def _asked(name: str, arguments: Any) -> str:
    return f"  -> {one_line(name)} {one_line(as_text(redaction.shown(name, arguments)))}"


def _answered(name: str, content: Any, is_error: bool) -> str:
    shown = redaction.shown(name, content)
    return f"  <- {one_line(name)}{' failed' if is_error else ''}: {one_line(as_text(shown))}"


def _metadata(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return exactjson.loads(text)
    except (ValueError, AnvilError) as exc:
        raise CommandError(f"--metadata is not JSON: {one_line(str(exc))}") from None


def _after_interrupt(run_id: str, options: dict[str, Any]) -> str:
    if not Run.objects.filter(run_id=run_id).exists():
        return "\nStopped before the run was stored."
    if options["here"]:
        return (
            "\nStopped. What was completed is stored, and a worker goes on from there. If none does, or not "
            f"soon enough: manage.py anvil_resume --run {run_id}"
        )
    again = shlex.join(["manage.py", "anvil_run", options["agent"], options["text"], "--run-id", run_id])
    for name in ("user", "metadata"):
        if options[name] is not None:
            again += f" --{name} {shlex.quote(options[name])}"
    return f"\nNo longer followed; the workers go on with it. To follow it again: {plain(again)}"
