from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

urlpatterns = [
    path("", RedirectView.as_view(pattern_name="admin:index")),
    path("admin/", admin.site.urls),
    path("api/agents/", include("anvil_django.api.urls")),
    # Log in and out of the browsable API.
    path("api-auth/", include("rest_framework.urls")),
]
