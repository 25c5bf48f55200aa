"""Running a tool's function: in this thread, in a thread with a time limit, or as a coroutine."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar, copy_context
from typing import Any

from .errors import ApprovalRequiredError

logger = logging.getLogger("anvil_django.tools")

CANCEL_GRACE = 1.0
"""Seconds a coroutine gets to end after its time limit, before it is left behind."""

_requests: ContextVar[list[ApprovalRequiredError] | None] = ContextVar(
    "anvil_approval_requests", default=None
)


class ExpiredError(Exception):
    """The function was not finished in time."""


def note_approval_request(exc: ApprovalRequiredError) -> None:
    """Remember that the tool now running asked for approval; called wherever that error is made.

    So a tool whose own ``except Exception`` swallowed the error waits for its reviewer all the same.
    """
    requests = _requests.get()
    if requests is not None:
        requests.append(exc)


@contextlib.contextmanager
def approval_requests() -> Iterator[list[ApprovalRequiredError]]:
    """The approval requests made while the block runs: here, in coroutines, in threads with our context."""
    requests: list[ApprovalRequiredError] = []
    token = _requests.set(requests)
    try:
        yield requests
    finally:
        _requests.reset(token)


def call(fn: Callable[..., Any], arguments: dict[str, Any], *, timeout: float | None) -> Any:
    """Call the function and wait for it, whatever it is.

    Args:
        fn: The function; a coroutine function runs in an event loop of its own, and what it does with the ORM
            through ``sync_to_async`` happens in this thread and so in this thread's transaction.
        arguments: Keyword arguments.
        timeout: Seconds; None waits forever.

    Raises:
        ExpiredError: The time is over. A coroutine has been cancelled. A thread cannot be stopped in Python:
            it goes on until the function returns, and nobody looks at what it returns.
    """
    if inspect.iscoroutinefunction(fn):
        from asgiref.sync import async_to_sync

        return async_to_sync(_await)(fn, arguments, timeout)
    if timeout is None:
        return _finish(fn(**arguments))
    return _in_thread(lambda: _finish(fn(**arguments)), timeout)


def _finish(value: Any) -> Any:
    """Wait for what a plain function returned, if that is a coroutine (of a wrapped async function, say)."""
    if not inspect.isawaitable(value):
        return value
    from asgiref.sync import async_to_sync

    async def wait(awaitable: Awaitable[Any]) -> Any:
        return await awaitable

    return async_to_sync(wait)(value)


async def _await(fn: Callable[..., Awaitable[Any]], arguments: dict[str, Any], seconds: float | None) -> Any:
    try:
        if seconds is None:
            return await fn(**arguments)
        return await _await_bounded(fn, arguments, seconds)
    except asyncio.CancelledError as exc:
        # Nobody cancels this loop from outside: it was the tool's own doing, no reason to end the worker.
        raise RuntimeError("the tool cancelled itself") from exc


async def _await_bounded(fn: Callable[..., Awaitable[Any]], arguments: dict[str, Any], seconds: float) -> Any:
    # Not asyncio.wait_for: it cannot tell its own TimeoutError from one the tool raised, and it waits forever
    # for a coroutine that ignores being cancelled.
    task = asyncio.ensure_future(fn(**arguments))
    done, _ = await asyncio.wait({task}, timeout=seconds)
    if done:
        return task.result()
    task.cancel()
    await asyncio.wait({task}, timeout=CANCEL_GRACE)
    if task.done() and not task.cancelled() and not isinstance(task.exception(), Exception):
        return task.result()  # it was just finishing: a known result is better than a doubt
    raise ExpiredError


def _in_thread(work: Callable[[], Any], timeout: float) -> Any:
    context = copy_context()
    finished = threading.Event()
    results: list[Any] = []
    errors: list[BaseException] = []

    def target() -> None:
        try:
            results.append(context.run(work))
        except BaseException as exc:  # noqa: BLE001 - raised again in the thread that waits
            errors.append(exc)
        finally:
            finished.set()
            _close_connections()

    threading.Thread(target=target, name="anvil-tool", daemon=True).start()
    finished.wait(timeout)
    if results:
        return results[0]
    if errors:
        raise errors[0]
    raise ExpiredError


def _close_connections() -> None:
    """Close the database connections this thread opened; without Django's ORM there are none."""
    db = sys.modules.get("django.db")
    if db is None:
        return
    from django.conf import settings

    if not settings.configured:
        return
    try:
        db.connections.close_all()
    except Exception:
        logger.exception("The database connections of a tool's thread could not be closed")
