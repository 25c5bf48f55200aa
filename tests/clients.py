"""The client of the suite: the SDK's own, spared from reading certificates that no loopback shows."""

from __future__ import annotations

import anthropic

from anvil_django.conf import get_settings
from anvil_django.testing.loopback import loopback_http


def loopback() -> anthropic.Anthropic:
    """What ``default_client`` makes, in a tenth of the time; over a thousand tests make one."""
    timeout = anthropic.Timeout(get_settings().request_timeout, connect=10.0)
    return anthropic.Anthropic(max_retries=0, timeout=timeout, http_client=loopback_http())
