"""HTTP for the scripted Messages API: reads a request, writes an answer or breaks off as a fault says."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

from anvil_django.testing import wire
from anvil_django.testing.fault import Fault
from anvil_django.testing.wire import Answer

_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests"}
_JSON = "application/json"
_LAST_CHUNK = b"0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Reply:
    """What one request gets: a JSON object, or an answer of the model, or a fault."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    answer: Answer | None = None
    fault: Fault | None = None
    stream: bool = False
    #: For `Backend.delivering`.
    token: Any = None


class Backend(Protocol):
    """What decides the replies."""

    stopping: threading.Event

    def reply(self, method: str, path: str, headers: Mapping[str, str], raw: bytes) -> Reply: ...

    def delivering(self, reply: Reply) -> AbstractContextManager[None]:
        """Count the answer while its end is written; a write that fails takes that back."""

    def request_id(self) -> str: ...


class Server(ThreadingHTTPServer):
    """A threading server on 127.0.0.1 that can hang up on its clients when it stops."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 512

    def __init__(self, port: int, backend: Backend) -> None:
        self.backend = backend
        self._open: set[socket.socket] = set()
        self._open_lock = threading.Lock()
        super().__init__(("127.0.0.1", port), Handler)

    def server_bind(self) -> None:
        # The base class looks up the name of the host, which can take seconds on a machine without DNS.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def track(self, connection: socket.socket, *, open: bool) -> None:
        with self._open_lock:
            (self._open.add if open else self._open.discard)(connection)

    def hang_up(self) -> None:
        """Close the listening socket and every connection."""
        self.server_close()
        with self._open_lock:
            connections = list(self._open)
        for connection in connections:
            _shut(connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing about a client that went away; anything else is printed as usual."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    """One connection, kept alive between requests."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server
    raw_requestline: bytes

    def setup(self) -> None:
        super().setup()
        self.server.track(self.connection, open=True)

    def finish(self) -> None:
        self.server.track(self.connection, open=False)
        super().finish()

    def parse_request(self) -> bool:
        """Read the request line and headers; the base class uses an e-mail parser, which is slow."""
        words = self.raw_requestline.decode("latin-1").split()
        self.requestline = " ".join(words)
        self.request_version = self.protocol_version
        if len(words) != 3:
            self.command, self.close_connection = "", True
            self._send(400, "text/plain", b"Bad request line")
            return False
        self.command, self.path, _ = words
        self._fields: dict[str, str] = {}
        while (line := self.rfile.readline(65537).decode("latin-1").strip()) != "":
            name, _, value = line.partition(":")
            self._fields[name.strip().lower()] = value.strip()
        self.close_connection = self._fields.get("connection", "").lower() == "close"
        return True

    def do_GET(self) -> None:
        self._handle(b"")

    def do_POST(self) -> None:
        if self._fields.get("expect", "").lower() == "100-continue":
            self.connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        length = int(self._fields.get("content-length") or 0)
        raw = self.rfile.read(length)
        if len(raw) < length:
            # The client died in the middle of its request; the API never gets to see such a one.
            self.close_connection = True
            return
        self._handle(raw)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _handle(self, raw: bytes) -> None:
        reply = self.server.backend.reply(self.command, self.path, self._fields, raw)
        if reply.fault is not None:
            self._break_off(reply, reply.fault)
        elif reply.answer is None:
            self._send(reply.status, _JSON, wire.encode(reply.body), reply.headers)
        else:
            self._answer(reply, reply.answer)

    def _answer(self, reply: Reply, answer: Answer) -> None:
        turn = answer.turn
        if turn.delay:
            self.server.backend.stopping.wait(turn.delay)
        if not reply.stream:
            body = wire.encode(answer.message)
            with self.server.backend.delivering(reply):
                self._send(200, _JSON, body)
            return
        chunks = [_chunk(event) for event in answer.events]
        head = self._head(200, "text/event-stream; charset=utf-8")
        if not turn.pace:
            with self.server.backend.delivering(reply):
                self.connection.sendall(b"".join([head, *chunks, _LAST_CHUNK]))
            return
        self.connection.sendall(head)
        for chunk in chunks:
            self.connection.sendall(chunk)
            self.server.backend.stopping.wait(turn.pace)
        with self.server.backend.delivering(reply):
            self.connection.sendall(_LAST_CHUNK)

    def _break_off(self, reply: Reply, fault: Fault) -> None:
        if fault.kind == "http" or (fault.kind == "error_event" and not reply.stream):
            # Without a stream an overload cannot come in the middle.
            status = fault.status if fault.kind == "http" else 529
            request_id = self.server.backend.request_id()
            body = wire.error_body(
                fault.error_type, fault.message, error_code=fault.error_code, request_id=request_id
            )
            self._send(status, _JSON, wire.encode(body), {**fault.headers, "request-id": request_id})
        elif fault.kind == "garbage":
            self._send(200, "text/html", b"<html><body>Bad gateway</body></html>")
        elif fault.kind == "no_answer":
            self._hang_up()
        elif reply.answer is not None and reply.stream:
            self._break_stream(fault, reply.answer.events)
        elif reply.answer is not None:
            self._break_json(fault, wire.encode(reply.answer.message))

    def _break_stream(self, fault: Fault, events: list[bytes]) -> None:
        # The last two events say how the turn ended; a stream that has them is not cut.
        whole = len(events) - 2
        sent = min(whole, len(events) // 2 if fault.events is None else fault.events)
        chunks = [_chunk(event) for event in events[:sent]]
        head = self._head(200, "text/event-stream; charset=utf-8")
        if fault.kind == "error_event":
            chunks += [_chunk(wire.error_event(fault.error_type, fault.message)), _LAST_CHUNK]
        elif fault.kind == "early_eof":
            chunks.append(_LAST_CHUNK)
        elif fault.kind == "dropped":
            broken = _chunk(events[sent])
            chunks.append(broken[: len(broken) // 2])
        self.connection.sendall(b"".join([head, *chunks]))
        if fault.kind == "stall":
            self.server.backend.stopping.wait(fault.seconds)
        if fault.kind in ("dropped", "stall"):
            self._hang_up()

    def _break_json(self, fault: Fault, body: bytes) -> None:
        half = body[: len(body) // 2]
        if fault.kind == "early_eof":
            self._send(200, _JSON, half)
            return
        if fault.kind == "stall":
            self.server.backend.stopping.wait(fault.seconds)
        else:
            self.connection.sendall(self._head(200, _JSON, length=len(body)) + half)
        self._hang_up()

    def _send(
        self, status: int, content_type: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> None:
        self.connection.sendall(self._head(status, content_type, length=len(body), headers=headers) + body)

    def _head(
        self,
        status: int,
        content_type: str,
        *,
        length: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Status line and headers; a body of unknown length is chunked."""
        size = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
        lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}", f"content-type: {content_type}", size]
        extra = dict(headers or {})
        extra.setdefault("request-id", self.server.backend.request_id())
        lines += [f"{name}: {value}" for name, value in extra.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    def _hang_up(self) -> None:
        self.close_connection = True
        _shut(self.connection)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
