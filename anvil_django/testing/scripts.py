"""Which turn a request gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from anvil_django.testing.fault import Fault
from anvil_django.testing.turns import Turn
from anvil_django.testing.wire import Answer, render

Keyed = Literal["history", "order"]


@dataclass(frozen=True, slots=True)
class Request:
    """One ``POST /v1/messages`` as it arrived."""

    #: 1 for the first request the server got.
    number: int
    body: dict[str, Any]
    #: Names in lower case; credentials are blotted out.
    headers: Mapping[str, str]
    conversation: str
    #: How many assistant messages the body holds.
    assistant_turns: int
    #: Bytes of the body.
    size: int

    @property
    def opening(self) -> str:
        """The text of the first user message, which ``match`` is looked for in."""
        return opening_text(self.body)


ScriptFunction = Callable[[Request], Turn]
ScriptSource = Sequence[Turn] | ScriptFunction


def opening_text(body: Mapping[str, Any]) -> str:
    """All text of the first user message of a request body, joined."""
    for message in body.get("messages") or ():
        if isinstance(message, dict) and message.get("role") == "user":
            content = message.get("content")
            if isinstance(content, str):
                return content
            if isinstance(content, list):
                texts = (block.get("text") for block in content if isinstance(block, dict))
                return "\n".join(value for value in texts if isinstance(value, str))
    return ""


@dataclass(frozen=True, slots=True)
class Faulted:
    """The request gets a fault; ``answer`` is what a fault in mid stream is cut from."""

    fault: Fault
    answer: Answer


class Script:
    """Turns, and how far each conversation is in them. Not locked: the server asks under its own lock.

    Args:
        source: Turns, or a function of the request that gives one.
        match: The text the first user message of a conversation must contain; ``None`` takes any.
        keyed: ``"history"``: the turn at the number of assistant messages in the request, so a repeated
            request gets the same bytes again, and every conversation plays the script from its start.
            ``"order"``: each request gets the next turn, whoever sends it.
        seeded: How many assistant messages the first request of a conversation already holds.
    """

    def __init__(self, source: ScriptSource, *, match: str | None, keyed: Keyed, seeded: int = 0) -> None:
        if keyed not in ("history", "order"):
            raise ValueError(f'keyed must be "history" or "order", not {keyed!r}')
        self.match = match
        self.keyed = keyed
        self._function = source if callable(source) else None
        self._turns: list[Turn] = [] if callable(source) else list(source)
        self._seeded = seeded
        self._cursor = 0
        self._preceding: dict[tuple[str, int], int] = {}
        self._answers: dict[tuple[str, int], Answer] = {}
        self._served: set[int] = set()

    def extend(self, turns: Sequence[Turn]) -> None:
        """Add turns after the last one."""
        if self._function is not None:
            raise ValueError(f"The script for match={self.match!r} is a function; it cannot be added to.")
        self._turns.extend(turns)

    def rewind(self) -> None:
        """Play from the start again, with what precedes each turn; answers stay as they were rendered."""
        self._cursor = 0
        self._preceding.clear()

    def takes(self, request: Request) -> bool:
        return self.match is None or self.match in request.opening

    def next(self, request: Request) -> Answer | Faulted | None:
        """What the request gets; ``None`` when the script has no turn for it."""
        by_order = self.keyed == "order" and self._function is None
        index = self._cursor if by_order else request.assistant_turns - self._seeded
        if self._function is not None:
            turn = self._function(request)
        elif 0 <= index < len(self._turns):
            turn = self._turns[index]
        else:
            return None
        # By order, the requests of any conversation take what precedes the turn.
        key = ("" if by_order else request.conversation, index)
        step = self._preceding.get(key, 0)
        if step < len(turn.preceded_by):
            self._preceding[key] = step + 1
            before = turn.preceded_by[step]
            if isinstance(before, Turn):
                return self._render(before, request, index, f"{index}.{step}")
            return Faulted(before, self._render(turn, request, index, str(index)))
        self._served.add(index)
        if by_order:
            self._cursor += 1
        if self._function is not None:
            return self._render(turn, request, index, str(index))
        answer = self._answers.get(key)
        if answer is None:
            answer = self._answers[key] = self._render(turn, request, index, str(index))
        return answer

    def unconsumed(self) -> list[tuple[int, Turn]]:
        """The turns that no request got, with their positions."""
        return [(index, turn) for index, turn in enumerate(self._turns) if index not in self._served]

    @staticmethod
    def _render(turn: Turn, request: Request, index: int, position: str) -> Answer:
        return render(
            turn,
            seed=f"{request.conversation}:{position}",
            index=index,
            model=str(request.body.get("model")),
            prompt_bytes=request.size,
        )
