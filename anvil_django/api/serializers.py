"""What a request may hold and what an answer shows. Whether a request makes sense is decided by the core."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC
from decimal import Decimal
from typing import Any

from django.urls import reverse
from rest_framework import ISO_8601, serializers
from rest_framework.exceptions import ValidationError

from .. import exactjson, reviewers
from ..cost import Usage
from ..models import Approval, Decision, Run
from ..states import ApprovalKind, Verdict
from ..stores.rows import read_final_text

# Requests.


class StrictSerializer(serializers.Serializer[Any]):
    """Refuses fields it does not know: what has no effect must not look accepted."""

    def to_internal_value(self, data: Any) -> Any:
        """The checked values.

        Raises:
            ValidationError: A field is unknown or has a value of the wrong type.
        """
        if isinstance(data, Mapping):
            unknown = [str(name) for name in data if name not in self.fields]
            if unknown:
                raise ValidationError(
                    {name: ["This field is not known here."] for name in unknown}, code="unknown_field"
                )
        return super().to_internal_value(data)


class InputField(serializers.Field[Any, Any, Any, Any]):
    """The input of a run: a text, content blocks of one user message, or messages."""

    default_error_messages = {
        "not_an_input": "Give a text, a list of content blocks, or a list of messages with role and content.",
    }

    def to_internal_value(self, data: Any) -> Any:
        """A text or a list of messages, as ``start_run`` takes it."""
        if isinstance(data, str):
            return data
        if not isinstance(data, list):
            self.fail("not_an_input")
        if data and all(isinstance(item, dict) and "type" in item and "role" not in item for item in data):
            return [{"role": "user", "content": data}]
        return data

    def to_representation(self, value: Any) -> Any:
        """The input as it is."""
        return value


class StorableJSONField(serializers.JSONField):
    """Any JSON value that can be stored and sent as it came.

    A person's own words may not be changed without telling them, as what a model wrote is mended.
    """

    default_error_messages = {
        "not_storable": "Holds text that is not valid Unicode, a number too long, or nesting too deep.",
        "not_an_object": "Give an object.",
    }

    def to_internal_value(self, data: Any) -> Any:
        """The value itself."""
        if exactjson.clean(data) is not data:
            self.fail("not_storable")
        return data


class StorableObjectField(StorableJSONField):
    """The same for an object."""

    def to_internal_value(self, data: Any) -> Any:
        """The object itself."""
        if not isinstance(data, dict):
            self.fail("not_an_object")
        return super().to_internal_value(data)


class StartRequest(StrictSerializer):
    """The body of ``POST /runs/``."""

    agent = serializers.CharField()
    input = InputField()
    metadata = serializers.DictField(required=False, allow_null=True)
    run_id = serializers.CharField(required=False, allow_null=True, trim_whitespace=False)


class EmptyRequest(StrictSerializer):
    """A body without fields."""


class ApproveRequest(StrictSerializer):
    """The body of an approval. Who approves is the authenticated user and nobody a body could name."""

    reason = serializers.CharField(required=False, default="", allow_blank=True)
    edited_input = StorableObjectField(required=False)
    answer = StorableJSONField(required=False)


class RejectRequest(StrictSerializer):
    """The body of a rejection."""

    reason = serializers.CharField()


class AnswerRequest(StrictSerializer):
    """The body of an answer in the tool's place."""

    answer = StorableJSONField()
    reason = serializers.CharField(required=False, default="", allow_blank=True)


class SettleRequest(StrictSerializer):
    """The body that settles a call in doubt; a result goes with ``happened``, a reason with ``unknown``."""

    verdict = serializers.ChoiceField(
        choices=[str(v) for v in (Verdict.HAPPENED, Verdict.NOT_HAPPENED, Verdict.UNKNOWN)]
    )
    result = StorableJSONField(required=False)
    reason = serializers.CharField(required=False, default="", allow_blank=True)


# Answers.


class TimeField(serializers.DateTimeField):
    """ISO 8601 in UTC, whatever format and zone the host's own API has."""

    def __init__(self, **options: Any) -> None:
        super().__init__(format=ISO_8601, default_timezone=UTC, **options)


TIME = TimeField()


class ExactJSONField(serializers.Field[Any, Any, Any, Any]):
    """A column of exact JSON text, as the value it stands for; null where it is empty."""

    def to_representation(self, value: str) -> Any:
        """The value."""
        return exactjson.loads(value) if value else None


