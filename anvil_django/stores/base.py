"""``StateStore``: what the loop asks of whatever keeps the checkpoints.

Write your own by subclassing; ``anvil_django.testing.StoreConformance`` tests it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Literal

from ..calls import Decision
from ..checkpoint import AgentCheckpoint
from ..errors import AnvilError, RunIdTakenError
from ..leases import Lease
from ..states import RunStatus

Request = Literal["cancel", "pause", "steer"]
REQUESTS: frozenset[Request] = frozenset({"cancel", "pause", "steer"})
"""What can be asked of a run that somebody advances; ``steer``: a message waits for a place."""
ONLY_CANCEL: frozenset[Request] = frozenset({"cancel"})
"""What a save heeds that lets the run rest: nobody would heed it afterwards."""


class RunRequestedError(AnvilError):
    """Somebody asked to cancel or pause the run; nothing was written."""

    code = "run_requested"

    def __init__(self, request: Request) -> None:
        self.request = request
        super().__init__()


class ApprovalUnusableError(AnvilError):
    """The approval of a call does not stand; nothing was written."""

    code = "approval_unusable"

    def __init__(self, call_id: str) -> None:
        self.call_id = call_id
        super().__init__()


class TransactionCutOffError(AnvilError):
    """The connection to the database broke inside an atomic tool's transaction: only what is stored tells
    whether it was committed."""

    code = "transaction_cut_off"


class StateStore(ABC):
    """Keeps checkpoints, one per run, and the lease on each.

    Every change is a compare-and-set: a save names the fencing token and the revision it was read under, and
    is refused whole when the stored ones differ.
    """

    keeps_transactions: ClassVar[bool] = False
    """Whether ``transaction`` makes a tool's own database writes and the save inside it one commit."""
    shares_runs: ClassVar[bool] = False
    """Whether other processes can see the runs, so that leases must be renewed and workers can take over."""

    @abstractmethod
    def load(self, run_id: str) -> AgentCheckpoint | None:
        """The stored checkpoint, or None."""

    @abstractmethod
    def put(self, checkpoint: AgentCheckpoint) -> None:
        """Create the run, or add what is new to it, without a lease.

        Raises:
            LeaseLostError: The token or revision is not the stored one.
            HistoryRewrittenError: A stored message differs.
        """

    def create(self, checkpoint: AgentCheckpoint, *, user: Any = None) -> None:
        """Create the run; ``user`` is who it runs for, where the store can keep that.

        Raises:
            RunIdTakenError: The run exists.
        """
        if self.load(checkpoint.run_id) is not None:
            raise RunIdTakenError(checkpoint.run_id)
        self.put(checkpoint)

    def user_loader(self, run_id: str) -> Callable[[], Any] | None:
        """A function that finds who the run belongs to, where the store keeps that."""
        return None

    @abstractmethod
    def delete(self, run_id: str) -> bool:
        """Forget the run; True if there was one."""

    @abstractmethod
    def run_ids(self) -> list[str]:
        """The ids of all runs, oldest first."""

    @abstractmethod
    def claim(
        self, run_id: str, owner: str, seconds: float, *, any_idle: bool = False
    ) -> tuple[AgentCheckpoint, Lease] | None:
        """Take the run for ``seconds`` under a new fencing token, or None.

        A run can be taken when it is queued and due, or running under a lease that has expired (which counts
        as a recovery). ``any_idle`` also takes a suspended, paused or failed run, to end it.
        """

    @abstractmethod
    def save(
        self,
        checkpoint: AgentCheckpoint,
        lease: Lease,
        *,
        progress: bool,
        heed: Collection[Request] = REQUESTS,
    ) -> None:
        """Store what is new, renew the lease, and give it up if the status is no longer running.

        Args:
            progress: Whether a step was finished, which resets the count of recoveries.
            heed: The requests that refuse the save when they are pending.

        Raises:
            LeaseLostError: The lease is somebody else's, or the run moved on.
            RunRequestedError: A request that is heeded is pending.
            ApprovalUnusableError: A call is to start on an approval that does not stand.
        """

    @abstractmethod
    def renew(self, lease: Lease) -> Request | None:
        """Extend the lease; says what was asked of the run meanwhile.

        Raises:
            LeaseLostError: The lease is somebody else's.
        """

    @abstractmethod
    def release(self, lease: Lease) -> None:
        """Give the run up without a change, if it is still held: it is interrupted then."""

    @abstractmethod
    def wake(self, run_id: str, sources: Collection[RunStatus]) -> bool:
        """Queue the run if its status is one of ``sources``; a suspended one only once all is decided."""

    @abstractmethod
    def request(self, run_id: str, request: Request, *, by: str = "") -> bool:
        """Ask whoever advances the run, or takes it next, to cancel or pause it; False if nobody will.

        Only of a run that is queued or running: one that rests has nobody who would heed it.

        ``by`` is who asks, where the store can keep that.
        """

    def take_steering(self, checkpoint: AgentCheckpoint) -> list[tuple[Any, Any]]:
        """The messages that wait for a place, with the store's own keys, oldest first.

        The loop appends them to the history and notes their keys in ``checkpoint.placed``; the next save
        marks them as placed.
        """
        return []

    @abstractmethod
    def decide(self, run_id: str, call_id: str, decision: Decision) -> None:
        """Record the one decision on a waiting call.

        Raises:
            UnknownRunError: No such run.
            DecisionError: Nothing waits under that call id, or it is decided already.
        """

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """A transaction around an atomic tool and the save of its result.

        Raises:
            TransactionCutOffError: Where it ends, when the connection was lost.
        """

    def refresh_connections(self) -> None:  # noqa: B027 (most stores have none)
        """Have connections that lay idle looked at before the next use; called before each tool."""

    def close_connection(self) -> None:  # noqa: B027 (most stores have none)
        """Give up what the calling thread holds open; called at the end of helper threads."""
