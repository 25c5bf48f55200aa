"""One tool call of a run, and the decision a person took about it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from . import exactjson
from .conf import get_settings
from .errors import AlreadyDecidedError, DecisionError, NotJSONError, UnfitDecisionError, call_of
from .states import ApprovalKind, CallStatus, Channel, Outcome, Verdict

REASON_LIMIT = 10_000
"""Most characters of the reason of a decision."""

NOBODY = gettext_noop("nobody in time")
"""The reviewer of a question whose time ran out."""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """A person's verdict on a waiting tool call.

    Args:
        approved: True: run it. False: do not. For a call in doubt, True means "it did not happen, run it",
            or, with an answer, "it happened and this is its result"; False means "tell the agent it failed".
        reviewer: Who decided; never empty.
        reason: Why; goes to the model when the call does not run.
        edited_input: Other arguments to run the tool with; the model is told that they were changed.
        answer: A result in the tool's place; the tool does not run.
    """

    approved: bool
    reviewer: str
    reason: str = ""
    edited_input: dict[str, Any] | None = None
    answer: Any = None
    decided_at: datetime | None = None
    channel: str = "code"
    digest: str = ""

    def check(self) -> None:
        """Raise DecisionError unless this is one clear verdict of a named person."""
        if self.approved is not True and self.approved is not False:
            raise DecisionError(
                f"approved must be True or False, not {self.approved!r}; nothing was decided."
            )
        if not isinstance(self.reviewer, str) or not self.reviewer.strip():
            raise DecisionError(_("A decision names a person: give reviewer."))
        if not isinstance(self.reason, str):
            raise DecisionError(_("The reason of a decision is a text."))
        if len(self.reason) > REASON_LIMIT:
            raise UnfitDecisionError(
                _("The reason has %(length)s characters; at most %(most)s are accepted.")
                % {"length": len(self.reason), "most": REASON_LIMIT},
                field="reason",
            )
        if not self.approved and self.edited_input is not None:
            raise DecisionError(_("A rejection cannot carry edited arguments."))
        if not self.approved and self.answer is not None:
            raise DecisionError(_("A rejection cannot carry an answer; give the reason instead."))
        if self.edited_input is not None and self.answer is not None:
            raise DecisionError(_("Give edited arguments or an answer, not both."))
        if self.edited_input is not None and not isinstance(self.edited_input, dict):
            raise DecisionError(_("Edited arguments must be an object, as the tool's input is."))

    @property
    def is_plain_yes(self) -> bool:
        """Whether it agrees to the case as it is; about a doubt, that means "it did not happen"."""
        return self.approved and self.edited_input is None and self.answer is None

    def verdict(self, kind: ApprovalKind) -> Verdict:
        """What it says about a question of that kind."""
        if self.channel == Channel.EXPIRY:
            return Verdict.EXPIRED
        if kind is ApprovalKind.IN_DOUBT:
            if not self.approved:
                return Verdict.UNKNOWN
            return Verdict.NOT_HAPPENED if self.answer is None else Verdict.HAPPENED
        if not self.approved:
            return Verdict.REJECTED
        if self.answer is not None:
            return Verdict.ANSWERED
        return Verdict.APPROVED if self.edited_input is None else Verdict.EDITED

    def storable(self) -> Self:
        """The decision with an answer and edited arguments that every store can keep.

        Raises:
            DecisionError: One of them is not JSON, or too large.
        """
        try:
            return replace(
                self,
                answer=_as_stored(self.answer, "answer"),
                edited_input=_as_stored(self.edited_input, "edited_input"),
                reason=exactjson.clean_text(self.reason),
                reviewer=exactjson.clean_text(self.reviewer),
            )
        except NotJSONError as exc:
            raise DecisionError(_("%(why)s Nothing was decided.") % {"why": exc.message}) from exc

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        data = asdict(self)
        data["decided_at"] = self.decided_at.isoformat() if self.decided_at else None
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The reverse of ``to_dict``."""
        known = {key: data[key] for key in cls.__dataclass_fields__ if key in data}
        if known.get("decided_at"):
            known["decided_at"] = datetime.fromisoformat(known["decided_at"])
        return cls(**known)


