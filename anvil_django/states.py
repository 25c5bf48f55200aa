"""The states of a run and of a tool call, and the one table of allowed moves.

Code, database constraints and the docs' diagram all come from here.
"""

from __future__ import annotations

from enum import StrEnum


class RunStatus(StrEnum):
    """Where a run stands."""

    QUEUED = "queued"
    """Waits for a worker, or until ``next_attempt_at``."""
    RUNNING = "running"
    """A worker holds the lease and advances it (or died doing so: then it is interrupted)."""
    SUSPENDED = "suspended"
    """Waits for a person's decision."""
    PAUSED = "paused"
    """Stopped by an operator, or parked until an operator has mended something."""
    DONE = "done"
    """Finished; ``stop_reason`` says why."""
    FAILED = "failed"
    """Could not go on; ``error_code`` and ``error`` say why. It can be resumed."""
    CANCELLED = "cancelled"
    """Ended by a person."""


TRANSITIONS: dict[RunStatus, frozenset[RunStatus]] = {
    RunStatus.QUEUED: frozenset({RunStatus.RUNNING, RunStatus.PAUSED, RunStatus.FAILED, RunStatus.CANCELLED}),
    RunStatus.RUNNING: frozenset(
        {
            RunStatus.QUEUED,
            RunStatus.SUSPENDED,
            RunStatus.PAUSED,
            RunStatus.DONE,
            RunStatus.FAILED,
            RunStatus.CANCELLED,
        }
    ),
    RunStatus.SUSPENDED: frozenset({RunStatus.QUEUED, RunStatus.CANCELLED}),
    RunStatus.PAUSED: frozenset({RunStatus.QUEUED, RunStatus.CANCELLED}),
    RunStatus.FAILED: frozenset({RunStatus.QUEUED, RunStatus.CANCELLED}),
    # Only with a further message: resuming alone does nothing.
    RunStatus.DONE: frozenset({RunStatus.QUEUED}),
    RunStatus.CANCELLED: frozenset({RunStatus.QUEUED}),
}

TERMINAL = frozenset({RunStatus.DONE, RunStatus.FAILED, RunStatus.CANCELLED})
"""Statuses in which nothing more happens by itself."""
RESUMABLE = frozenset({RunStatus.SUSPENDED, RunStatus.PAUSED, RunStatus.FAILED})
"""Statuses out of which a person's resume (or decision) leads."""
ADVANCING = frozenset({RunStatus.QUEUED, RunStatus.RUNNING})
"""Statuses in which a worker advances the run, or will: it heeds what is asked of it."""
CONTINUABLE = TERMINAL
"""Statuses in which a further user message starts the run again."""
UNFINISHED = frozenset(s for s, to in TRANSITIONS.items() if RunStatus.CANCELLED in to)
"""Statuses that can still be cancelled."""


def sources(target: RunStatus) -> frozenset[RunStatus]:
    """The statuses from which ``target`` may be reached."""
    return frozenset(status for status, targets in TRANSITIONS.items() if target in targets)


class SliceEnd(StrEnum):
    """How a worker's slice of a run ended, where it is no status of the run."""

    LOST = "lost"
    """Its process died, or could not renew the lease."""
    GIVEN_UP = "given_up"
    """It raised, and let go of the run where it stood."""


class CallStatus(StrEnum):
    """Where a tool call stands."""

    READY = "ready"
    """Needs nobody and has not started."""
    WAITING = "waiting"
    """Waits for a person's decision."""
    STARTED = "started"
    """Its intent is stored; it runs, or its worker died while it ran."""
    IN_DOUBT = "in_doubt"
    """A side effect that was started and whose outcome nobody recorded."""
    DONE = "done"
    """Has its one result."""


class Outcome(StrEnum):
    """How a finished tool call ended."""

    RETURNED = "returned"
    """The tool ran and returned."""
    FAILED = "failed"
    """The tool ran and raised, or its result could not be stored."""
    REFUSED = "refused"
    """Never ran: unknown tool or invalid input."""
    REJECTED = "rejected"
    """Never ran: a person said no."""
    EXPIRED = "expired"
    """Never ran: nobody said yes in time."""
    DECLINED = "declined"
    """Never ran and nobody was asked: a person had said no to the same call in this run."""
    ANSWERED = "answered"
    """A person answered in the tool's place."""
    UNKNOWN = "unknown"
    """It was started and interrupted; the model was told that the outcome is unknown."""
    CANCELLED = "cancelled"
    """Never finished: the run was cancelled or ended before."""


class ApprovalKind(StrEnum):
    """Why a person is asked."""

    TOOL = "tool"
    """May this call run?"""
    IN_DOUBT = "in_doubt"
    """It was started: did it happen?"""
    LIMIT = "limit"
    """The run has reached a limit: may it use more?"""


class ApprovalStatus(StrEnum):
    """Where an approval stands."""

    PENDING = "pending"
    APPROVED = "approved"
    REJECTED = "rejected"
    EXPIRED = "expired"
    VOID = "void"
    """The run ended before anybody decided."""


class Verdict(StrEnum):
    """What a person said."""

    APPROVED = "approved"
    """Run it (a limit: raise it)."""
    EDITED = "edited"
    """Run it with other arguments (a limit: raise it by another amount)."""
    ANSWERED = "answered"
    """This is the result; do not run it."""
    REJECTED = "rejected"
    """Do not run it (a limit: stop here)."""
    EXPIRED = "expired"
    """Nobody said anything in time, which counts as a no."""
    HAPPENED = "happened"
    """In doubt: it happened, and this is its result."""
    NOT_HAPPENED = "not_happened"
    """In doubt: it did not happen, so run it."""
    UNKNOWN = "unknown"
    """In doubt: tell the agent that nobody knows."""


AGREEING = frozenset(
    {Verdict.APPROVED, Verdict.EDITED, Verdict.ANSWERED, Verdict.HAPPENED, Verdict.NOT_HAPPENED}
)
"""The verdicts that say yes to something; all others count as a no."""


class Channel(StrEnum):
    """Where a decision was taken."""

    ADMIN = "admin"
    API = "api"
    COMMAND = "command"
    CODE = "code"
    EXPIRY = "expiry"
