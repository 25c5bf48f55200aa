"""Every error this package raises, under one root.

The docstring of a class is its default sentence; ``code`` is stable and is what the REST API and the
stored ``error_code`` of a run carry. Constructors take data, never finished text. What a person meets is
translated when it is raised, what only a developer meets stays English (docs/translations.md).
"""

from __future__ import annotations

from typing import Any, ClassVar

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop


class AnvilError(Exception):
    """Something went wrong in anvil_django."""

    code: ClassVar[str] = "error"
    http_status: ClassVar[int] = 500

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or self._default())

    @property
    def message(self) -> str:
        return str(self.args[0])

    @classmethod
    def _default(cls) -> str:
        sentence = (cls.__doc__ or "").strip()
        return _(sentence) if sentence else ""  # gettext has the head of the catalog for "".


class BadInputError(AnvilError):
    """The request cannot be used as it is."""

    code = "bad_input"
    http_status = 422


class TooLargeError(BadInputError):
    """The request is larger than this site accepts."""

    code = "too_large"
    http_status = 413


UNKNOWN_AGENT = gettext_noop(
    "No agent named %(name)r is registered (registered: %(known)s). Register it in an agents.py of an "
    "installed app."
)


class UnknownAgentError(BadInputError):
    """No agent of that name is registered."""

    code = "unknown_agent"

    def __init__(self, name: str, known: list[str]) -> None:
        self.name, self.known = name, known
        listed = ", ".join(sorted(known)) or _("none")
        super().__init__(_(UNKNOWN_AGENT) % {"name": name, "known": listed})


class AgentNotAllowedError(AnvilError):
    """You may not start runs of this agent."""

    code = "agent_not_allowed"
    http_status = 403

    def __init__(self, agent: str, permission: str) -> None:
        self.agent, self.permission = agent, permission
        super().__init__(
            _("You need the permission %(permission)s to start runs of the agent %(agent)r.")
            % {"permission": permission, "agent": agent}
        )


class AgentDefinitionError(AnvilError):
    """An agent or a tool is defined in a way that cannot work."""

    code = "agent_definition"


class UnknownRunError(AnvilError):
    """No run with that run_id is stored."""

    code = "unknown_run"
    http_status = 404

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(
            _("No run with run_id %(run_id)r is stored. List them with: manage.py anvil_runs")
            % {"run_id": run_id}
        )


class RunIdTakenError(AnvilError):
    """The run_id belongs to another request."""

    code = "run_id_taken"
    http_status = 409

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(
            _(
                "run_id %(run_id)r is already used by a run of another request. "
                "Choose another run_id, or send exactly the same request to get that run."
            )
            % {"run_id": run_id}
        )


class IdempotencyKeyReusedError(AnvilError):
    """The idempotency key was already used for another request."""

    code = "idempotency_key_reused"
    http_status = 422

    def __init__(self, key: str) -> None:
        super().__init__(
            _("Idempotency key %(key)r was already used for another request. Use a new key.") % {"key": key}
        )


def _status(status: str) -> str:
    """The name of a status in the language of the reader; in English it is the status itself."""
    return _(status) if status else ""


class IllegalTransitionError(AnvilError):
    """The run is not in a state in which that can be done."""

    code = "illegal_transition"
    http_status = 409

    def __init__(self, run_id: str, status: str, wanted: str, *, until: str = "") -> None:
        self.run_id, self.status, self.wanted = run_id, status, wanted
        said = {"run_id": run_id, "status": _status(status), "wanted": _status(wanted), "until": until}
        if until:
            sentence = _("Run %(run_id)r is %(status)s until %(until)s; it cannot become %(wanted)s.")
        else:
            sentence = _("Run %(run_id)r is %(status)s; it cannot become %(wanted)s.")
        super().__init__(sentence % said)


class LeaseLostError(AnvilError):
    """Another worker has taken the run over; this one must stop at once."""

    code = "lease_lost"
    http_status = 409

    def __init__(self, run_id: str, token: int) -> None:
        self.run_id, self.token = run_id, token
        super().__init__(
            _(
                "The lease on run %(run_id)r (fencing token %(token)s) is no longer held by this worker. "
                "Nothing was written; whoever holds the lease now goes on."
            )
            % {"run_id": run_id, "token": token}
        )


