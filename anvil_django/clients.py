"""This process's client of the Messages API: made once, when it is first needed, by ``ANVIL["CLIENT"]``."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

from .errors import AnvilError
from .model_errors import unconfigured

if TYPE_CHECKING:
    import anthropic

    from .conf import Settings


def default_client() -> anthropic.Anthropic:
    """The client for sites that set none: the SDK's own, configured by its environment variables.

    It never retries by itself: a run's retries are scheduled in the database, where a worker does not sleep
    through them.
    """
    import anthropic

    from .conf import get_settings

    seconds = get_settings().request_timeout
    # An answer may take its time to begin; a connection that takes this long will not come.
    timeout = anthropic.Timeout(seconds, connect=min(seconds, 10.0))
    # Its own span of a call would count the same tokens a second time. Older SDKs have none.
    quiet: dict[str, Any] = {}
    if get_settings().telemetry and hasattr(anthropic.Anthropic, "open_telemetry"):
        quiet = {"open_telemetry": False}
    return anthropic.Anthropic(max_retries=0, timeout=timeout, **quiet)


_lock = threading.Lock()
# With the process and the settings it was made for.
_client: tuple[int, Settings, Any] | None = None
# Clients of earlier settings: a call may still be in progress on one, so it is closed only by a reset.
_retired: list[Any] = []


def get_client() -> Any:
    """This process's client, made by ``ANVIL["CLIENT"]`` when it is first needed.

    One client serves all threads. It is made anew in a forked child, since connections cannot be shared, and
    when the settings have changed.

    Raises:
        ModelCallError: The client cannot be made (kind "config").
    """
    from .conf import get_settings

    global _client
    pid, settings = os.getpid(), get_settings()
    with _lock:
        if _client is None or _client[0] != pid or _client[1] is not settings:
            if _client is not None and _client[0] == pid:
                _retired.append(_client[2])
            _client = pid, settings, _make_client(settings)
        return _client[2]


def _make_client(settings: Settings) -> Any:
    try:
        client = settings.client_factory()()
        # Retries inside the SDK would be invisible, uncounted, and asleep in a worker.
        return client.with_options(max_retries=0) if hasattr(client, "with_options") else client
    except AnvilError:
        raise
    except Exception as exc:  # noqa: BLE001 (the site's own code)
        # The site's own words may hold a key, and whatever is chained to an error ends up in some log.
        raise unconfigured(exc) from None


def reset_clients() -> Any:
    """Forget the client; the next call makes a new one. Calls in progress keep the old one.

    Returns:
        The old one, for whoever knows that no call is in progress to close it; None if there was none.
    """
    global _client
    with _lock:
        old, _client = _client, None
        retired, _retired[:] = list(_retired), []
    for client in retired:
        if callable(close := getattr(client, "close", None)):
            close()
    return old[2] if old is not None else None


def _unlock_in_child() -> None:
    # A fork can happen while another thread of the parent holds the lock; nobody would release it here.
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_unlock_in_child)
