"""All endpoints, each with its resource in a module of its own."""

from __future__ import annotations

from .agents import AgentViewSet
from .approvals import ApprovalViewSet
from .runs import RunViewSet

__all__ = ["AgentViewSet", "ApprovalViewSet", "RunViewSet"]
