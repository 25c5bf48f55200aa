"""The SDK's HTTP client for a server on loopback."""

from __future__ import annotations

from contextlib import suppress
from typing import Any


def loopback_http() -> Any:
    """An HTTP client like the SDK's own that reads no certificates.

    Reading those of the system takes longer than most tests, and a scripted server speaks plain HTTP. Like
    the client the SDK makes for itself, it closes its connections when it is dropped.
    """
    import anthropic

    class LoopbackHTTP(anthropic.DefaultHttpxClient):
        def __del__(self) -> None:
            if not self.is_closed:
                with suppress(Exception):
                    self.close()

    return LoopbackHTTP(verify=False)
