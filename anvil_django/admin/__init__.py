"""The admin: runs to watch and steer, and the queue of approvals.

With an admin theme that has a ``ModelAdmin`` of its own, unregister ours and register the mixins with it::

    class ThemedApprovalAdmin(ApprovalAdminMixin, theme.ModelAdmin): ...
"""

from __future__ import annotations

from django.contrib import admin

from ..models import Approval, Run
from .approvals import ApprovalAdmin, ApprovalAdminMixin
from .readonly import ReadOnlyMixin
from .runs import RunAdmin, RunAdminMixin

__all__ = ["ApprovalAdmin", "ApprovalAdminMixin", "ReadOnlyMixin", "RunAdmin", "RunAdminMixin"]

admin.site.register(Run, RunAdmin)
admin.site.register(Approval, ApprovalAdmin)
