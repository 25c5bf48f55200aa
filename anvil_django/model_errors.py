"""What can go wrong in one call of the Messages API, and what should be done about it.

Every failure becomes one ``ModelCallError``: its ``kind`` tells the loop what to do, its ``code`` is what
is stored and searched for, its message is what an operator reads.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Callable, Collection, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Literal

from django.utils.translation import gettext_noop as _

from . import credentials
from .errors import AnvilError

if TYPE_CHECKING:
    import anthropic

#: What the loop does: try again later (retry), park the run until an operator acts (auth, quota, config),
#: or give up, since the same request fails the same way (context, thinking, fatal).
Kind = Literal["retry", "auth", "quota", "context", "thinking", "config", "fatal"]

#: Characters of the API's own words that are kept.
DETAIL_LIMIT = 500

_SENTENCES = {
    "overloaded": _("The API is overloaded. Nothing to do: the call is tried again."),
    "rate_limited": _(
        "The API's rate limit is reached. The call is tried again; if this goes on, run fewer agents at "
        "once or ask for a higher limit."
    ),
    "server_error": _("The API failed on its side. Nothing to do: the call is tried again."),
    "connection": _(
        "The API could not be reached, or the connection broke. The call is tried again; if this goes on, "
        "check the network, the proxy and the base URL of the client."
    ),
    "timeout": _(
        "The API did not answer in time. The call is tried again; if this goes on, raise "
        "ANVIL['REQUEST_TIMEOUT']."
    ),
    "cut_stream": _("The answer ended before it was complete. Nothing to do: the call is tried again."),
    "bad_response": _(
        "The answer is not a message of the Messages API. The call is tried again; if this goes on, check "
        "the base URL of the client and any proxy on the way."
    ),
    "bad_tool_json": _(
        "The model wrote arguments of a tool that are not valid JSON. Nothing to do: the call is tried again."
    ),
    "answer_too_large": _(
        "The answer grew larger than can be stored, so it was broken off and nothing of it was used. Lower "
        "max_tokens of the agent, or have its tools return less; then resume the run."
    ),
    "auth": _("The API refused the credentials. Check the API key and what it may do, then resume the run."),
    "quota": _("The account may not spend more. Raise the limit or add credit, then resume the run."),
    "context_window": _(
        "The conversation is too long for the model. Start a new run with less input, or use a model with "
        "a larger context window."
    ),
    "thinking_mismatch": _(
        "The API says that the history before a thinking block has changed. Fork the run from an earlier "
        "point, or start a new one."
    ),
    "not_configured": _(
        "The client of the API is not set up. Set ANTHROPIC_API_KEY, or ANVIL['CLIENT'] to a function that "
        "makes a client, then resume the run."
    ),
    "unknown_model": _(
        "The API does not know what was asked for. Check the agent's model and the base URL of the client, "
        "then start a new run."
    ),
    "request_refused": _(
        "The API refused the request, and would refuse it again. Correct the agent or its input, then "
        "start a new run."
    ),
    "not_sendable": _(
        "The request cannot be sent as it is. Correct the agent's parameters or its input, then start a "
        "new run."
    ),
    "unexpected": _(
        "The call failed in a way that is not known here. See where in the log of the worker, then resume "
        "the run."
    ),
}
FAILED = _("The call of the model failed.")
SAID = _("{why} The API said: {detail}")
CAUSE = _("{why} The cause: {detail}")
FACTS = "{why} ({facts})"

# The status that goes with an error's type. An error inside a stream arrives under HTTP status 200, so that
# only its type tells what it is. https://docs.anthropic.com/en/api/errors
_STATUS_OF_TYPE = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "conflict_error": 409,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}

# A limit the customer set, or an empty balance, is a plain 400; only its words tell.
_SPEND_WORDS = re.compile(r"specified api usage limits|credit balance is too low", re.IGNORECASE)
_THINKING_WORDS = re.compile(
    r"bound to a different conversation|invalid [`'\"]?signature"
    r"|blocks in the latest assistant message cannot",
    re.IGNORECASE,
)
_SECRETS = re.compile(
    r"""
      \bsk-[\w-]{8,}                                        # API keys of this vendor and of others
    | \beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?                   # JSON web tokens
    | \b(?:AKIA|ASIA)[0-9A-Z]{16}\b                         # AWS access keys
    | \bya29\.[\w-]+                                        # Google access tokens
    | (?<=bearer\s)\s*(?=\S*\d)[^\s"',;]{8,}                # a bearer token, not the word after "bearer"
    | (?<=bearer\s)\s*[^\s"',;]{24,}
    | (?:x-api-key|api[-_ ]?key|auth[-_ ]?token|authorization)["']?\s*[:=]\s*["']?
      (?:basic\s+|bearer\s+)?[^\s"',;]+                    # a header or a setting with its value
    """,
    re.IGNORECASE | re.VERBOSE,
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f\s]+")


class ModelCallError(AnvilError):
    """A call of the model failed.

    Attributes:
        kind: What to do about it, see ``Kind``.
        code: Stable name of the cause, such as "overloaded" or "cut_stream".
        detail: What the API itself said, cleaned and cut; empty if it said nothing.
        status: HTTP status; None if there was no answer. An error inside a stream has the status its type
            would have had before the stream began.
        request_id: The API's id of the request; empty if there was no answer.
        retry_after: Seconds the API asks to wait, not capped; None if it does not ask.
        usage: The usage reported before the answer broke off; empty if none was. The output tokens in it
            are those known at the start of the stream, so what was billed is at least this.
    """

    http_status = 502
    # The cause differs from one instance to the next, unlike that of all other errors.
    code: str = "model_call"  # type: ignore[misc]

    def __init__(
        self,
        kind: Kind,
        code: str,
        detail: str = "",
        *,
        status: int | None = None,
        request_id: str = "",
        retry_after: float | None = None,
    ) -> None:
        self.kind, self.code, self.detail = kind, code, clean_detail(detail)
        self.status, self.request_id, self.retry_after = status, request_id, retry_after
        self.usage: dict[str, Any] = {}
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        sentence = _SENTENCES.get(self.code, FAILED)
        facts = [f"HTTP {self.status}"] if self.status else []
        facts += [f"request {self.request_id}"] if self.request_id else []
        if self.detail:
            sentence = (SAID if self.status else CAUSE).format(why=sentence, detail=self.detail)
        return FACTS.format(why=sentence, facts=", ".join(facts)) if facts else sentence

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call the constructor with the finished sentence.
        return type(self), (self.kind, self.code), self.__dict__ | {"args": self.args}


class ModelCallStopped(AnvilError):  # noqa: N818 (somebody asked for it: not an error)
    """The call of the model was stopped before its answer was complete."""

    code = "model_call_stopped"
    http_status = 409

    def __init__(self, request_id: str = "", usage: dict[str, Any] | None = None) -> None:
        self.request_id = request_id
        #: The usage reported before the stop; see ``ModelCallError.usage``.
        self.usage = usage or {}
        super().__init__()


def classify(error: Exception, *, answering: bool = False, client: Any = None) -> ModelCallError:
    """What an exception of the SDK means.

    Args:
        error: Any exception raised by the client, its HTTP library or the SDK's encoder.
        answering: The request was accepted, and the exception came while its answer was read. Then what is
            not known is the answer's fault and is tried again; before, it is the request's.
        client: Whose credentials must not be among the words that are kept.

    Returns:
        The error to raise; it never carries a key, a header or the body of a request.
    """
    token = _known.set(credentials.of_process() | credentials.of_client(client))
    try:
        return _classify(error, answering)
    finally:
        _known.reset(token)


def unconfigured(error: Exception) -> ModelCallError:
    """What it means that ``ANVIL["CLIENT"]`` made no client; carries no credential known here."""
    token = _known.set(credentials.of_process())
    try:
        return ModelCallError("config", "not_configured", _words(error))
    finally:
        _known.reset(token)


# What `clean_detail` removes beside what looks like a credential.
_known: ContextVar[Collection[str]] = ContextVar("_known", default=())


def _classify(error: Exception, answering: bool) -> ModelCallError:
    import anthropic
    import httpx2

    if isinstance(error, ModelCallError):
        return error
    if isinstance(error, anthropic.APIStatusError):
        return _classify_status(error)
    if isinstance(error, (anthropic.APITimeoutError, httpx2.TimeoutException, TimeoutError)):
        return ModelCallError("retry", "timeout", _words(error))
    # A stream that breaks raises the raw error of the HTTP library; other clients raise an OSError.
    if isinstance(error, (anthropic.APIConnectionError, httpx2.TransportError, OSError)):
        return ModelCallError("retry", "connection", _words(error.__cause__ or error))
    if isinstance(error, anthropic.RetryableError):
        return ModelCallError("retry", "server_error", _words(error))
    if isinstance(error, anthropic.APIResponseValidationError):
        return ModelCallError("retry", "bad_response", status=error.status_code)
    if isinstance(error, anthropic.CredentialsError) or _is_missing_key(error):
        return ModelCallError("config", "not_configured", _words(error))
    if isinstance(error, ValueError) and str(error).startswith("Unable to parse tool parameter JSON"):
        # The text of this one holds what the model wrote.
        return ModelCallError("retry", "bad_tool_json")
    if answering or isinstance(error, json.JSONDecodeError):
        return ModelCallError("retry", "bad_response", type(error).__name__)
    if isinstance(error, (TypeError, ValueError)):
        return ModelCallError("fatal", "not_sendable", _words(error))
    return ModelCallError("fatal", "unexpected", _words(error))


def _classify_status(error: anthropic.APIStatusError) -> ModelCallError:
    known_type = str(error.type or "")
    status = error.status_code
    if status < 400:
        status = _STATUS_OF_TYPE.get(known_type, status)
    said = error.api_message or (error.body if isinstance(error.body, str) else "")
    headers = error.response.headers
    kind, code = _kind_and_code(status, known_type, error.error_code or "", str(said))
    if kind == "fatal" and headers.get("x-should-retry") == "true":
        kind, code = "retry", "server_error"
    return ModelCallError(
        kind,
        code,
        str(said),
        status=status,
        request_id=error.request_id or "",
        retry_after=retry_after_seconds(headers),
    )


def _kind_and_code(status: int, error_type: str, error_code: str, said: str) -> tuple[Kind, str]:
    # Spend limits first: most are 429s, and would be taken for a rate limit that clears by itself.
    if status == 402 or error_code.endswith("_spend_limit_reached") or _SPEND_WORDS.search(said):
        return "quota", "quota"
    if error_code == "organization_on_hold":
        return "auth", "auth"
    if status == 529 or error_type == "overloaded_error":
        return "retry", "overloaded"
    if status == 429:
        return "retry", "rate_limited"
    if status in (408, 504):
        return "retry", "timeout"
    # 499 is a proxy that thinks we hung up. An error event without a type is a stream cut by a gateway.
    if status in (409, 499) or status >= 500 or (status == 200 and not error_type):
        return "retry", "server_error"
    if status in (401, 403):
        return "auth", "auth"
    if status == 413 or "prompt is too long" in said:
        return "context", "context_window"
    if _THINKING_WORDS.search(said):
        return "thinking", "thinking_mismatch"
    if status == 404:
        return "fatal", "unknown_model"
    return "fatal", "request_refused"


def _is_missing_key(error: Exception) -> bool:
    return isinstance(error, TypeError) and "Could not resolve authentication method" in str(error)


def _words(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def clean_detail(text: str) -> str:
    """Text of unknown origin, made fit to be stored and shown.

    Anything that looks like a credential is replaced before the text is cut (half a key would not be
    recognized), and so are characters that a database refuses.
    """
    for known in sorted(_known.get(), key=len, reverse=True):
        text = text.replace(known, "[removed]")
    text = _SECRETS.sub("[removed]", text)
    text = _CONTROL.sub(" ", text).encode("utf-8", "replace").decode().strip()
    return text if len(text) <= DETAIL_LIMIT else text[: DETAIL_LIMIT - 1] + "…"


def retry_after_seconds(headers: Mapping[str, str], *, now: datetime | None = None) -> float | None:
    """How long an answer asks to wait.

    Args:
        headers: Of the answer: ``retry-after-ms``, or ``retry-after`` in seconds or as an HTTP date.
        now: The time a date is compared with; now if left out.

    Returns:
        Seconds, never negative and never infinite; None if the answer does not ask, or not in numbers.
    """
    for name, divisor in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name) or "") / divisor
        except ValueError:
            continue
        return max(seconds, 0.0) if math.isfinite(seconds) else None
    try:
        date = parsedate_to_datetime(headers.get("retry-after") or "")
    except (TypeError, ValueError):
        return None
    if date.tzinfo is None:  # "-0000": UTC of unknown place
        date = date.replace(tzinfo=UTC)
    return max((date - (now or datetime.now(UTC))).total_seconds(), 0.0)


def retry_delay(
    error: ModelCallError,
    attempt: int,
    *,
    base: float = 1.0,
    cap: float = 300.0,
    random: Callable[[], float] = random.random,
) -> float:
    """How long to wait before the call is made again.

    The wait doubles with each attempt, and half of it is random, so that runs that failed together do not
    come back together. What the API asks for is added in front.

    Args:
        error: Why the last attempt failed; its ``retry_after`` is respected up to ``cap``, since the API
            can ask for weeks and a run must not sleep that long unseen.
        attempt: Number of attempts that failed so far, 1 for the first.
        base: Seconds to wait after the first failure.
        cap: The longest wait, in seconds.
        random: A number from 0 to 1.

    Returns:
        Seconds, at most ``cap``.
    """
    exponent = min(max(attempt, 1) - 1, 60)  # beyond this a float could overflow
    backoff = min(cap, base * 2.0**exponent) * (0.5 + random() / 2)
    asked = min(error.retry_after or 0.0, cap)
    return min(cap, asked + backoff)
