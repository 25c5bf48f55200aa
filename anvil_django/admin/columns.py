"""What a list row and a page say about a case, field by field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.template.defaultfilters import timesince_filter
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timesince import timeuntil
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from .. import reviewers
from ..clock import get_clock
from ..models import Approval
from ..states import ApprovalKind, ApprovalStatus
from . import cases
from .rendering import block, visible

if TYPE_CHECKING:
    from .readonly import ReadOnlyMixin as Base
else:
    Base = object


SHORT_KINDS = {
    str(ApprovalKind.TOOL): pgettext_lazy("case", "permission"),
    str(ApprovalKind.IN_DOUBT): _("in doubt"),
    str(ApprovalKind.LIMIT): _("limit"),
}


class CaseColumnsMixin(Base):
    """Columns of the queue and fields of a case's page; none of them asks the database about its row."""

    @admin.display(description=_("case"), ordering="id")
    def sentence(self, approval: Approval) -> SafeString:
        """What is asked."""
        return cases.sentence(approval)

    @admin.display(description=_("kind"), ordering="kind")
    def short_kind(self, approval: Approval) -> Any:
        """Why a person is asked, in a word."""
        return SHORT_KINDS.get(approval.kind, approval.kind)

    @admin.display(description=_("status"), ordering="status")
    def state(self, approval: Approval) -> Any:
        """Where it stands."""
        if cases.is_late(approval):
            return _("time is over: counts as a no")
        return approval.get_status_display()

    @admin.display(description=_("agent"), ordering="agent")
    def agent(self, approval: Approval) -> SafeString:
        """Whose call it is."""
        return visible(approval.agent)

    @admin.display(description=_("tool"), ordering="tool")
    def tool_name(self, approval: Approval) -> SafeString:
        """What it calls."""
        return visible(approval.tool)

    @admin.display(description=_("requested by"), ordering="run__user_name")
    def requester(self, approval: Approval) -> Any:
        """Who started the run."""
        return self.or_empty(visible(approval.run.user_name))

    @admin.display(description=_("waiting for"), ordering="requested_at")
    def age(self, approval: Approval) -> str:
        """How long it has waited, or waited until it was decided."""
        return timesince_filter(approval.requested_at, approval.decided_at)

    @admin.display(description=_("expires"), ordering="expires_at")
    def expiry(self, approval: Approval) -> Any:
        """Until when it can be decided."""
        if cases.is_late(approval):
            return format_html('<strong class="anvil-late">{}</strong>', _("time is over: counts as a no"))
        if approval.status != str(ApprovalStatus.PENDING) or approval.expires_at is None:
            return None
        return _("in %(time)s") % {"time": timeuntil(approval.expires_at, get_clock().now(), depth=1)}

    @admin.display(description=_("agreed"), ordering="needed")
    def agreed(self, approval: Approval) -> str:
        """How many of the people needed have said yes."""
        return cases.progress(approval)

    @admin.display(description=_("claimed by"), ordering="claimed_name")
    def claimant(self, approval: Approval) -> Any:
        """Who is reading it."""
        claimed = reviewers.is_claimed(approval)
        return self.or_empty(visible(approval.claimed_name) if claimed else "")

    @admin.display(description=_("for"), ordering="reviewers")
    def for_whom(self, approval: Approval) -> Any:
        """Who it waits for."""
        return visible(reviewers.reviewers_of(approval)) if approval.reviewers else _("everybody")

    @admin.display(description=_("arguments"))
    def arguments(self, approval: Approval) -> SafeString:
        """What the tool will be run with."""
        return cases.arguments(approval)

    @admin.display(description=_("changed by reviewers"))
    def changed(self, approval: Approval) -> Any:
        """What those who agreed have made of the model's arguments."""
        return self.or_empty(cases.proposal(approval))

    @admin.display(description=_("the tool says"))
    def said(self, approval: Approval) -> Any:
        """The payload of the request."""
        return self.or_empty(cases.payload(approval))

    @admin.display(description=_("the agent was asked"))
    def asked(self, approval: Approval) -> Any:
        """The first user message."""
        return self.or_empty(cases.asked(approval.run_id, approval._state.db))

    @admin.display(description=_("used so far"))
    def spent(self, approval: Approval) -> SafeString:
        """What the run has cost and used, next to its limits."""
        return cases.spent(approval.run)

    @admin.display(description=_("run"))
    def run_link(self, approval: Approval) -> SafeString:
        """The run, for those who may see it."""
        url = reverse(
            "admin:anvil_django_run_change", args=[approval.run_id], current_app=self.admin_site.name
        )
        return format_html('<a href="{}">{}</a>', url, approval.run.run_id)

    @admin.display(description=_("run"))
    def run_name(self, approval: Approval) -> str:
        """The run's id."""
        return approval.run.run_id

    @admin.display(description=_("decisions on this call"))
    def decided(self, approval: Approval) -> Any:
        """Who decided what, when and why."""
        return self.or_empty(cases.decisions(cases.earlier_decisions(approval), approval.tool))

    @admin.display(description=_("quorum"))
    def quorum(self, approval: Approval) -> Any:
        """Who has agreed so far."""
        text = cases.progress_sentence(approval)
        return block(text) if text else _("One person decides.")

    @admin.display(description=_("call id"))
    def call_id_text(self, approval: Approval) -> SafeString:
        """The model's id of the call."""
        return visible(approval.call.call_id)