@dataclass(kw_only=True)
class ToolCall:
    """One ``tool_use`` block and what became of it.

    ``input`` is what the model wrote; ``effect`` and ``on_interrupt`` are frozen from the tool when the call
    is stored, so that a later deploy cannot turn an in-doubt side effect into something that is simply run
    again. ``started_token`` is the fencing token under which it was last started: another token there means
    that whoever started it is gone.
    """

    call_id: str
    name: str
    input: dict[str, Any]
    seq: int
    index: int
    effect: str = "none"
    on_interrupt: str | None = None
    status: CallStatus = CallStatus.READY
    attempts: int = 0
    started_token: int = 0
    outcome: Outcome | None = None
    content: str | list[dict[str, Any]] | None = None
    is_error: bool = False
    kind: ApprovalKind | None = None
    payload: Any = None
    reviewers: str | None = None
    needed: int = 1
    escalate_to: str | None = None
    escalate_at: datetime | None = None
    expires_at: datetime | None = None
    agreed: list[Decision] = field(default_factory=list)
    decision: Decision | None = None
    approval_id: Any = field(default=None, compare=False)
    """The store's own name for the approval, for the store alone."""
    consuming: bool = field(default=False, compare=False)
    """The next save uses the approval up."""
    stored: bool = field(default=False, compare=False)
    """The store has a copy."""

    @property
    def arguments(self) -> dict[str, Any]:
        """What the tool is run with: the model's input, or what a reviewer made of it."""
        if self.decision and self.decision.edited_input is not None:
            return self.decision.edited_input
        return self.input

    @property
    def undecided(self) -> bool:
        """Whether a person still has to decide."""
        return self.status in {CallStatus.WAITING, CallStatus.IN_DOUBT} and self.decision is None

    def digest(self, run_id: str, edited_input: dict[str, Any] | None = None, answer: Any = None) -> str:
        """What a decision is bound to: run, call, tool, arguments and answer, as stored."""
        arguments = self.input if edited_input is None else edited_input
        parts = (run_id, self.call_id, self.name, arguments)
        return exactjson.digest(*parts) if answer is None else exactjson.digest(*parts, answer)

    @property
    def subject(self) -> str:
        """What a rejection is about: the tool and the arguments, whatever the call."""
        return exactjson.digest(self.name, self.input)

    def take(self, decision: Decision, run_id: str) -> None:
        """Take in one person's decision; with a quorum it stands once enough people agree to the same.

        A person who changes the arguments or the answer begins a new round: what others agreed to before was
        something else. One rejection rejects.

        Raises:
            AlreadyDecidedError: This person has agreed already.
        """
        if decision.is_plain_yes and self.kind is not ApprovalKind.IN_DOUBT and self.agreed:
            last = self.agreed[-1]
            decision = replace(decision, edited_input=last.edited_input, answer=last.answer)
        digest = self.digest(run_id, decision.edited_input, decision.answer)
        decision = replace(decision, digest=digest)
        if decision.approved and self.needed > 1:
            same = [d for d in self.agreed if d.digest == digest]
            if any(d.reviewer == decision.reviewer for d in same):
                raise AlreadyDecidedError(call_of(self.name), "approved", decision.reviewer)
            self.agreed = [*same, decision]
            if len(self.agreed) < self.needed:
                return
        self.decision = decision

    def wait(self, kind: ApprovalKind, payload: Any = None) -> None:
        """Ask a person."""
        self.status = CallStatus.IN_DOUBT if kind is ApprovalKind.IN_DOUBT else CallStatus.WAITING
        self.kind, self.payload, self.decision, self.approval_id = kind, payload, None, None
        self.agreed = []

    def start(self, token: int) -> None:
        """Note the intent to run it now; a decision that led here is used up by the save of this."""
        self.consuming = self.decision is not None and self.status in {
            CallStatus.WAITING,
            CallStatus.IN_DOUBT,
        }
        self.status, self.started_token, self.attempts = CallStatus.STARTED, token, self.attempts + 1

    def finish(
        self, outcome: Outcome, content: str | list[dict[str, Any]], *, is_error: bool = False
    ) -> None:
        """Give it its one result."""
        self.status, self.outcome, self.content, self.is_error = CallStatus.DONE, outcome, content, is_error

    def result_block(self, toolset: str | None = None) -> dict[str, Any]:
        """The ``tool_result`` block that answers the model; ``toolset`` is that of its ``tool_use``."""
        return result_block(self.call_id, self.content, self.is_error, toolset)

    def decided_result(self) -> dict[str, Any]:
        """What became of a call that a person decided."""
        decision = self.decision
        return {
            "approved": decision.approved if decision else None,
            "reviewer": decision.reviewer if decision else "",
            "reason": decision.reason if decision else "",
            "outcome": str(self.outcome),
            "content": self.content,
            "is_error": self.is_error,
        }

    def to_dict(self) -> dict[str, Any]:
        """As JSON values."""
        data = {key: getattr(self, key) for key in self.__dataclass_fields__ if key not in _PRIVATE}
        data["decision"] = self.decision.to_dict() if self.decision else None
        data["agreed"] = [decision.to_dict() for decision in self.agreed]
        for name in ("expires_at", "escalate_at"):
            data[name] = data[name].isoformat() if data[name] else None
        return {key: str(value) if isinstance(value, StrEnum) else value for key, value in data.items()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """The reverse of ``to_dict``."""
        known = {key: data[key] for key in cls.__dataclass_fields__ if key in data}
        known["status"] = CallStatus(known["status"])
        known["outcome"] = Outcome(known["outcome"]) if known.get("outcome") else None
        known["kind"] = ApprovalKind(known["kind"]) if known.get("kind") else None
        known["decision"] = Decision.from_dict(known["decision"]) if known.get("decision") else None
        known["agreed"] = [Decision.from_dict(each) for each in known.get("agreed", ())]
        for name in ("expires_at", "escalate_at"):
            if known.get(name):
                known[name] = datetime.fromisoformat(known[name])
        return cls(**known)


def result_block(call_id: str, content: Any, is_error: bool, toolset: str | None = None) -> dict[str, Any]:
    """The ``tool_result`` block of a call; ``toolset`` is that of its ``tool_use``."""
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    if toolset is not None:
        block["toolset_name"] = toolset
    if is_error:
        block["is_error"] = True
    return block


def _as_stored(value: Any, path: str) -> Any:
    # Through text and back, so that the digest is that of what will be read.
    text, limit = exactjson.dumps(exactjson.encode(value, path=path)), get_settings().input_limit
    if len(text) > limit:
        raise UnfitDecisionError(
            _(
                "%(path)s has %(length)s characters as JSON; at most %(most)s are accepted. "
                "Nothing was decided."
            )
            % {"path": path, "length": len(text), "most": limit},
            field=path,
        )
    return exactjson.loads(text)


_PRIVATE = frozenset({"approval_id", "consuming", "stored"})


@dataclass(frozen=True, kw_only=True)
class PendingCall:
    """A call that waits for a person."""

    call_id: str
    tool: str
    kind: str
    input: dict[str, Any]
    payload: Any
    expires_at: datetime | None = None
