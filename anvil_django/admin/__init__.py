"""The admin: runs to watch and steer, and the queue of approvals.

With an admin theme that has a ``ModelAdmin`` of its own, unregister ours and register the mixins with it::

    class ThemedApprovalAdmin(ApprovalAdminMixin, theme.ModelAdmin): ...

The front page of the admin says how many cases wait for the person who looks at it. Django has no hook for
that, so the default site gets a front page that extends ``admin/index.html`` (the theme's or the site's
own, if there is one), unless it has an ``index_template`` already. Such a site shows the number with two
tags in its own template: ``{% load anvil_waiting %}{% anvil_waiting %}``.
"""

from __future__ import annotations

from django.contrib import admin

from ..models import Approval, Run
from .approvals import ApprovalAdmin, ApprovalAdminMixin
from .readonly import ReadOnlyMixin
from .runs import RunAdmin, RunAdminMixin

__all__ = ["ApprovalAdmin", "ApprovalAdminMixin", "ReadOnlyMixin", "RunAdmin", "RunAdminMixin"]

INDEX_TEMPLATE = "admin/anvil_django/index.html"

admin.site.register(Run, RunAdmin)
admin.site.register(Approval, ApprovalAdmin)
if admin.site.index_template is None:
    admin.site.index_template = INDEX_TEMPLATE