class LinkedSerializer(serializers.Serializer[Any]):
    """An answer with links to what can be done next."""

    def link(self, name: str, **kwargs: Any) -> str:
        """An absolute URL of this API, wherever and under whichever namespace the host has included it."""
        request = self.context["request"]
        namespace = request.resolver_match.namespace
        url: str = request.build_absolute_uri(reverse(f"{namespace}:{name}", kwargs=kwargs))
        return url


class DecisionSerializer(serializers.Serializer[Decision]):
    """One person's verdict; ``approved`` is whether it says yes to anything."""

    reviewer = serializers.CharField()
    verdict = serializers.CharField()
    approved = serializers.BooleanField()
    reason = serializers.CharField()
    edited_input = ExactJSONField()
    answer = ExactJSONField()
    channel = serializers.CharField()
    created_at = TimeField()


class ApprovalSerializer(LinkedSerializer):
    """A question about a tool call, the decisions taken, and whether the caller may decide it now.

    ``input`` is what the model wrote, ``proposal`` what a reviewer made of it, for the others to agree to.
    """

    id = serializers.IntegerField()
    run_id = serializers.CharField(source="run.run_id")
    agent = serializers.CharField(source="run.agent")
    call_id = serializers.CharField(source="call.call_id")
    tool = serializers.CharField()
    kind = serializers.CharField()
    status = serializers.CharField()
    input = ExactJSONField(source="call.input")
    proposal = ExactJSONField()
    payload = ExactJSONField()
    requester = serializers.CharField(source="run.user_name")
    reviewers = serializers.SerializerMethodField()
    needed = serializers.IntegerField()
    agreed = serializers.SerializerMethodField()
    claimed_by = serializers.SerializerMethodField()
    claimed_at = serializers.SerializerMethodField()
    requested_at = TimeField()
    escalates_at = TimeField(source="escalate_at")
    expires_at = TimeField()
    decided_at = TimeField()
    decisions = DecisionSerializer(many=True)
    may_decide = serializers.SerializerMethodField()
    why_not = serializers.SerializerMethodField()
    links = serializers.SerializerMethodField()

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


class RunSerializer(LinkedSerializer):
    """A run as it stands in lists."""

    run_id = serializers.CharField()
    agent = serializers.CharField()
    status = serializers.CharField()
    why = serializers.CharField()
    stop_reason = serializers.CharField()
    error_code = serializers.CharField()
    error = serializers.SerializerMethodField()
    iterations = serializers.IntegerField()
    usage = serializers.SerializerMethodField()
    cost_usd = serializers.SerializerMethodField()
    metadata = ExactJSONField()
    started_by = serializers.CharField(source="user_name")
    cancel_requested = serializers.BooleanField()
    pause_requested = serializers.BooleanField()
    requested_by = serializers.CharField()
    next_attempt_at = TimeField()
    created_at = TimeField()
    started_at = TimeField()
    updated_at = TimeField()
    finished_at = TimeField()
    links = serializers.SerializerMethodField()

    def get_error(self, run: Run) -> str:
        """What went wrong, in a sentence; "" when nothing did."""
        return run.error if run.error_code else ""

    def get_usage(self, run: Run) -> dict[str, int]:
        """Tokens of all billed answers."""
        counts = (run.input_tokens, run.output_tokens, run.cache_read_tokens, run.cache_write_tokens)
        return Usage(*counts).to_dict()

    def get_cost_usd(self, run: Run) -> str | None:
        """The money as a decimal string, which no client rounds; null where the price is not known."""
        return None if run.cost_usd is None else _plain(run.cost_usd)

    def get_links(self, run: Run) -> dict[str, str]:
        """Where to read and steer it."""
        names = {"self": "detail", "cancel": "cancel", "pause": "pause", "resume": "resume"}
        return {key: self.link(f"run-{name}", run_id=run.run_id) for key, name in names.items()}


class RunDetailSerializer(RunSerializer):
    """A run with what it waits for and what came out of it."""

    final_text = serializers.SerializerMethodField()
    pending_approvals = serializers.SerializerMethodField()

    def get_final_text(self, run: Run) -> str:
        """The text of the last turn of a finished run."""
        return read_final_text(run)

    def get_pending_approvals(self, run: Run) -> list[dict[str, Any]]:
        """The calls that wait for a decision; the run's owner sees them here."""
        waiting = run.approvals.pending().select_related("run", "call").prefetch_related("decisions")
        return list(ApprovalSerializer(waiting.order_by("id"), many=True, context=self.context).data)


def _plain(amount: Decimal) -> str:
    # Neither the zeros that the column pads with nor an exponent: the same text from every database.
    return format(amount.normalize(), "f")
