"""The processes of the example, each with its log, and none left behind."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

Found = TypeVar("Found")


class DemoError(Exception):
    """Something that had to happen did not."""


@dataclass
class Process:
    name: str
    popen: subprocess.Popen[bytes]
    log: Path

    def first_line(self) -> str:
        return self.log.read_text(errors="replace").partition("\n")[0]

    def tail(self, lines: int = 25) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


class Processes:
    """Starts processes in sessions of their own, and ends each with all its children."""

    def __init__(self, folder: Path, root: Path, environment: dict[str, str]) -> None:
        self.folder, self._root, self._environment = folder, root, environment
        self._running: list[Process] = []

    def python(self, name: str, *arguments: str, **environment: str) -> Process:
        """`python ARGUMENTS` from the project's root."""
        log = self.folder / f"{name}.log"
        with log.open("wb") as output:
            popen = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=self._root,
                env={**self._environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        process = Process(name, popen, log)
        self._running.append(process)
        return process

    def wait_for(
        self, what: str, look: Callable[[], Found | None], *, seconds: float, every: float = 0.02
    ) -> Found:
        """What `look` finds, once it finds something.

        Raises:
            DemoError: Nothing was found in time, or a process has ended.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = look()
            if found:
                return found
            self.check()
            time.sleep(every)
        raise DemoError(f"{what} did not happen within {seconds:.0f} s.")

    def check(self) -> None:
        """See that all of them live.

        Raises:
            DemoError: A process has ended.
        """
        for process in self._running:
            if process.popen.poll() is not None:
                raise DemoError(f"{process.name} ended with exit code {process.popen.returncode}.")

    def tails(self) -> str:
        """The ends of all logs."""
        return "\n".join(f"--- {p.name}: the end of its log\n{p.tail()}\n" for p in self._running)

    def stop(self) -> None:
        """End them all: asked first, then killed with whatever they have started."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # A second Ctrl-C must not leave half of them behind.
        for process in self._running:
            # Only the leader: a django-q2 cluster whose every process is told to stop hangs.
            if process.popen.poll() is None:
                process.popen.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 4
        for process in self._running:
            with suppress(subprocess.TimeoutExpired):
                process.popen.wait(max(deadline - time.monotonic(), 0.05))
            with suppress(ProcessLookupError):
                os.killpg(process.popen.pid, signal.SIGKILL)
            process.popen.wait()
        self._running.clear()


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