class HistoryRewrittenError(AnvilError):
    """A stored message may not change."""

    code = "history_rewritten"
    http_status = 409

    def __init__(self, run_id: str, seq: int) -> None:
        super().__init__(
            _(
                "Message %(seq)s of run %(run_id)r differs from what is stored. The history is append-only: "
                "load the checkpoint again and add to its end."
            )
            % {"seq": seq, "run_id": run_id}
        )


class NewerCheckpointError(AnvilError):
    """The checkpoint was written by a newer version of anvil_django."""

    code = "newer_checkpoint"
    http_status = 409

    def __init__(self, found: Any, known: int) -> None:
        super().__init__(
            _(
                "This checkpoint has version %(found)r; this anvil_django reads up to version %(known)s. "
                "Upgrade anvil_django before you resume this run."
            )
            % {"found": found, "known": known}
        )


class RedactedCheckpointError(AnvilError):
    """Parts of this checkpoint are hidden (ANVIL["REDACT"]); load it from its store to go on with it."""

    code = "redacted_checkpoint"


class NotJSONError(AnvilError):
    """A value cannot be stored as JSON."""

    code = "not_json"

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        super().__init__(f"{path} {reason}")


class ApprovalRequiredError(AnvilError):
    """A person must approve this tool call before it runs."""

    code = "approval_required"

    def __init__(self, payload: Any = None) -> None:
        self.payload = payload
        super().__init__()
        # The loop looks here after the tool returns, so that a tool whose own "except Exception"
        # swallowed the raise still waits for its reviewer.
        from .tools import note_approval_request

        note_approval_request(self)


class DecisionError(AnvilError):
    """The decision cannot be taken."""

    code = "decision_refused"
    http_status = 409


class UnknownApprovalError(DecisionError):
    """No case has that id."""

    code = "unknown_approval"
    http_status = 404

    def __init__(self, pk: Any) -> None:
        super().__init__(
            _("No case has the id %(id)s. List them with: manage.py anvil_approvals list --status all")
            % {"id": pk}
        )


def call_of(tool: str) -> str:
    """What errors call the call of a tool that somebody decides about."""
    return _("The call of %(tool)r") % {"tool": tool}


class AlreadyDecidedError(DecisionError):
    """Somebody has already decided this."""

    code = "already_decided"

    def __init__(self, what: str, status: str, by: str = "") -> None:
        self.status, self.by = status, by
        said = {"what": what, "status": _status(status), "by": by}
        if by:
            sentence = _("%(what)s is already %(status)s by %(by)s; nothing was changed.")
        else:
            sentence = _("%(what)s is already %(status)s; nothing was changed.")
        super().__init__(sentence % said)


class ChangedSinceReadError(DecisionError):
    """What would be agreed to is not what this person read."""

    code = "changed_since_read"

    def __init__(self, tool: str) -> None:
        super().__init__(
            _("Somebody changed the arguments of %(tool)r since you read the case. Read it again.")
            % {"tool": tool}
        )


class ApprovalExpiredError(DecisionError):
    """The time to decide this is over."""

    code = "approval_expired"
    http_status = 410


class NotAllowedError(DecisionError):
    """You may not decide this."""

    code = "not_allowed"
    http_status = 403


class UnfitDecisionError(DecisionError):
    """What was given with the decision does not fit the case."""

    code = "decision_unfit"
    http_status = 422

    def __init__(self, message: str | None = None, *, field: str = "") -> None:
        self.field = field
        super().__init__(message)


class ClaimedError(DecisionError):
    """Somebody else is reading this case."""

    code = "claimed"

    def __init__(self, what: str, by: str) -> None:
        self.by = by
        super().__init__(
            _("%(what)s is claimed by %(by)s, who is reading it. Ask them to release it, or wait.")
            % {"what": what, "by": by}
        )


# For the catalogs, into which neither docstrings nor values of a status get by themselves: the default
# sentences that people meet, and the one status whose label is another word.
gettext_noop("The request cannot be used as it is.")
gettext_noop("The request is larger than this site accepts.")
gettext_noop("The decision cannot be taken.")
gettext_noop("The time to decide this is over.")
gettext_noop("You may not decide this.")
gettext_noop("What was given with the decision does not fit the case.")
gettext_noop("suspended")
