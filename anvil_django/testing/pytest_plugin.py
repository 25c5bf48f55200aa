"""A pytest fixture that stands a scripted Messages API in for the real one.

    def test_refund(messages_api):
        messages_api.script(say(tool_call("refund_order", {"number": "A-1"})), say("Refunded."))
        ...

Options of `ScriptedMessagesAPI` are given by a marker: ``@pytest.mark.messages_api(keyed="order")``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from anvil_django.testing.server import ScriptedMessagesAPI

#: What would make the SDK choose another credential, host or header.
_OTHER_SETTINGS = (
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_CUSTOM_HEADERS",
    "ANTHROPIC_PROFILE",
    "ANTHROPIC_CONFIG_DIR",
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "messages_api(**options): options of the scripted Messages API")


@pytest.fixture
def messages_api(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ScriptedMessagesAPI]:
    """A running `ScriptedMessagesAPI`, and the environment pointed at it.

    Checked at teardown, unless the test has failed by itself: then its own failure says more.
    """
    # The SDK takes seconds to import; inside the first model call they would count against a run's lease.
    import anthropic.resources.messages  # noqa: F401

    from anvil_django.testing.server import ScriptedMessagesAPI

    marker = request.node.get_closest_marker("messages_api")
    api = ScriptedMessagesAPI(**(marker.kwargs if marker else {}))
    failed_before = request.session.testsfailed
    api.start()
    try:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
        for name in _OTHER_SETTINGS:
            monkeypatch.delenv(name, raising=False)
        _reset_clients()
        yield api
    finally:
        api.stop()
        _reset_clients()
    if request.session.testsfailed == failed_before:
        api.check()


def _reset_clients() -> None:
    """Forget the clients that were built for another URL; there are none before the module is imported."""
    module = sys.modules.get("anvil_django.clients")
    if module is not None:
        # Left to the garbage collector, its sockets would be a ResourceWarning of some later test.
        close = getattr(module.reset_clients(), "close", None)
        if callable(close):
            close()
