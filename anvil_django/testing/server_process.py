"""The scripted Messages API as a process: ``python -m anvil_django.testing.server shop.demo:script``."""

from __future__ import annotations

import argparse
import importlib
import inspect
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from anvil_django.testing.server import ScriptedMessagesAPI


def load(path: str) -> Any:
    """The object at ``package.module:name``; called first when it takes no arguments.

    Raises:
        SystemExit: When there is no such object.
    """
    module_name, _, name = path.partition(":") if ":" in path else path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module_name), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise SystemExit(f"Cannot load {path!r}: {error}. Write it as package.module:name.") from error
    if inspect.isroutine(found) and not inspect.signature(found).parameters:
        return found()
    return found


def build(script: Any, *, port: int, keyed: str, forks: bool) -> ScriptedMessagesAPI:
    """A server for what `load` found.

    Args:
        script: Turns, a function of the request, or a dict from ``match`` to either.
        port: See `ScriptedMessagesAPI`, as for the rest.
        keyed: ``"history"`` or ``"order"``.
        forks: Allow conversations that begin alike.
    """
    api = ScriptedMessagesAPI(keyed="order" if keyed == "order" else "history", port=port, forks=forks)
    scripts = script if isinstance(script, Mapping) else {None: script}
    for match, source in scripts.items():
        api.add(source, match=match or None)
    return api


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; 1 when a rule was broken or a request had no turn."""
    parser = argparse.ArgumentParser(prog="python -m anvil_django.testing.server", description=__doc__)
    parser.add_argument("script", help="package.module:name of a script, or of a function that makes one")
    parser.add_argument("--port", type=int, default=0, help="TCP port on 127.0.0.1; 0 takes a free one")
    parser.add_argument("--keyed", choices=["history", "order"], default="history")
    parser.add_argument("--forks", action="store_true", help="allow conversations that begin alike")
    parser.add_argument("--all-served", action="store_true", help="also fail when a turn was never served")
    options = parser.parse_args(arguments)
    # As with `python -m`, a script beside the caller can be named.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    api = build(load(options.script), port=options.port, keyed=options.keyed, forks=options.forks)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    api.start()
    _say(api.url)
    stop.wait()
    api.stop()
    problems = api.problems(unconsumed=options.all_served)
    for line in problems:
        _say(f"- {line}")
    return 1 if problems else 0


def _say(line: str) -> None:
    # Flushed, since another process waits for the line.
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
