"""What both pages of history share: nothing is edited, and things happen only through actions."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.admin import helpers
from django.contrib.admin.utils import flatten_fieldsets
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from .. import exactjson
from .paging import OnlySortableMixin, ShortPaginator

if TYPE_CHECKING:
    Base = admin.ModelAdmin[Any]
else:
    # Hosts with an admin theme of their own put its ModelAdmin under these mixins.
    Base = object

MOST_SELECTED = 200
"""How many rows one action takes, so that a page can be read and a request ends."""
MOST_REASONS = 10
"""How many skipped rows are named one by one."""


class Outcomes:
    """What an action did, row by row, told to the person afterwards.

    Args:
        sentences: An ``ngettext_lazy`` by ``count`` for each outcome there can be.
    """

    def __init__(self, **sentences: Any) -> None:
        self._sentences = sentences
        self._done: Counter[str] = Counter()
        self._skipped: list[Any] = []

    def done(self, outcome: str) -> None:
        """Count one row."""
        self._done[outcome] += 1

    def skip(self, what: Any, why: Any) -> None:
        """Note a row that was left as it is."""
        self._skipped.append(format_html("{}: {}", what, why))

    def tell(self, request: HttpRequest) -> None:
        """Show all of it."""
        for outcome, count in self._done.items():
            messages.success(request, self._sentences[outcome] % {"count": count})
        if not self._skipped:
            return
        count = len(self._skipped)
        skipped = ngettext(
            "%(count)d was skipped and left as it is.", "%(count)d were skipped and left as they are.", count
        )
        messages.warning(request, skipped % {"count": count})
        for line in self._skipped[:MOST_REASONS]:
            messages.warning(request, line)
        if count > MOST_REASONS:
            messages.warning(request, _("The reasons of the others are not shown here; open them to see."))


class ReadOnlyMixin(Base):
    """No add, no change, no delete; every field is read-only."""

    empty_value_display = "–"
    list_per_page = 50
    # Nothing on a list may read the whole table.
    paginator = ShortPaginator
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    change_list_template = "admin/anvil_django/change_list.html"

    class Media:
        css = {"all": ("anvil_django/admin.css",)}

    def has_add_permission(self, request: HttpRequest, *args: Any) -> bool:
        """Rows come from runs."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Rows change through actions."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """History stays."""
        return False

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> Any:
        """The list of the host's admin, sorted by nothing but its sortable columns."""
        base = super().get_changelist(request, **kwargs)
        return type(base.__name__, (OnlySortableMixin, base), {})

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> HttpResponse:
        """With a query that every database takes: PostgreSQL refuses even to look for NUL."""
        query = request.GET.copy()
        for name, values in request.GET.lists():
            query.setlist(name, [exactjson.clean_text(value) for value in values])
        request.GET = query  # type: ignore[assignment]
        response: HttpResponse = super().changelist_view(request, extra_context)
        return response

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """All fields shown."""
        return flatten_fieldsets(self.get_fieldsets(request, obj))

    def or_empty(self, value: Any) -> Any:
        """The value of a field on the page of one row, or the sign for nothing."""
        return value or self.get_empty_value_display()

    # For actions.

    def demand(self, allowed: bool) -> None:
        """Refuse whoever may not do this, however the request was made.

        Raises:
            PermissionDenied: Not allowed.
        """
        if not allowed:
            raise PermissionDenied

    def is_confirmed(self, request: HttpRequest) -> bool:
        """Whether the request comes from the page that ``ask`` showed."""
        return request.method == "POST" and "confirmed" in request.POST

    def selected(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[Any]:
        """The rows an action is about; none, with a message, if they are too many."""
        if self.is_confirmed(request) or request.POST.get("select_across", "0") == "0":
            # What the page showed, even if it has left the filters of the list meanwhile.
            pks = request.POST.getlist(helpers.ACTION_CHECKBOX_NAME)
            queryset = self.get_queryset(request).filter(pk__in=[pk for pk in pks if pk.isdecimal()])
        rows = list(queryset.defer(None)[: MOST_SELECTED + 1])
        if len(rows) > MOST_SELECTED:
            messages.error(request, _("Select at most %(most)d at once.") % {"most": MOST_SELECTED})
            return []
        return rows

    def ask(self, request: HttpRequest, template: str, **context: Any) -> TemplateResponse:
        """Show the page between an action and its effect."""
        target = self._list_url()
        if request.path == target:
            target = request.get_full_path()
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "media": self.media,
            "action_checkbox_name": helpers.ACTION_CHECKBOX_NAME,
            "target": target,
            "list_url": target,
            **context,
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, template, context)

    def _list_url(self) -> str:
        name = f"admin:{self.opts.app_label}_{self.opts.model_name}_changelist"
        return reverse(name, current_app=self.admin_site.name)
