"""The settings of this app: one dict, ``ANVIL = {...}``, seen through a frozen, typed view.

Every key, its default and its unit stand in ``Settings``. Unknown keys and wrong types are reported by
``manage.py check`` and refused with ``ImproperlyConfigured`` when a setting is first read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import lru_cache
from typing import Any

from django.conf import settings as django_settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils.module_loading import import_string

SECRET_NAMES = (
    "*password*",
    "*passwd*",
    "passphrase",
    "secret",
    "secrets",
    "token",
    "api_key",
    "*apikey*",
    "private_key",
    "access_key",
    "authorization",
    "credential",
    "credentials",
    "cookie",
    "card_number",
    "cardnumber",
    "cvc",
    "cvv",
)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The keys of ``ANVIL`` in lower case."""

    client: str | Callable[[], Any] = "anvil_django.clients.default_client"
    """Makes the client, which is anything with ``.messages``: a function without arguments, or its path."""
    request_timeout: float = 600.0
    """Seconds the default client waits for the next bytes of an answer."""
    lease_seconds: float = 60.0
    """How long a worker that stopped renewing keeps its run."""
    heartbeat_seconds: float = 5.0
    """How often a worker renews its lease and looks for a cancel or pause while a step runs."""
    slice_seconds: float = 300.0
    """After this time a background task hands the worker back; the run goes on in another task."""
    slice_soft_seconds: float = 60.0
    """The same, when another run is waiting for a worker."""
    flush_seconds: float = 1.0
    """A read-only tool's result rides with the next step, unless the last commit is longer ago than this."""
    max_recoveries: int = 3
    """A run that lost its worker this often without finishing a step fails instead of going round."""
    max_model_attempts: int = 10
    """Transient failures of one model call in a row before the run fails (it can be resumed)."""
    backoff_seconds: float = 1.0
    """First delay after a transient failure; it doubles each time."""
    backoff_cap_seconds: float = 300.0
    """Longest delay, also when the API's retry-after asks for more."""
    ticket_seconds: float = 60.0
    """A queued run whose doorbell has not been answered for this long is rung again."""
    result_limit: int = 100_000
    """Characters of one tool result that are kept and sent to the model."""
    input_limit: int = 1_000_000
    """Characters of JSON accepted as the input of a new run."""
    approval_ttl: float | timedelta | None = None
    """Seconds (or a timedelta) until an undecided approval expires and counts as a no; None: never."""
    four_eyes: bool = True
    """Whoever started a run cannot decide its cases."""
    superuser_bypass: bool = False
    """Superusers may decide any case: their own runs' too, and without being among the reviewers."""
    claim_seconds: float = 900.0
    """How long a reviewer's claim keeps others from deciding a case."""
    notify_reviewers: bool = False
    """Send an e-mail to the reviewers of each new case, and to those it is escalated to."""
    base_url: str = ""
    """Scheme and host of this site, for the links in those e-mails: https://example.com"""
    queue: str | None = None
    """Name of the django-q2 cluster that advances runs; None: the default cluster."""
    install_schedule: bool = True
    """Create the recovery schedule (and that of pruning, if runs are pruned) after ``migrate``."""
    prune_after_days: float | None = None
    """Once a day, delete the runs that ended this many days ago and that nobody was asked about; None: never.
    """
    prices: Mapping[str, tuple[Any, Any, Any, Any, Any]] = field(default_factory=dict)
    """USD per million tokens by model: (input, output, cache read, 5-minute write, 1-hour write)."""
    save_in_one_statement: bool = True
    """PostgreSQL: write a step in one statement; False: several in a transaction, as on other databases."""
    kill_points: bool = False
    """For tests: let the environment variable ANVIL_KILL_AT kill this process at a boundary."""
    page_size: int = 50
    """Rows of one page of the REST API."""
    events_poll_seconds: float = 1.0
    """How often an open event stream looks for something new."""
    events_heartbeat_seconds: float = 15.0
    """How often a stream on which nothing happens says that it is alive, and asks again who may see it."""
    events_max_seconds: float = 300.0
    """After this time an event stream ends, so that no worker is held for ever; the client reconnects."""
    redact: Sequence[str] | str | Callable[[str, tuple[str | int, ...], Any], Any] = SECRET_NAMES
    """What is hidden where values are shown, and only there: names of keys, or a function ``(tool, path,
    value)`` or its path, which answers with the value itself or with a text to show instead.

    A name is found among the words of a key, whatever their case: "token" is found in ``accessToken``, not in
    ``tokens``; a star is any part of a word.
    """
    telemetry: bool = False
    """Tell OpenTelemetry what runs do: spans and metrics. Takes ``pip install anvil-django[otel]``."""
    telemetry_content: bool = False
    """Also what models, people and tools say, with the same things hidden as in the admin."""
    throttle_start: str | None = None
    """How often one person may start, fork or go on with runs over the REST API: "60/min"; None: no limit."""
    throttle_decide: str | None = None
    """The same for decisions and claims."""
    throttle_read: str | None = None
    """The same for reading; a new event stream counts as one reading."""

    def client_factory(self) -> Callable[[], Any]:
        """The function that makes a client."""
        return import_string(self.client) if isinstance(self.client, str) else self.client

    def default_approval_ttl(self) -> timedelta | None:
        """``approval_ttl`` as a timedelta."""
        ttl = self.approval_ttl
        return timedelta(seconds=ttl) if isinstance(ttl, (int, float)) else ttl


