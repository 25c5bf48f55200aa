"""Who may call what. Which rows a person sees is the querysets' matter: other people's runs are 404."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext as _
from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.views import APIView

from .. import approvals
from ..agents import START_PERMISSION
from ..models import Run
from ..models.run import CONTROL_PERMISSION

STARTING = frozenset({"create", "fork"})
STEERING = frozenset({"cancel", "pause", "resume", "retry", "say"})


class MayUseRuns(BasePermission):
    """Starting takes a permission; steering takes being the owner, or a permission."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Whether the person may start runs, where that is asked."""
        self.message = _("You need the permission %(permission)s to start runs.") % {
            "permission": START_PERMISSION
        }
        starts = getattr(view, "action", None) in STARTING
        return not starts or request.user.has_perm(START_PERMISSION)

    def has_object_permission(self, request: Request, view: APIView, obj: Any) -> bool:
        """Whether the person may steer this run, where that is asked."""
        self.message = _("Only who started this run, or people with %(permission)s, may steer it.") % {
            "permission": CONTROL_PERMISSION
        }
        steers = getattr(view, "action", None) in STEERING
        return not steers or (isinstance(obj, Run) and obj.may_be_steered_by(request.user))


class MaySeeApprovals(BasePermission):
    """Approvals are for reviewers and onlookers; whether one may decide is asked by ``approvals.py``."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Whether the person may see approvals."""
        self.message = _("You need the permission %(one)s or %(other)s.") % {
            "one": approvals.PERMISSION,
            "other": approvals.VIEW_PERMISSION,
        }
        return approvals.may_see(request.user)
