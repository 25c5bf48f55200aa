"""Medians and ratios of the lines that were measured."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

Row = Mapping[str, Any]
USUAL = {"shape": "read", "size": 1024}


def select(rows: Iterable[Row], **labels: Any) -> list[Row]:
    """The rows with these labels; of the usual shape and size unless others are named."""
    wanted = {**USUAL, **labels}
    return [row for row in rows if all(row.get(key) == value for key, value in wanted.items())]


def value(rows: Iterable[Row], key: str, **labels: Any) -> float | None:
    """The median of a figure over the rounds; None if it was not measured."""
    found = [row[key] for row in select(rows, **labels) if row.get(key) is not None]
    return median(found) if found else None


def ratio(rows: Iterable[Row], key: str, contestant: str, limit: str, **labels: Any) -> float | None:
    """The median over the rounds of a figure divided by another contestant's in the same round."""
    rows = list(rows)
    base = {row["round"]: row[key] for row in select(rows, contestant=limit, **labels) if row.get(key)}
    mine = select(rows, contestant=contestant, **labels)
    found = [row[key] / base[row["round"]] for row in mine if key in row and row["round"] in base]
    return median(found) if found else None


def labels(rows: Iterable[Row], key: str, **others: Any) -> list[Any]:
    """The different values of a label, in the order in which they were measured."""
    return list(dict.fromkeys(row[key] for row in rows if all(row.get(k) == v for k, v in others.items())))


def number(found: float | None, unit: str = "") -> str:
    """A figure to three digits; a dash when there is none."""
    if found is None:
        return "–"
    digits = 0 if abs(found) >= 100 else 1 if abs(found) >= 10 else 2
    text = f"{found:.{digits}f}"
    return f"{text} {unit}".rstrip()
