"""The feed of a run: for polling, and as Server-Sent Events under WSGI and ASGI alike.

Both are read from the run's rows, so that a client which comes back with the id of the last event it has
misses nothing and sees nothing twice. No transaction and no connection is held while nothing happens.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.auth import get_user_model
from django.core.handlers.asgi import ASGIRequest
from django.db import connections
from django.db.models import Model
from django.http import StreamingHttpResponse
from django.http.response import HttpResponseBase
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from .. import feed
from ..clock import get_clock
from ..conf import get_settings
from ..models import Run
from .formats import EventStreamRenderer, JSONRenderer
from .lists import asked
from .schema import documented
from .serializers import EventPageSerializer, EventSerializer

MOST = 500
STREAMED = 50
"""Events that a stream reads at once."""
RETRY_MILLISECONDS = 2000
LAST_EVENT_ID = {"Last-Event-ID": "The id of the last event you have; stronger than `after`."}


class EventQuery(serializers.Serializer[Any]):
    """Where the feed is read from, and how much of it."""

    after = serializers.CharField(
        default="", allow_blank=True, max_length=100, help_text="The id of the last event you have."
    )
    limit = serializers.IntegerField(
        default=200, min_value=1, max_value=MOST, help_text="About how many events at most; not for streams."
    )


class EventsMixin:
    """What happened in a run, in order."""

    get_object: Any

    @documented(
        {200: EventPageSerializer, 204: None},
        query=EventQuery,
        headers=LAST_EVENT_ID,
        problems=(404, 422),
        stream=True,
    )
    @action(detail=True, methods=["get"], renderer_classes=(JSONRenderer, EventStreamRenderer))
    def events(self, request: Request, run_id: str) -> HttpResponseBase:
        """What happened after a cursor; ``Accept: text/event-stream`` keeps the answer open.

        A stream ends when the run has, and after ``EVENTS_MAX_SECONDS``; a stream of a run that has ended and
        of which the client has everything is answered by 204, at which browsers stop to reconnect.
        """
        run, query = self.get_object(), asked(EventQuery, request)
        after = feed.Cursor.parse(request.headers.get("Last-Event-ID") or query["after"])
        if not isinstance(request.accepted_renderer, EventStreamRenderer):
            page = feed.page(run, after, limit=query["limit"])
            return Response(EventPageSerializer(_shown(page)).data)
        page = feed.page(run, after, limit=1)
        if page.ended and not page.events:
            return Response(status=status.HTTP_204_NO_CONTENT)
        return _open(Stream(run, request.user, after), request)


def _shown(page: feed.Page) -> dict[str, Any]:
    return {
        "events": page.events,
        "next": page.cursor,
        "more": page.more,
        "ended": page.ended,
        "status": page.run.status,
        "why": page.run.why,
    }


def _open(stream: Stream, request: Request) -> StreamingHttpResponse:
    # A synchronous iterator would be read to its end by ASGI before anything is sent.
    asynchronous = isinstance(request._request, ASGIRequest)
    chunks = _chunks_async(stream) if asynchronous else _chunks(stream)
    response = StreamingHttpResponse(chunks, content_type=EventStreamRenderer.media_type)
    # Neither a proxy nor the host's GZipMiddleware may collect what should be seen at once.
    response["X-Accel-Buffering"] = "no"
    response["Content-Encoding"] = "identity"
    return response


def _chunks(stream: Stream) -> Iterator[bytes]:
    while True:
        if chunk := stream.advance():
            yield chunk
        if stream.is_over:
            return
        get_clock().sleep(stream.pause)


async def _chunks_async(stream: Stream) -> AsyncIterator[bytes]:
    advance = sync_to_async(stream.advance, thread_sensitive=True)
    while True:
        if chunk := await advance():
            yield chunk
        if stream.is_over:
            return
        await asyncio.sleep(stream.pause)


class Stream:
    """One client's stream: what it is sent next, and when it is over."""

    def __init__(self, run: Run, user: Any, after: feed.Cursor) -> None:
        self.is_over = False
        self.pause = 0.0
        """Seconds until the next look."""
        self._run, self._user, self._cursor = run, user, after
        self._mark: Any = None
        self._told: Any = None
        self._began = self._spoke = get_clock().monotonic()

    def advance(self) -> bytes:
        """What there is to send now, and nothing if there is nothing new."""
        try:
            text = "".join(self._texts())
        finally:
            for connection in connections.all(initialized_only=True):
                if not connection.in_atomic_block:
                    connection.close()
        if text:
            self._spoke = get_clock().monotonic()
        return text.encode("ascii")

    def _texts(self) -> Iterator[str]:
        settings, now, begins = get_settings(), get_clock().monotonic(), self._mark is None
        if begins:
            yield f"retry: {RETRY_MILLISECONDS}\n\n"
        self.pause = settings.events_poll_seconds
        mark, quiet = feed.mark(self._run), now - self._spoke >= settings.events_heartbeat_seconds
        if mark != self._mark or quiet:
            # Asked again before anything is sent: a stream may outlive the right to see it.
            if not self._may_see():
                yield from self._end("not_visible")
                return
            yield from self._news(mark)
            if quiet:
                yield ": alive\n\n"
        if now - self._began >= settings.events_max_seconds:
            self.is_over = True

    def _news(self, mark: Any) -> Iterator[str]:
        page = feed.page(self._run, self._cursor, limit=STREAMED)
        for event in page.events:
            yield _event(event.type, EventSerializer(event).data, str(event.cursor))
        self._cursor = page.cursor
        if page.more:
            self.pause = 0.0
        else:
            self._mark = mark
        told = {"status": page.run.status, "why": page.run.why}
        if not page.more and told != self._told:
            self._told = told
            yield _event("status", told)
        self._mark = self._mark or False
        if page.ended:
            yield from self._end("run_ended")

    def _end(self, reason: str) -> Iterator[str]:
        self.is_over = True
        yield _event("end", {"reason": reason})

    def _may_see(self) -> bool:
        user = self._user
        if isinstance(user, Model):
            user = get_user_model()._default_manager.filter(pk=user.pk).first()
        visible = user is not None and user.is_active and Run.objects.visible_to(user)
        return bool(visible is not False and visible.filter(pk=self._run.pk).exists())


def _event(name: str, data: Any, cursor: str = "") -> str:
    """One event; without a cursor it leaves the client's last id as it is."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return (f"id: {cursor}\n" if cursor else "") + f"event: {name}\ndata: {text}\n\n"
