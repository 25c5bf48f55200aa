"""What an answer shows."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django.urls import reverse
from rest_framework import fields, serializers

from .. import exactjson, redaction, reviewers
from ..agents import Agent
from ..cost import Usage
from ..feed import FeedEvent
from ..models import Approval, Decision, Run, ToolCall
from ..states import ApprovalKind, ApprovalStatus, CallStatus, Channel, Outcome, RunStatus, Verdict
from ..stores.pages import SentMessage
from ..stores.rows import read_final_text
from .fields import TIME, EnumField, TimeField
from .schema import shaped, single

ANYTHING: dict[str, Any] = {}
OBJECT: dict[str, Any] = {"type": "object", "additionalProperties": {}}


@shaped(ANYTHING)
class ExactJSONField(serializers.Field[Any, Any, Any, Any]):
    """A column of exact JSON text, as the value it stands for; null where it is empty.

    Args:
        tool: Path from the row to the name of the tool whose value it is; "" for none.
        call: Path to the key of its call, where reviewers may send the value back edited.
    """

    def __init__(self, *, tool: str = "", call: str = "", **options: Any) -> None:
        self._tool, self._call = tool.split("."), call
        super().__init__(**options)

    def get_attribute(self, instance: Any) -> Any:
        """The column with the row, which says whose it is."""
        return super().get_attribute(instance), instance

    def to_representation(self, value: tuple[str, Any]) -> Any:
        """The value, without what ``ANVIL["REDACT"]`` hides."""
        text, row = value
        if not text:
            return None
        tool = str(fields.get_attribute(row, self._tool)) if self._tool != [""] else ""
        if not self._call:
            return redaction.shown_json(tool, text)
        return redaction.shown_arguments(tool, exactjson.loads(text), getattr(row, self._call))


@shaped(OBJECT)
class JSONObjectField(ExactJSONField):
    """The same for a column that holds an object."""


@shaped({"type": "string"})
class MoneyField(serializers.Field[Any, Any, Any, Any]):
    """US dollars as a decimal string, which no client rounds; null where the price is not known."""

    def to_representation(self, value: Decimal) -> str:
        """Neither with the zeros that the column pads with nor with an exponent."""
        return format(value.normalize(), "f")


class LinkedSerializer(serializers.Serializer[Any]):
    """An answer with links to what can be done next."""

    def link(self, name: str, /, **kwargs: Any) -> str:
        """An absolute URL of this API, wherever and under whichever namespace the host has included it."""
        request = self.context["request"]
        namespace = request.resolver_match.namespace
        url: str = request.build_absolute_uri(reverse(f"{namespace}:{name}", kwargs=kwargs))
        return url


class DecisionSerializer(serializers.Serializer[Decision]):
    """One person's verdict; ``approved`` is whether it says yes to anything."""

    reviewer = serializers.CharField()
    verdict = EnumField(Verdict)
    approved = serializers.BooleanField()
    reason = serializers.CharField()
    edited_input = ExactJSONField(tool="approval.tool")
    answer = ExactJSONField(tool="approval.tool")
    channel = EnumField(Channel)
    created_at = TimeField()


