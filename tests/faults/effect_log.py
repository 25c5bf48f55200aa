"""The effect log: what the tools did to the world, where no rollback and no kill can take it back."""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from anvil_django import ToolContext


def start_time(pid: int) -> str | None:
    """When a process was started, in clock ticks since boot; None when it does not live."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in {"Z", "X"} else fields[19]


def write(path: Path, event: str, *, effect: str, tool: str, kind: str, ctx: ToolContext) -> None:
    """Append one line, whole or not at all; see ``facts.py`` for what it means."""
    line = {
        "event": event,
        "effect": effect,
        "tool": tool,
        "kind": kind,
        "key": ctx.idempotency_key,
        "run": ctx.run_id,
        "call": ctx.call_id,
        "pid": os.getpid(),
        "started": start_time(os.getpid()),
        "at": time.time(),
    }
    with open(path, "ab", buffering=0) as log:
        log.write(json.dumps(line).encode() + b"\n")


def read(path: Path) -> list[dict[str, Any]]:
    """All whole lines so far."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


def by_key(path: Path) -> dict[str, list[dict[str, Any]]]:
    """The lines of each idempotency key, in order."""
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in read(path):
        found[line["key"]].append(line)
    return found


def is_alive(line: dict[str, Any]) -> bool:
    """Whether the process that wrote the line still lives, be it stopped."""
    return start_time(line["pid"]) == line["started"]
