"""What a request may hold. Whether it makes sense is decided by the core."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from rest_framework import serializers
from rest_framework.exceptions import ValidationError

from .. import exactjson
from ..states import Verdict
from .fields import EnumField
from .schema import shaped


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


BLOCKS: dict[str, Any] = {"type": "array", "items": {"type": "object", "additionalProperties": {}}}
ANYTHING: dict[str, Any] = {}
OBJECT: dict[str, Any] = {"type": "object", "additionalProperties": {}}


@shaped({"oneOf": [{"type": "string"}, BLOCKS]})
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


@shaped({"oneOf": [{"type": "string"}, BLOCKS]})
class ContentField(InputField):
    """The content of one user message: a text, or content blocks."""

    default_error_messages = {"not_an_input": "Give a text or a list of content blocks."}

    def to_internal_value(self, data: Any) -> Any:
        """A text or content blocks."""
        if not isinstance(data, (str, list)):
            self.fail("not_an_input")
        return data


@shaped(ANYTHING)
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


@shaped(OBJECT)
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


class SayRequest(StrictSerializer):
    """The body of a further message."""

    content = ContentField()


class ForkRequest(StrictSerializer):
    """The body of a fork: after which iteration, and a message to go on with."""

    iteration = serializers.IntegerField(required=False, allow_null=True, min_value=0, max_value=2**31 - 1)
    message = ContentField(required=False, allow_null=True)
    metadata = serializers.DictField(required=False, allow_null=True)
    run_id = serializers.CharField(required=False, allow_null=True, trim_whitespace=False)


class EmptyRequest(StrictSerializer):
    """A body without fields."""


class YesRequest(StrictSerializer):
    """What every yes may say: the digest of the case as it was read, so that nothing newer is agreed to."""

    digest = serializers.CharField(required=False, allow_null=True)


class ApproveRequest(YesRequest):
    """The body of an approval. Who approves is the authenticated user and nobody a body could name."""

    reason = serializers.CharField(required=False, default="", allow_blank=True)
    edited_input = StorableObjectField(required=False)
    answer = StorableJSONField(required=False)


class RejectRequest(StrictSerializer):
    """The body of a rejection."""

    reason = serializers.CharField()


class AnswerRequest(YesRequest):
    """The body of an answer in the tool's place."""

    answer = StorableJSONField()
    reason = serializers.CharField(required=False, default="", allow_blank=True)


class Settlement(StrEnum):
    """What a person can say about a call in doubt."""

    HAPPENED = Verdict.HAPPENED
    NOT_HAPPENED = Verdict.NOT_HAPPENED
    UNKNOWN = Verdict.UNKNOWN


class SettleRequest(YesRequest):
    """The body that settles a call in doubt; a result goes with ``happened``, a reason with ``unknown``."""

    verdict = EnumField(Settlement)
    result = StorableJSONField(required=False)
    reason = serializers.CharField(required=False, default="", allow_blank=True)
