"""One call of the Messages API: the stream, and the answer; ``model_request`` builds what is sent.

Nothing here is stored and nothing is tried again: a call either returns a whole answer or raises one
``ModelCallError`` that says what to do. Importing this module is cheap; the SDK is loaded by the first call.
"""

from __future__ import annotations

import json
import logging
import math
import traceback
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from . import exactjson
from .errors import AnvilError
from .events import Delta, TextDelta, ThinkingDelta
from .model_errors import ModelCallError, ModelCallStopped, classify

logger = logging.getLogger(__name__)

MAX_ANSWER_CHARS = 5_000_000
"""Most characters of one answer as JSON text. It is stored as one value and sent along ever after, and
databases and the API refuse what is much larger."""

STOP_REASON_LENGTH = 64


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer of the model.

    ``content`` is the API's own JSON, so that it can be sent back as it came.
    """

    content: list[dict[str, Any]]
    stop_reason: str
    stop_details: dict[str, Any] | None
    usage: dict[str, Any]
    model: str
    """The model that answered; with a fallback it is not the one that was asked."""
    message_id: str
    request_id: str
    container: dict[str, Any] | None
    """The code execution container that the next request of the run must name."""


def stream_answer(
    client: Any,
    request: Mapping[str, Any],
    *,
    should_stop: Callable[[], bool] | None = None,
    attempt: int = 1,
    run_id: str = "",
) -> Generator[Delta, None, Answer]:
    """Make one call and yield its answer while it arrives.

    Always a stream, also when nobody watches: it has no ten-minute limit, and each event is a chance to stop.

    Args:
        client: Anything with ``messages.stream(**request)``: a client of the SDK, of Bedrock, of Vertex, ...
        request: What ``build_request`` returned.
        should_stop: Asked before the call and at each event. What it raises comes out unchanged.
        attempt: Number of this attempt, for the log.
        run_id: The run it is made for, for the log.

    Returns:
        The whole answer (the value of ``yield from``). Blocks are the API's own JSON; a ``tool_use`` in it
        may be run only if ``stop_reason`` is "tool_use".

    Raises:
        ModelCallError: The call failed. Nothing that was yielded counts.
        ModelCallStopped: ``should_stop`` returned true; the connection is closed.
    """
    model = str(request.get("model", ""))
    if should_stop is not None and should_stop():
        raise ModelCallStopped
    try:
        answer = yield from _stream(client, request, should_stop, run_id)
    except ModelCallError as error:
        logger.info(
            "Model call failed: model=%s request_id=%s attempt=%s kind=%s code=%s",
            model,
            error.request_id,
            attempt,
            error.kind,
            error.code,
            extra={"run_id": run_id},
        )
        raise
    logger.info(
        "Model call answered: model=%s request_id=%s attempt=%s",
        model,
        answer.request_id,
        attempt,
        extra={"run_id": run_id},
    )
    return answer


def _stream(
    client: Any, request: Mapping[str, Any], should_stop: Callable[[], bool] | None, run_id: str
) -> Generator[Delta, None, Answer]:
    with _opened(client, request, run_id) as stream:
        arriving = _Arriving()
        for event in _events(client, stream, arriving, run_id):
            if should_stop is not None and should_stop():
                raise ModelCallStopped(_request_id(stream), _usage_so_far(stream))
            kind = getattr(event, "type", None)
            if kind == "text":
                yield TextDelta(event.text)
            elif kind == "thinking":
                yield ThinkingDelta(event.thinking)
        with _classified(client, stream, run_id=run_id):
            answer = _read_answer(stream)
            if answer.stop_reason == "tool_use" and not arriving.whole_arguments:
                raise ModelCallError("retry", "bad_tool_json")
            return answer


def _events(client: Any, stream: Any, arriving: _Arriving, run_id: str) -> Iterator[Any]:
    """The events of the answer.

    A generator of its own, so that only the SDK's own steps run under ``_classified``: what a watcher or
    should_stop raises is not ours.
    """
    with _classified(client, stream, run_id=run_id):
        for event in stream:
            arriving.note(event)
            yield event


@contextmanager
def _opened(client: Any, request: Mapping[str, Any], run_id: str) -> Iterator[Any]:
    with _classified(client, run_id=run_id):
        manager = client.messages.stream(**request)
        stream = manager.__enter__()
    try:
        yield stream
    finally:
        # The answer is here and paid for; an error while hanging up must not lose it.
        with suppress(Exception):
            manager.__exit__(None, None, None)


@contextmanager
def _classified(client: Any, stream: Any = None, *, run_id: str) -> Iterator[None]:
    """Turn what the SDK raises into a ModelCallError that knows the request and what it used so far."""
    try:
        yield
    except ModelCallError as error:
        raise _about(error, stream)  # noqa: B904 (it is the error itself)
    except AnvilError:
        raise
    except Exception as exc:  # noqa: BLE001 (classified below)
        # The SDK's errors have no common root: a broken stream raises those of its HTTP library.
        found = classify(exc, answering=stream is not None, client=client)
        if found.code == "unexpected":
            # Where, but not what it says: that may hold a key, and so does not go with the error either.
            kind, places = type(exc).__name__, _places(exc)
            logger.error("Model call failed with %s at %s", kind, places, extra={"run_id": run_id})
        raise _about(found, stream) from None


def _places(exc: Exception) -> str:
    frames = traceback.extract_tb(exc.__traceback__)
    return ", ".join(f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames)


def _about(error: ModelCallError, stream: Any) -> ModelCallError:
    if stream is not None:
        error.request_id = error.request_id or _request_id(stream)
        error.usage = error.usage or _usage_so_far(stream)
    return error


class _Arriving:
    """Watches an answer while it arrives: whether arguments of tools are whole JSON, and how large it grows.

    The SDK reads arguments leniently: those cut after `{"to": "a", "am` become {"to": "a"} without an error,
    and a tool must never run on half of its arguments. Nor on others: NaN and numbers that no float can hold
    become null.
    """

    def __init__(self) -> None:
        self._arguments: dict[int, list[str]] = {}
        self._characters = 0
        self.whole_arguments = True

    def note(self, event: Any) -> None:
        """Look at an event of the stream.

        Raises:
            ModelCallError: The answer is larger than can be stored.
        """
        kind = getattr(event, "type", None)
        if kind == "content_block_delta":
            delta = event.delta
            delta_type = getattr(delta, "type", None)
            if delta_type == "input_json_delta":
                self._arguments.setdefault(event.index, []).append(str(delta.partial_json or ""))
            text = _DELTA_TEXTS.get(delta_type) if isinstance(delta_type, str) else None
            self._add(delta if text is None else getattr(delta, text, None))
        elif kind == "content_block_start":
            self._add(event.content_block)
        elif kind == "content_block_stop":
            # A tool without arguments may come with no JSON at all.
            arguments = "".join(self._arguments.pop(event.index, ())) or "{}"
            try:
                _ARGUMENTS.decode(arguments)
            except (ValueError, RecursionError):
                self.whole_arguments = False

    def _add(self, part: Any) -> None:
        if hasattr(part, "to_dict"):
            part = part.to_dict(mode="json", warnings=False)
        self._characters += len(json.dumps(part, default=str))
        if self._characters > MAX_ANSWER_CHARS:
            raise ModelCallError("fatal", "answer_too_large")


def _not_json(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("no float holds this number")
    return number


_ARGUMENTS = json.JSONDecoder(strict=False, parse_constant=_not_json, parse_float=_finite)
# Where the usual deltas have all that is kept of them; what they are wrapped in is not part of the answer.
_DELTA_TEXTS = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}


def _read_answer(stream: Any) -> Answer:
    message = stream.get_final_message()
    if not hasattr(message, "to_dict"):
        # A proxy's page with status 200, for one, arrives as a plain string.
        raise ModelCallError("retry", "bad_response", type(message).__name__)
    # Not model_dump(): it adds null fields, and the API refuses some of them when they come back.
    data = message.to_dict(mode="json", warnings=False)
    if not data.get("stop_reason"):
        # The SDK takes a stream that just ends for a success.
        raise ModelCallError("retry", "cut_stream")
    content, usage = data.get("content"), data.get("usage")
    if not isinstance(usage, dict) or not isinstance(content, list):
        raise ModelCallError("retry", "bad_response", "content or usage is missing")
    if not all(isinstance(block, dict) and isinstance(block.get("type"), str) for block in content):
        raise ModelCallError("retry", "bad_response", "a content block is not an object with a type")
    if not all(map(_can_be_sent_back, content)):
        raise ModelCallError("retry", "bad_response", "a content block that could never be sent back")
    details, container = exactjson.clean(data.get("stop_details")), exactjson.clean(data.get("container"))
    has_container = isinstance(container, dict) and isinstance(container.get("id"), str)
    return Answer(
        content=content,
        stop_reason=exactjson.clean_text(str(data["stop_reason"]))[:STOP_REASON_LENGTH],
        stop_details=details if isinstance(details, dict) else None,
        usage=exactjson.clean(usage),
        model=exactjson.clean_text(str(data.get("model") or "")),
        message_id=exactjson.clean_text(str(data.get("id") or "")),
        request_id=_request_id(stream),
        container=container if has_container else None,
    )


_TEXTS = {"text": ("text",), "thinking": ("thinking", "signature"), "redacted_thinking": ("data",)}


def _can_be_sent_back(block: dict[str, Any]) -> bool:
    """Whether its texts are texts; those of thinking cannot be mended either, since they are signed."""
    kind = block["type"]
    texts = [block.get(name) for name in _TEXTS.get(kind, ())]
    if not all(text is None or isinstance(text, str) for text in texts):
        return False
    return kind == "text" or all(exactjson.clean_text(t, keep_nul=True) == t for t in texts if t)


def _request_id(stream: Any) -> str:
    # A streamed message has no request id of its own; the stream has.
    with suppress(Exception):
        if isinstance(found := stream.request_id, str):
            return found
    return ""


def _usage_so_far(stream: Any) -> dict[str, Any]:
    # The SDK asserts that the message has begun.
    with suppress(Exception):
        usage = stream.current_message_snapshot.usage.to_dict(mode="json", warnings=False)
        if isinstance(usage, dict):
            return usage
    return {}