class ApprovalSerializer(LinkedSerializer):
    """A question about a tool call, the decisions taken, and whether the caller may decide it now.

    ``input`` is what the model wrote, ``proposal`` what a reviewer made of it, for the others to agree to.
    ``redacted`` says where in them something is hidden; a mark that is sent back in ``edited_input`` as it
    was shown keeps what it stands for.
    ``digest`` stands for what a yes would be to: send it along with a decision.
    """

    id = serializers.IntegerField()
    run_id = serializers.CharField(source="run.run_id")
    agent = serializers.CharField(source="run.agent")
    call_id = serializers.CharField(source="call.call_id")
    tool = serializers.CharField()
    kind = EnumField(ApprovalKind)
    status = EnumField(ApprovalStatus)
    input = ExactJSONField(source="call.input", tool="tool", call="call_id")
    proposal = ExactJSONField(tool="tool", call="call_id")
    redacted = serializers.SerializerMethodField()
    payload = ExactJSONField(tool="tool")
    digest = serializers.CharField()
    requester = serializers.CharField(source="run.user_name")
    reviewers = serializers.SerializerMethodField()
    needed = serializers.IntegerField()
    agreed = serializers.SerializerMethodField()
    claimed_by = serializers.SerializerMethodField()
    claimed_at = serializers.SerializerMethodField()
    requested_at = TimeField()
    escalates_at = TimeField(source="escalate_at", allow_null=True)
    expires_at = TimeField(allow_null=True)
    decided_at = TimeField(allow_null=True)
    decisions = DecisionSerializer(many=True)
    may_decide = serializers.SerializerMethodField()
    why_not = serializers.SerializerMethodField()
    links = serializers.SerializerMethodField()

    def get_redacted(self, approval: Approval) -> list[str]:
        """Where in the arguments in force something is hidden, as ``cards.0.number``."""
        arguments = exactjson.loads(approval.proposal or approval.call.input)
        return redaction.hidden(approval.tool, arguments)

    def get_reviewers(self, approval: Approval) -> str:
        """Who it is for, in words."""
        return reviewers.reviewers_of(approval)

    def get_agreed(self, approval: Approval) -> int:
        """How many of the people needed have said yes to the arguments in force."""
        return len(reviewers.agreed(approval))

    def get_claimed_by(self, approval: Approval) -> str:
        """Who is reading it; "" for nobody, also when the time of the claim is over."""
        return approval.claimed_name if reviewers.is_claimed(approval) else ""

    def get_claimed_at(self, approval: Approval) -> str | None:
        """Since when."""
        since = approval.claimed_at if reviewers.is_claimed(approval) else None
        return None if since is None else TIME.to_representation(since)

    def get_may_decide(self, approval: Approval) -> bool:
        """Whether the caller may decide it as it stands."""
        return not self.get_why_not(approval)

    def get_why_not(self, approval: Approval) -> str:
        """Why the caller may not decide it: a sentence, or ""."""
        user, groups = self.context["request"].user, self.context["groups"]()
        return reviewers.why_not_now(user, approval, groups=groups)

    def get_links(self, approval: Approval) -> dict[str, str]:
        """Where to read it, the verdicts that fit its kind, and the run."""
        verbs = ["approve", "reject", "claim", "release"]
        if approval.kind != str(ApprovalKind.LIMIT):
            verbs.append("answer")
        if approval.kind == str(ApprovalKind.IN_DOUBT):
            verbs.append("settle")
        links = {verb: self.link(f"approval-{verb}", pk=approval.pk) for verb in verbs}
        return {
            "self": self.link("approval-detail", pk=approval.pk),
            **links,
            "run": self.link("run-detail", run_id=approval.run.run_id),
        }


RUN_LINKS = ("messages", "calls", "checkpoint", "events", "cancel", "pause", "resume", "retry", "fork")


class RunSerializer(LinkedSerializer):
    """A run as it stands in lists."""

    run_id = serializers.CharField()
    agent = serializers.CharField()
    status = EnumField(RunStatus)
    why = serializers.CharField()
    stop_reason = serializers.CharField()
    error_code = serializers.CharField()
    error = serializers.SerializerMethodField()
    iterations = serializers.IntegerField()
    usage = serializers.SerializerMethodField()
    cost_usd = MoneyField(allow_null=True)
    metadata = JSONObjectField()
    started_by = serializers.CharField(source="user_name")
    cancel_requested = serializers.BooleanField()
    pause_requested = serializers.BooleanField()
    requested_by = serializers.CharField()
    next_attempt_at = TimeField(allow_null=True)
    created_at = TimeField()
    started_at = TimeField(allow_null=True)
    updated_at = TimeField(allow_null=True)
    finished_at = TimeField(allow_null=True)
    links = serializers.SerializerMethodField()

    def get_error(self, run: Run) -> str:
        """What went wrong, in a sentence; "" when nothing did."""
        return run.error if run.error_code else ""

    def get_usage(self, run: Run) -> dict[str, int]:
        """Tokens of all billed answers."""
        counts = (run.input_tokens, run.output_tokens, run.cache_read_tokens, run.cache_write_tokens)
        return Usage(*counts).to_dict()

    def get_links(self, run: Run) -> dict[str, str]:
        """Where to read and steer it."""
        own = {"self": self.link("run-detail", run_id=run.run_id)}
        return own | {name: self.link(f"run-{name}", run_id=run.run_id) for name in RUN_LINKS}


class RunDetailSerializer(RunSerializer):
    """A run with what it waits for and what came out of it."""

    final_text = serializers.SerializerMethodField()
    pending_approvals = serializers.SerializerMethodField()

    def get_final_text(self, run: Run) -> str:
        """The text of the last turn of a finished run."""
        return str(redaction.shown("", read_final_text(run)))

    @shaped(ApprovalSerializer(many=True))
    def get_pending_approvals(self, run: Run) -> list[dict[str, Any]]:
        """The calls that wait for a decision; the run's owner sees them here."""
        waiting = run.approvals.pending().select_related("run", "call").prefetch_related("decisions")
        return list(ApprovalSerializer(waiting.order_by("id"), many=True, context=self.context).data)


