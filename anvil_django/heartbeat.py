"""Keeping the lease while a model or a tool runs, and hearing what is asked of the run meanwhile."""

from __future__ import annotations

import logging
import threading
from types import TracebackType
from typing import Self

from .errors import LeaseLostError
from .leases import Lease
from .stores.base import Request, StateStore

logger = logging.getLogger(__name__)


class Heartbeat:
    """Renews a lease from a thread of its own, until it is left or the lease is lost.

    It proves that the process lives, not that the run gets on: each step has its own time limit.

    Args:
        store: Where the lease is kept; nothing runs when nobody else can see its runs.
        seconds: Time between renewals.
    """

    def __init__(self, store: StateStore, lease: Lease, seconds: float) -> None:
        self._store, self._lease, self._seconds = store, lease, seconds
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.request: Request | None = None
        """What was asked of the run."""
        self.lost = False
        """Whether the lease is somebody else's."""

    def __enter__(self) -> Self:
        if self._store.shares_runs:
            self._thread = threading.Thread(target=self._beat, name="anvil-heartbeat", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _beat(self) -> None:
        try:
            while not self._stop.wait(self._seconds):
                self._renew()
                if self.lost:
                    return
        finally:
            self._store.close_connection()

    def _renew(self) -> None:
        try:
            self.request = self._store.renew(self._lease)
        except LeaseLostError:
            self.lost = True
        except Exception as exc:  # noqa: BLE001 (whatever it is, the next beat tries again)
            # The database may be away for a moment. The lease simply runs on, or out.
            logger.warning("lease not renewed: %s", type(exc).__name__, extra={"run_id": self._lease.run_id})
            self._store.close_connection()
