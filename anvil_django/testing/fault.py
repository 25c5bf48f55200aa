"""What can go wrong between a client and the Messages API, as values a script is made of.

A fault is attached to a turn and takes one request; the request after it gets the next fault, or the turn::

    say("Done.").after(fault.overloaded(), fault.dropped())

is a 529, then a cut stream, then the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["http", "error_event", "early_eof", "dropped", "stall", "garbage", "no_answer"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One failed answer. Made by the functions of this module."""

    kind: Kind
    #: HTTP status, for ``http`` only.
    status: int = 200
    error_type: str = ""
    message: str = ""
    error_code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    #: Length of the silence, for ``stall`` only.
    seconds: float = 0.0
    #: How many events of the stream are sent before the fault; ``None`` is half of them.
    events: int | None = None


def http(
    status: int,
    type: str = "api_error",
    message: str = "Scripted error",
    *,
    error_code: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> Fault:
    """An HTTP error with the API's own error body.

    Args:
        status: HTTP status, such as 500.
        type: ``error.type`` in the body, such as ``"invalid_request_error"``.
        message: ``error.message`` in the body.
        error_code: ``error.details.error_code`` in the body; left out when ``None``.
        headers: Further response headers, such as ``{"x-should-retry": "true"}``.
    """
    return Fault(
        "http", status=status, error_type=type, message=message, error_code=error_code, headers=headers or {}
    )


def overloaded() -> Fault:
    """529 ``overloaded_error``; the SDK raises ``OverloadedError``."""
    return http(529, "overloaded_error", "Overloaded")


def rate_limited(retry_after: float | None = None, *, error_code: str | None = None) -> Fault:
    """429 ``rate_limit_error``; the SDK raises ``RateLimitError``.

    Args:
        retry_after: Seconds for the ``retry-after`` header; a fraction is sent as ``retry-after-ms``.
        error_code: Such as ``"enforced_spend_limit_reached"``, a 429 that does not clear soon.
    """
    headers: dict[str, str] = {}
    if retry_after is not None and retry_after == int(retry_after):
        headers["retry-after"] = str(int(retry_after))
    elif retry_after is not None:
        headers["retry-after-ms"] = str(round(retry_after * 1000))
    return http(429, "rate_limit_error", "Rate limited", error_code=error_code, headers=headers)


def overloaded_mid_stream(*, events: int | None = None) -> Fault:
    """An ``error`` event inside a stream that began with a 200.

    The SDK raises a bare ``APIStatusError`` with ``status_code == 200`` and ``type == "overloaded_error"``.
    A request without ``stream`` gets a plain 529.

    Args:
        events: How many events come before it.
    """
    return Fault("error_event", error_type="overloaded_error", message="Overloaded", events=events)


def early_eof(*, events: int | None = None) -> Fault:
    """The body ends cleanly, without ``message_stop``.

    The SDK raises nothing: ``get_final_message()`` has ``stop_reason`` ``None``. A request without ``stream``
    gets half of the JSON.

    Args:
        events: How many events are sent, never the closing ``message_delta`` and ``message_stop``.
    """
    return Fault("early_eof", events=events)


def dropped(*, events: int | None = None) -> Fault:
    """The socket is shut down in the middle of a chunk.

    In a stream the SDK lets a raw ``httpx2.RemoteProtocolError`` through; without ``stream`` it raises
    ``APIConnectionError``.

    Args:
        events: How many whole events are sent before the broken one.
    """
    return Fault("dropped", events=events)


def stall(seconds: float, *, events: int | None = None) -> Fault:
    """Half an answer, then silence, then the socket is shut down.

    With a read timeout below ``seconds`` a stream raises a raw ``httpx2.ReadTimeout``. A request without
    ``stream`` hears nothing at all, and raises ``APITimeoutError``.

    Args:
        seconds: Length of the silence; stopping the server ends it.
        events: How many events are sent before it.
    """
    return Fault("stall", seconds=seconds, events=events)


def garbage() -> Fault:
    """A 200 with an HTML page, as a proxy sends it; ``create()`` then returns a ``str``."""
    return Fault("garbage")


def no_answer() -> Fault:
    """The socket is shut down before a byte is sent; the SDK raises ``APIConnectionError``."""
    return Fault("no_answer")