class LimitsSerializer(serializers.Serializer[Any]):
    """What one run may use over its whole life; null means no limit."""

    max_iterations = serializers.IntegerField()
    max_cost_usd = MoneyField(allow_null=True)
    max_tokens_total = serializers.IntegerField(allow_null=True)
    max_seconds = serializers.FloatField(allow_null=True)
    max_pauses = serializers.IntegerField()
    on_limit = serializers.CharField()


class AgentSerializer(LinkedSerializer):
    """An agent that the caller may start."""

    name = serializers.CharField()
    description = serializers.CharField()
    model = serializers.CharField()
    limits = LimitsSerializer()
    links = serializers.SerializerMethodField()

    def get_links(self, agent: Agent) -> dict[str, str]:
        """Where to read about it, and where its runs are started and listed."""
        return {"self": self.link("agent-detail", name=agent.name), "runs": self.link("run-list")}


@single
class AgentListSerializer(serializers.Serializer[Any]):
    """All agents that the caller may start, by name; there are never many."""

    results = AgentSerializer(many=True)


class MessageSerializer(serializers.Serializer[SentMessage]):
    """A message as it is sent to the model, with what is known about an answer.

    ``composed`` says that it is made of the results of tool calls.
    """

    seq = serializers.IntegerField()
    role = serializers.CharField()
    content = serializers.SerializerMethodField()
    composed = serializers.BooleanField()
    stop_reason = serializers.CharField()
    model = serializers.CharField()
    usage = serializers.SerializerMethodField()
    cost_usd = MoneyField(allow_null=True)
    created_at = TimeField(allow_null=True)

    @shaped(ANYTHING)
    def get_content(self, message: SentMessage) -> Any:
        """A text, or content blocks in the form of the Messages API."""
        return redaction.shown_content(message.content, message.tools)

    def get_usage(self, message: SentMessage) -> dict[str, Any] | None:
        """What the API counted for this answer."""
        return message.usage


class MessagePageSerializer(serializers.Serializer[Any]):
    """A stretch of the history, oldest first, and where it goes on."""

    next = serializers.CharField(allow_null=True)
    results = MessageSerializer(many=True)


class CallSerializer(serializers.Serializer[ToolCall]):
    """A tool call and what became of it; ``outcome`` and ``result`` are null until it has one."""

    call_id = serializers.CharField()
    tool = serializers.CharField(source="name")
    seq = serializers.IntegerField()
    status = EnumField(CallStatus)
    outcome = EnumField(Outcome, allow_null=True)
    effect = serializers.CharField()
    attempts = serializers.IntegerField()
    input = ExactJSONField(tool="name")
    result = ExactJSONField(tool="name")
    is_error = serializers.BooleanField()
    approvals = serializers.SerializerMethodField()
    created_at = TimeField()
    started_at = TimeField(allow_null=True)
    finished_at = TimeField(allow_null=True)

    def get_approvals(self, call: ToolCall) -> list[int]:
        """The ids of the questions asked about it."""
        return [approval.pk for approval in call.approvals.all()]


class EventSerializer(serializers.Serializer[FeedEvent]):
    """One thing that happened.

    ``id`` is the cursor behind it; what ``data`` holds depends on ``type``.
    """

    id = serializers.CharField(source="cursor")
    type = serializers.CharField()
    at = TimeField(allow_null=True)
    data = serializers.SerializerMethodField()  # type: ignore[assignment]

    @shaped(OBJECT)
    def get_data(self, event: FeedEvent) -> dict[str, Any]:
        """The particulars."""
        return redaction.shown_event(event.data)


class EventPageSerializer(serializers.Serializer[Any]):
    """Events, the cursor for the next request, and where the run stands now.

    ``more``: there are further events already. ``ended``: this is all, unless somebody has the run go on.
    """

    events = EventSerializer(many=True)
    next = serializers.CharField()
    more = serializers.BooleanField()
    ended = serializers.BooleanField()
    status = EnumField(RunStatus)
    why = serializers.CharField()


class CheckpointSerializer(serializers.Serializer[Any]):
    """The whole state of a run, as ``AgentCheckpoint.from_dict`` takes it; further members are its own."""

    version = serializers.IntegerField()
    run_id = serializers.CharField()
    agent = serializers.CharField()
    status = EnumField(RunStatus)
    messages = serializers.ListField(child=serializers.DictField())
    iterations = serializers.IntegerField()
    total_usage = serializers.DictField()
    total_cost_usd = serializers.CharField(allow_null=True)
    approvals = serializers.DictField()
    pending = serializers.ListField(child=serializers.DictField())
    final_text = serializers.CharField()
    updated_at = serializers.CharField(allow_null=True)
