"""A client of event streams, as a browser's ``EventSource`` is one."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Event:
    """One event as it came."""

    id: str
    name: str
    data: Any


def parse(lines: Iterator[str]) -> Iterator[Event]:
    """The events of a stream; comments and ``retry`` are left out."""
    fields: dict[str, str] = {}
    for line in lines:
        if not line:
            if "data" in fields:
                yield Event(fields.get("id", ""), fields.get("event", "message"), json.loads(fields["data"]))
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value


@contextmanager
def opened(url: str, username: str, *, last_id: str = "", timeout: float = 20) -> Iterator[Iterator[Event]]:
    """A stream over a real connection, which is cut when the block ends."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout)
    login = base64.b64encode(f"{username}:secret".encode()).decode()
    headers = {"Accept": "text/event-stream", "Authorization": f"Basic {login}"}
    if last_id:
        headers["Last-Event-ID"] = last_id
    connection.request("GET", parts.path, headers=headers)
    response = connection.getresponse()
    try:
        assert response.status == 200, response.read()
        assert response.headers["Content-Type"] == "text/event-stream"
        yield parse(_lines(response))
    finally:
        response.close()
        connection.close()


def _lines(response: http.client.HTTPResponse) -> Iterator[str]:
    while line := response.readline():
        yield line.decode("ascii").rstrip("\n")


def feed(events: list[Event]) -> list[Any]:
    """What of the events is part of the feed, as polling shows it."""
    return [event.data for event in events if event.id]
