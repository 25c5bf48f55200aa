"""A Messages API that says what a script says, over real HTTP, and holds its client to the API's rules.

It speaks JSON and server-sent events, as ``stream`` in the body asks. To run it as a process of its own::

    python -m anvil_django.testing.server shop.demo:script --port 8099
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from anvil_django.testing import wire
from anvil_django.testing.conversations import ConversationKey, Examined, HistoryRules
from anvil_django.testing.history_rules import CURRENT_MODELS
from anvil_django.testing.http_server import Reply, Server
from anvil_django.testing.loopback import loopback_http
from anvil_django.testing.scripts import Faulted, Keyed, Request, Script, ScriptSource
from anvil_django.testing.turns import Turn

if TYPE_CHECKING:
    from anthropic import Anthropic

#: The API answers a larger body with 413.
MAX_BODY_BYTES = 32 * 1024 * 1024
REPORT_PATH = "/_script/report"
_CREDENTIALS = ("authorization", "x-api-key")


@dataclass(frozen=True, slots=True)
class Billed:
    """An answer that was written to the socket to its end: what a real API charges for."""

    #: `Request.number` of the request.
    request: int
    conversation: str
    #: Position of the turn in its script.
    turn: int
    message_id: str
    model: str
    stop_reason: str
    usage: Mapping[str, Any]


class ScriptedMessagesAPI:
    """A server to point an ``anthropic`` client at.

    Usable as a context manager, or by `start`, `stop` and `check`. Leaving the ``with`` block runs `check`,
    unless an exception is on its way already.

    Args:
        script: Turns for any conversation that no `add` with a ``match`` takes.
        keyed: ``"history"`` serves the turn at the number of assistant messages in the request: a request
            repeated after a crash gets the same bytes, every conversation plays the script from its start,
            faults included, and each turn must have been served once at least. ``"order"`` gives each
            request the next turn.
        port: TCP port on 127.0.0.1; 0 takes a free one.
        conversation: ``(body, headers) -> str``, the key of a request's conversation. By default the system
            prompt and the first user message; two runs with the same of both are then one conversation.
        forks: Allow a conversation to go on in two ways from the same place.
        check_history: Hold requests to the rules. Without it only the script is checked.
        keep_requests: How many of the last requests `requests` holds; ``None`` for all.
    """

    def __init__(
        self,
        script: ScriptSource = (),
        *,
        keyed: Keyed = "history",
        port: int = 0,
        conversation: ConversationKey | None = None,
        forks: bool = False,
        check_history: bool = True,
        keep_requests: int | None = None,
    ) -> None:
        self.stopping = threading.Event()
        self._keyed = keyed
        self._port = port
        self._check_history = check_history
        self._rules = HistoryRules(conversation=conversation, forks=forks)
        self._lock = threading.Lock()
        self._scripts: list[Script] = []
        self._requests: deque[Request] = deque(maxlen=keep_requests)
        self._request_count = 0
        self._request_ids = 0
        self._billed: list[Billed] = []
        self._violations: list[str] = []
        self._unexpected: list[str] = []
        self._server: Server | None = None
        self._thread: threading.Thread | None = None
        if callable(script) or script:
            self.add(script)

    # Writing the script

    def add(
        self, script: ScriptSource, *, match: str | None = None, keyed: Keyed | None = None, seeded: int = 0
    ) -> None:
        """Add a script. Turns added again for the same ``match`` come after those it already has.

        Args:
            script: Turns, or a function that takes a `Request` and gives a `Turn`.
            match: Text that the first user message of the conversation contains; ``None`` takes what no
                other script takes. Where several fit, the one added first does.
            keyed: As for the server, which gives the default.
            seeded: How many assistant messages the first request already holds, when a conversation is
                started with a history.

        Raises:
            ValueError: When turns are added to a function, or a function to a script that is there.
        """
        with self._lock:
            for known in self._scripts:
                if known.match == match:
                    if callable(script):
                        raise ValueError(f"There is a script for match={match!r} already.")
                    known.extend(script)
                    return
            self._scripts.append(Script(script, match=match, keyed=keyed or self._keyed, seeded=seeded))

    def script(self, *turns: Turn, match: str | None = None) -> None:
        """`add` for turns written one after another."""
        self.add(turns, match=match)

    def rewind(self) -> None:
        """Begin anew: no conversation is known, every script is played from its start, faults included.

        What was found until now stays, and so do the requests.
        """
        self._rules.forget()
        with self._lock:
            for script in self._scripts:
                script.rewind()

    # Running

    def start(self) -> Self:
        """Listen, in a daemon thread."""
        self.stopping.clear()
        self._server = Server(self._port, self)
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.02},
            name="scripted-api",
            daemon=True,
        )
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop listening and hang up on every client; stalls and delays end."""
        self.stopping.set()
        if self._server is not None:
            self._server.shutdown()
            self._server.hang_up()
            self._server = None
        if self._thread is not None:
            self._thread.join(timeout=5)
            self._thread = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.stop()
        if exc_type is None:
            self.check()

    @property
    def url(self) -> str:
        """The base URL, without a path."""
        if self._server is None:
            raise RuntimeError("The server is not running. Use it in a with statement, or call start().")
        return f"http://127.0.0.1:{self._server.server_port}"

    def client(self, **options: Any) -> Anthropic:
        """An SDK client of this server, with ``max_retries=0``; ``options`` go to ``anthropic.Anthropic``."""
        import anthropic

        values: dict[str, Any] = {"base_url": self.url, "api_key": "test-key", "max_retries": 0, **options}
        if "http_client" not in values:
            values["http_client"] = loopback_http()
        return anthropic.Anthropic(**values)

    # What happened

    @property
    def requests(self) -> list[Request]:
        """The ``POST /v1/messages`` so far, oldest first, whether they were answered or not."""
        with self._lock:
            return list(self._requests)

    @property
    def billed(self) -> list[Billed]:
        """The answers written to the end, in the order they were finished."""
        with self._lock:
            return list(self._billed)

    @property
    def violations(self) -> list[str]:
        """The rules broken so far, one sentence each, with the number of the request."""
        with self._lock:
            return list(self._violations)

    @property
    def unexpected(self) -> list[str]:
        """The requests that no script had a turn for."""
        with self._lock:
            return list(self._unexpected)

    @property
    def unconsumed(self) -> list[str]:
        """The turns that no request got."""
        with self._lock:
            return [
                f"turn {index} of the script for {_named(script)}: {_outline(turn)}"
                for script in self._scripts
                for index, turn in script.unconsumed()
            ]

    def report(self) -> dict[str, Any]:
        """What ``GET /_script/report`` answers, for another process to read."""
        with self._lock:
            count, billed = self._request_count, [asdict(item) for item in self._billed]
        return {
            "requests": count,
            "billed": billed,
            "violations": self.violations,
            "unexpected": self.unexpected,
            "unconsumed": self.unconsumed,
        }

    def problems(self, *, unconsumed: bool = True) -> list[str]:
        """Everything that is wrong, one sentence each.

        Args:
            unconsumed: Count turns that were not served, too; false while they may still be asked for.
        """
        found = [f"rule broken by {sentence}" for sentence in self.violations]
        found += [f"unexpected {sentence}" for sentence in self.unexpected]
        if unconsumed:
            found += [f"never served: {sentence}" for sentence in self.unconsumed]
        return found

    def check(self) -> None:
        """Fail on what is wrong.

        Raises:
            AssertionError: With a list of rules broken, requests not expected and turns not served.
        """
        found = self.problems()
        if found:
            raise AssertionError("\n  - ".join(["The scripted Messages API found:", *found]))

    # Answering; called by the threads of the server

    def reply(self, method: str, path: str, headers: Mapping[str, str], raw: bytes) -> Reply:
        """What one HTTP request gets."""
        path = path.split("?")[0].rstrip("/")
        if method == "GET" and path == REPORT_PATH:
            return Reply(body=self.report())
        if not any(name in headers for name in _CREDENTIALS):
            return self._error(401, "authentication_error", "An API key is required")
        # A base URL may have a path of its own in front.
        if method == "POST" and path.endswith("/v1/messages"):
            return self._messages(headers, raw)
        if method == "POST" and path.endswith("/v1/messages/count_tokens"):
            return Reply(body={"input_tokens": max(1, len(raw) // wire.BYTES_PER_TOKEN)})
        if method == "GET" and "/v1/models" in path:
            return self._models(path.partition("/v1/models")[2].strip("/"))
        return self._error(404, "not_found_error", f"Not found: {path}")

    @contextmanager
    def delivering(self, reply: Reply) -> Iterator[None]:
        """Count an answer while its end is written; a write that fails takes that back."""
        request: Request = reply.token
        answer = reply.answer
        assert answer is not None
        message = answer.message
        billed = Billed(
            request.number,
            request.conversation,
            answer.index,
            message["id"],
            message["model"],
            message["stop_reason"],
            message["usage"],
        )
        # Counted first, so that a client that has the answer finds it in `billed`.
        with self._lock:
            self._billed.append(billed)
        try:
            yield
        except OSError:
            with self._lock:
                self._billed.remove(billed)
            raise

    def request_id(self) -> str:
        """A new ``request-id``."""
        with self._lock:
            self._request_ids += 1
            return wire.made_up("req_", self._request_ids)

    def _messages(self, headers: Mapping[str, str], raw: bytes) -> Reply:
        if len(raw) > MAX_BODY_BYTES:
            return self._error(413, "request_too_large", "Request exceeds the maximum size")
        try:
            body = json.loads(raw, parse_constant=_refuse_constant)
            if not isinstance(body, dict):
                raise ValueError("not an object")
        except ValueError as error:
            return self._refuse([f"The request body is not valid JSON: {error}"], self._count())
        shown = {name: "[hidden]" if name in _CREDENTIALS else value for name, value in headers.items()}
        examined = self._examine(body, shown)
        messages = body.get("messages")
        listed = messages if isinstance(messages, list) else []
        turns = sum(isinstance(message, dict) and message.get("role") == "assistant" for message in listed)
        with self._lock:
            self._request_count += 1
            request = Request(self._request_count, body, shown, examined.conversation, turns, len(raw))
            self._requests.append(request)
        if examined.problems:
            return self._refuse(examined.problems, request.number)
        with self._lock:
            chosen = self._choose(request)
        if chosen is None:
            return self._no_turn(request)
        stream = body.get("stream") is True
        if isinstance(chosen, Faulted):
            return Reply(answer=chosen.answer, fault=chosen.fault, stream=stream, token=request)
        # Remembered first: the client's next request may come before the last write returns.
        self._rules.answered(examined, chosen.message)
        return Reply(answer=chosen, stream=stream, token=request)

    def _examine(self, body: dict[str, Any], headers: Mapping[str, str]) -> Examined:
        if self._check_history:
            return self._rules.examine(body, headers)
        return Examined(self._rules.conversation(body, headers), [], None)

    def _choose(self, request: Request) -> wire.Answer | Faulted | None:
        ranked = sorted(self._scripts, key=lambda script: script.match is None)
        script = next((script for script in ranked if script.takes(request)), None)
        return None if script is None else script.next(request)

    def _no_turn(self, request: Request) -> Reply:
        sentence = (
            f"request {request.number} ({request.assistant_turns} assistant turns, opening "
            f"{_short(request.opening)!r}): no script has a turn for it"
        )
        with self._lock:
            self._unexpected.append(sentence)
        return self._error(400, "invalid_request_error", f"Unexpected {sentence}")

    def _refuse(self, problems: Sequence[str], number: int) -> Reply:
        with self._lock:
            self._violations += [f"request {number}: {problem}" for problem in problems]
        return self._error(400, "invalid_request_error", "; ".join(problems))

    def _count(self) -> int:
        with self._lock:
            self._request_count += 1
            return self._request_count

    def _error(self, status: int, kind: str, message: str) -> Reply:
        request_id = self.request_id()
        body = wire.error_body(kind, message, request_id=request_id)
        return Reply(status, body, {"request-id": request_id})

    def _models(self, wanted: str) -> Reply:
        page = wire.models(CURRENT_MODELS)
        if not wanted:
            return Reply(body=page)
        found = next((model for model in page["data"] if model["id"] == wanted), None)
        return Reply(body=found) if found else self._error(404, "not_found_error", f"model: {wanted}")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _named(script: Script) -> str:
    return "any conversation" if script.match is None else f"match={script.match!r}"


def _outline(turn: Turn) -> str:
    """A turn in a few words."""
    names = (block.get("name") or block.get("text") or block["type"] for block in turn.content)
    parts = [_short(str(name)) for name in names]
    return f"{turn.stop_reason}, {', '.join(parts) or 'no content'}"


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


if __name__ == "__main__":
    import sys

    # From its own module, so that a script's classes are those of the package and not of ``__main__``.
    from anvil_django.testing.server_process import main

    sys.exit(main())
