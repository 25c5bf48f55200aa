"""Kinds of fields that bodies and answers are made of."""

from __future__ import annotations

from datetime import UTC
from enum import StrEnum
from typing import Any

from rest_framework import ISO_8601, serializers


class TimeField(serializers.DateTimeField):
    """ISO 8601 in UTC, whatever format and zone the host's own API has."""

    def __init__(self, **options: Any) -> None:
        super().__init__(format=ISO_8601, default_timezone=UTC, **options)


TIME = TimeField()


class EnumField(serializers.ChoiceField):
    """A value of one of our enums; an empty column is null."""

    def __init__(self, enum: type[StrEnum], **options: Any) -> None:
        self.enum = enum
        super().__init__(choices=[str(value) for value in enum], **options)

    def to_representation(self, value: Any) -> Any:
        """The value."""
        return str(value) or None
