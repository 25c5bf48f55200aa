"""A stretch of time in whole hours or days of a time zone, as figures are added up by.

Where an hour or a day begins is computed here and not by the database: MariaDB may know no time zones, and
a day of a time zone may have 23 hours.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from enum import StrEnum
from typing import Any

from django.db.models import Case, IntegerField, Value, When


class Unit(StrEnum):
    """What a period is divided into."""

    HOUR = "hour"
    DAY = "day"


MOST_DAYS = 366
"""Days that a period may have."""
DAYS_BY_THE_HOUR = 2
"""Days up to which a period is divided into hours."""


@dataclass(frozen=True)
class Period:
    """From the beginning of the first of its hours or days until the end of the last one."""

    unit: Unit
    begins: tuple[datetime, ...]
    """When each hour or day begins, in the time zone; at least one."""
    end: datetime
    """The first moment that does not belong to it."""

    @property
    def begin(self) -> datetime:
        """Its first moment."""
        return self.begins[0]

    def place(self, moment: datetime) -> int | None:
        """The number of the hour or day in which the moment lies, from 0; None: outside."""
        if not self.begin <= moment < self.end:
            return None
        return bisect_right(self.begins, moment) - 1

    def place_of(self, column: str) -> Any:
        """The same as an expression of a column, of a few comparisons for each row of the period."""
        return _halved(column, self.begins, 0)


def last_hours(count: int, now: datetime, zone: tzinfo) -> Period:
    """The hour that goes on, and those before it.

    Args:
        count: How many hours it is in all.
        now: What time it is.
        zone: Whose hours; there are zones in which they begin in the middle of others'.
    """
    hour = now.astimezone(zone).replace(minute=0, second=0, microsecond=0).astimezone(UTC)
    begins = (hour - timedelta(hours=back) for back in reversed(range(count)))
    return Period(Unit.HOUR, tuple(at.astimezone(zone) for at in begins), hour + timedelta(hours=1))


def last_days(count: int, now: datetime, zone: tzinfo) -> Period:
    """Today, and the days before it.

    Args:
        count: How many days it is in all.
        now: What time it is.
        zone: Whose days.
    """
    today = now.astimezone(zone).date()
    return between(today - timedelta(days=count - 1), today, zone, by_the_hour=False)


def between(first: date, last: date, zone: tzinfo, *, by_the_hour: bool | None = None) -> Period:
    """All of these days.

    Args:
        first, last: The days; both belong to it.
        zone: Whose days.
        by_the_hour: Whether it is divided into hours; None: if it is short.

    Raises:
        ValueError: It would end before it begins, or have more than ``MOST_DAYS`` days.
    """
    days = (last - first).days + 1
    if not 1 <= days <= MOST_DAYS:
        raise ValueError(f"A period has from 1 to {MOST_DAYS} days, not {days}.")
    end = _midnight(last + timedelta(days=1), zone)
    if by_the_hour or (by_the_hour is None and days <= DAYS_BY_THE_HOUR):
        return Period(Unit.HOUR, tuple(_hours(_midnight(first, zone), end, zone)), end)
    return Period(
        Unit.DAY, tuple(_midnight(first + timedelta(days=number), zone) for number in range(days)), end
    )


def _midnight(day: date, zone: tzinfo) -> datetime:
    return datetime.combine(day, time(), zone)


def _hours(begin: datetime, end: datetime, zone: tzinfo) -> Iterator[datetime]:
    # By the hours that pass: where a clock is put back, one of its hours comes twice.
    at = begin.astimezone(UTC)
    while at < end:
        yield at.astimezone(zone)
        at += timedelta(hours=1)


def _halved(column: str, begins: Sequence[datetime], first: int) -> Any:
    if len(begins) == 1:
        return Value(first, output_field=IntegerField())
    middle = len(begins) // 2
    return Case(
        When(**{f"{column}__lt": begins[middle]}, then=_halved(column, begins[:middle], first)),
        default=_halved(column, begins[middle:], first + middle),
        output_field=IntegerField(),
    )
