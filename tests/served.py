"""The site behind an ASGI server in a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

from django.db import connection


@contextmanager
def served() -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """An ASGI server in a process of its own, on the test's database."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "uvicorn", "tests.asgi:application", "--port", str(port)]
    name = str(connection.settings_dict["NAME"])
    server = subprocess.Popen(
        [*command, "--log-level", "warning", "--lifespan", "off"],
        env={**os.environ, "ANVIL_TEST_DB_NAME": name},
    )
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with closing(socket.socket()) as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}", server
    finally:
        server.kill()
        server.wait(10)
