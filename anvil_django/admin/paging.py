"""Pages of a list in the admin that cost the same however long the list is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from django.contrib.admin.views.main import ChangeList
from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.utils.functional import cached_property

if TYPE_CHECKING:
    Base = ChangeList
else:
    # Hosts with an admin theme of their own may have a list of their own too.
    Base = object

MOST_COUNTED = 2_000
"""How many rows of a list are counted and paged through; the filters lead to the others."""


class ShortPaginator(Paginator):  # type: ignore[type-arg]
    """Counts no further than ``MOST_COUNTED``."""

    @cached_property
    def _found(self) -> int:
        # In the order of the page, which an index has: in any order it may read the whole table to find them.
        return cast("QuerySet[Any]", self.object_list)[: MOST_COUNTED + 1].count()

    @cached_property
    def count(self) -> int:
        """The number of rows, at most ``MOST_COUNTED``."""
        return min(self._found, MOST_COUNTED)

    @property
    def is_cut(self) -> bool:
        """Whether there are more rows than that."""
        return self._found > MOST_COUNTED


class OnlySortableMixin(Base):
    """A list that sorts by its sortable columns alone, also where an old link asks for another one."""

    def get_ordering_field(self, field_name: Any) -> Any:
        """What a column is sorted by; None for one that it cannot be sorted by."""
        return super().get_ordering_field(field_name) if field_name in (self.sortable_by or ()) else None
