"""Rows of long tables, narrowed down so that a page of them is read in the order of an index."""

from __future__ import annotations

from typing import Any, Self, TypeVar

from django.db import models
from django.db.models import Value
from django.db.models.functions import Coalesce

Row = TypeVar("Row", bound=models.Model)

BY_ID = ("id", "-id", "pk", "-pk")


class ListQuerySet(models.QuerySet[Row]):
    """Rows of a table in which each column that is filtered by has an index that ends with the id.

    A database asked for ``agent = x ORDER BY id`` expects rows of x all over the table and may read through
    the ids, and so through everything else, to a retired agent's rows at the other end. PostgreSQL cannot be
    told not to: the column is constant, so the ids alone are the order. Hence a range of one value and an
    order by column and id, which only the index of that column has.
    """

    _leads: str | None = None
    _few = False

    def having(self, column: str, value: Any, *, few: bool = False) -> Self:
        """The rows of one value. The first column that is asked for leads the order; its index is read.

        Args:
            column: One that has an index ending with the id.
            value: What it holds.
            few: There are only ever few of them, so that no other index is worth reading.
        """
        if self._leads in (None, column):
            found = self.filter(**{f"{column}__gte": value, f"{column}__lte": value})
            found._leads, found._few = column, self._few or few
            return found
        if self._few:
            # An expression, for which there is no index.
            return self.alias(**{f"plain_{column}": Coalesce(column, Value(""))}).filter(
                **{f"plain_{column}": value}
            )
        return self.filter(**{column: value})

    def order_by(self, *field_names: Any) -> Self:
        """As asked for, within the value that leads; by time the index of the time may be the better one."""
        first = field_names[0] if field_names else None
        if self._leads is not None and (first in BY_ID or (first is not None and self._few)):
            backwards = isinstance(first, str) and first.startswith("-")
            field_names = (f"-{self._leads}" if backwards else self._leads, *field_names)
        return super().order_by(*field_names)

    def _clone(self) -> Self:
        clone: Self = super()._clone()  # type: ignore[misc]
        clone._leads, clone._few = self._leads, self._few
        return clone