_POSITIVE = (
    "request_timeout",
    "lease_seconds",
    "heartbeat_seconds",
    "slice_seconds",
    "slice_soft_seconds",
    "max_model_attempts",
    "backoff_seconds",
    "backoff_cap_seconds",
    "ticket_seconds",
    "claim_seconds",
    "result_limit",
    "input_limit",
    "page_size",
    "events_poll_seconds",
    "events_heartbeat_seconds",
    "events_max_seconds",
)
RATE = r"[1-9][0-9]*/(s|sec|second|m|min|minute|h|hour|d|day)"
"""What a rate looks like: so many requests per second, minute, hour or day."""


def problems(raw: Any) -> list[str]:
    """What is wrong with a value of ``ANVIL``: a sentence each, empty when all is well."""
    if not isinstance(raw, Mapping):
        return [f"ANVIL must be a dict, not {type(raw).__name__}."]
    known = {f.name.upper(): f for f in fields(Settings)}
    found = []
    for key, value in raw.items():
        if key not in known:
            found.append(f"ANVIL[{key!r}] is not a setting of anvil_django.")
        elif sentence := _type_problem(key, value):
            found.append(sentence)
    return found


def _type_problem(key: str, value: Any) -> str | None:
    name = key.lower()
    default = getattr(Settings(), name)
    if name == "client":
        good, wanted = isinstance(value, str) or callable(value), "a dotted path or a function"
    elif name == "redact":
        good = callable(value) or _are_names(value) or (isinstance(value, str) and "." in value)
        wanted = "a list of names, a dotted path or a function"
    elif name == "queue":
        good, wanted = value is None or isinstance(value, str), "a string or None"
    elif name.startswith("throttle_"):
        good = value is None or (isinstance(value, str) and re.fullmatch(RATE, value) is not None)
        wanted = 'a rate such as "60/min", or None'
    elif name == "approval_ttl":
        good = value is None or isinstance(value, timedelta) or _is_number(value)
        wanted = "a number of seconds, a timedelta or None"
    elif name == "prune_after_days":
        good, wanted = (
            value is None or (_is_number(value) and value > 0),
            "a number of days above zero or None",
        )
    elif name == "prices":
        good, wanted = isinstance(value, Mapping), "a dict"
    elif name == "base_url":
        good, wanted = isinstance(value, str), "a string"
    elif isinstance(default, bool):
        good, wanted = isinstance(value, bool), "True or False"
    elif isinstance(default, int):
        good, wanted = isinstance(value, int) and not isinstance(value, bool), "a whole number"
    else:
        good, wanted = _is_number(value), "a number"
    if not good:
        return f"ANVIL[{key!r}] must be {wanted}, not {value!r}."
    if name in _POSITIVE and value <= 0:
        return f"ANVIL[{key!r}] must be greater than zero, not {value!r}."
    return None


def _are_names(value: Any) -> bool:
    kinds = (list, tuple, set, frozenset)
    return isinstance(value, kinds) and all(isinstance(name, str) and name.strip() for name in value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@lru_cache(maxsize=1)
def get_settings() -> Settings:
    """The settings in force.

    Raises:
        ImproperlyConfigured: ``ANVIL`` has an unknown key or a value of the wrong type.
    """
    raw = getattr(django_settings, "ANVIL", {})
    if found := problems(raw):
        raise ImproperlyConfigured(" ".join(found))
    return Settings(**{key.lower(): value for key, value in raw.items()})


def _forget(*, setting: str, **kwargs: Any) -> None:
    if setting == "ANVIL":
        get_settings.cache_clear()


setting_changed.connect(_forget, dispatch_uid="anvil_django.conf")
