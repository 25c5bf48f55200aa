"""Tables of figures: as a page shows them, and as CSV for a spreadsheet that must not run what is in them."""

from __future__ import annotations

import csv
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from html import unescape
from typing import Any

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, StreamingHttpResponse
from django.utils.formats import date_format, number_format
from django.utils.html import escape, strip_tags
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from .rendering import dollars, duration, visible

NAME_LIMIT = 100
NOTHING = "–"

# Where a spreadsheet begins to read a cell: its own separator may be another one than that of the file.
_FORMULA = re.compile(r"(^|[,;|\t\r\n])(\s*)([=+\-@＝＋－＠])")
_GUARD = "'"


class Kind(StrEnum):
    """What a column holds."""

    NAME = "name"
    """Whatever a model or a caller wrote."""
    WORD = "word"
    """A word of ours, translated."""
    COUNT = "count"
    MONEY = "money"
    """Dollars."""
    SHARE = "share"
    """From 0 to 1."""
    SECONDS = "seconds"
    DAY = "day"
    HOUR = "hour"

    @property
    def is_number(self) -> bool:
        """Whether its values stand under each other by their digits."""
        return self in (Kind.COUNT, Kind.MONEY, Kind.SHARE, Kind.SECONDS)


@dataclass(frozen=True)
class Column:
    """A column and its heading."""

    label: Any
    kind: Kind = Kind.COUNT

    @property
    def heading(self) -> SafeString:
        """For the page; some are names."""
        return visible(str(self.label), NAME_LIMIT)


@dataclass(frozen=True)
class Table:
    """Figures under headings; the first column says what a row is about."""

    slug: str
    caption: Any
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]] = field(default_factory=list)

    @property
    def lines(self) -> list[list[tuple[Column, SafeString]]]:
        """The cells for the page, each with its column."""
        return [
            [(column, shown(column.kind, value)) for column, value in zip(self.columns, row, strict=True)]
            for row in self.rows
        ]


def shown(kind: Kind, value: Any) -> SafeString:
    """A value for the page, in the words and digits of its reader."""
    if value is None:
        return escape(NOTHING)
    if kind is Kind.NAME:
        return visible(value, NAME_LIMIT)
    return escape(_said(kind, value))


def _said(kind: Kind, value: Any) -> str:
    match kind:
        case Kind.COUNT:
            return str(number_format(value, force_grouping=True))
        case Kind.MONEY:
            return money(value)
        case Kind.SHARE:
            return share(value)
        case Kind.SECONDS:
            return duration(timedelta(seconds=value))
        case Kind.DAY:
            return str(date_format(value, "DATE_FORMAT"))
        case Kind.HOUR:
            return str(date_format(value, "SHORT_DATETIME_FORMAT"))
    return str(value)


def money(cost: Decimal) -> str:
    """Dollars and cents; of less than a dollar more of it."""
    return dollars(cost, 2 if cost >= 1 or not cost else 4)


def share(value: float) -> str:
    """A share of all in percent; what is not all does not read as all."""
    percent = min(value * 100, 99.9) if value < 1 else 100
    return _("%(percent)s %%") % {"percent": number_format(percent, decimal_pos=1 if percent % 1 else 0)}


def text(name: str) -> str:
    """A name as ``visible`` shows it, where no markup can be: on a canvas."""
    return unescape(strip_tags(visible(name, NAME_LIMIT)))


# CSV.


def download(request: HttpRequest, table: Table, name: str) -> StreamingHttpResponse:
    """The table as a file.

    Args:
        name: Of the file, without its ending.
    """
    writer = csv.writer(_Echo(), quoting=csv.QUOTE_NONNUMERIC)
    lines = (writer.writerow(line) for line in _plain(table))
    # A synchronous iterator would be read to its end by ASGI, with a warning.
    chunks = _asynchronous(lines) if isinstance(request, ASGIRequest) else lines
    response = StreamingHttpResponse(chunks, content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}.csv"'
    response["Cache-Control"] = "private, no-store"
    response["X-Content-Type-Options"] = "nosniff"
    return response


class _Echo:
    def write(self, line: str) -> str:
        return line


async def _asynchronous(lines: Iterator[str]) -> AsyncIterator[str]:
    for line in lines:
        yield line


def _plain(table: Table) -> Iterator[list[Any]]:
    yield [harmless(_heading(column)) for column in table.columns]
    for row in table.rows:
        yield [_raw(column.kind, value) for column, value in zip(table.columns, row, strict=True)]


def _heading(column: Column) -> str:
    match column.kind:
        case Kind.MONEY:
            return _("%(heading)s (USD)") % {"heading": column.label}
        case Kind.SECONDS:
            return _("%(heading)s (seconds)") % {"heading": column.label}
        case Kind.SHARE:
            return _("%(heading)s (0 to 1)") % {"heading": column.label}
    return str(column.label)


def _raw(kind: Kind, value: Any) -> Any:
    """A value as machines read it; numbers stay numbers."""
    if value is None:
        return ""
    match kind:
        case Kind.NAME | Kind.WORD:
            return harmless(str(value))
        case Kind.DAY:
            return value.date().isoformat() if isinstance(value, datetime) else date.isoformat(value)
        case Kind.HOUR:
            return value.isoformat()
        case Kind.SECONDS:
            return round(value, 3)
        case Kind.SHARE:
            return round(value, 4)
    return value


def harmless(cell: str) -> str:
    """The text with a quote before whatever a spreadsheet would take for a formula, and without controls."""
    guarded = _FORMULA.sub(rf"\1\2{_GUARD}\3", cell)
    return "".join(each if each.isprintable() else " " for each in guarded)
