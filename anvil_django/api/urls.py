"""The routes of the REST API, for ``include("anvil_django.api.urls")`` under a prefix of the host."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, include, path
from rest_framework.routers import SimpleRouter

from .views import AgentViewSet, ApprovalViewSet, RunViewSet

app_name = "anvil_django"

# Not DefaultRouter: its format suffixes would take the end of a run_id such as "order-1.json".
router = SimpleRouter()
router.register("agents", AgentViewSet, basename="agent")
router.register("runs", RunViewSet, basename="run")
router.register("approvals", ApprovalViewSet, basename="approval")

urlpatterns: list[URLPattern | URLResolver] = [path("v1/", include(router.urls))]
