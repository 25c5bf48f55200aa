"""Who may call what. Which rows a person sees is the querysets' matter: other people's runs are 404."""

from __future__ import annotations

from typing import Any

from rest_framework.permissions import BasePermission
from rest_framework.request import Request
from rest_framework.views import APIView

from .. import approvals
from ..agents import START_PERMISSION
from ..models import Run

STARTING = frozenset({"create", "fork"})
STEERING = frozenset({"cancel", "pause", "resume", "retry", "say"})


class MayUseRuns(BasePermission):
    """Starting takes a permission; steering takes being the owner, or a permission."""

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Whether the person may start runs, where that is asked."""
        self.message = f"You need the permission {START_PERMISSION} to start runs."
        starts = getattr(view, "action", None) in STARTING
        return not starts or request.user.has_perm(START_PERMISSION)

    def has_object_permission(self, request: Request, view: APIView, obj: Any) -> bool:
        """Whether the person may steer this run, where that is asked."""
        self.message = "Only who started this run, or people with anvil_django.control_run, may steer it."
        steers = getattr(view, "action", None) in STEERING
        return not steers or (isinstance(obj, Run) and obj.may_be_steered_by(request.user))


class MaySeeApprovals(BasePermission):
    """Approvals are for reviewers and onlookers; whether one may decide is asked by ``approvals.py``."""

    message = f"You need the permission {approvals.PERMISSION} or {approvals.VIEW_PERMISSION}."

    def has_permission(self, request: Request, view: APIView) -> bool:
        """Whether the person may see approvals."""
        return approvals.may_see(request.user)
