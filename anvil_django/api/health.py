"""Whether runs get on, for whoever asks over HTTP: no login, no names, no part of the documented API.

Put it where your monitoring looks::

    path("health/agents/", anvil_django.api.health.ready),
"""

from __future__ import annotations

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from .. import health


@never_cache
@require_safe
# A database that is down is an answer, and no error of the request.
@transaction.non_atomic_requests
def ready(request: HttpRequest) -> JsonResponse:
    """Answer 200 when all is well and 503 when not, with a sentence for each problem.

    It asks what ``manage.py anvil_health`` asks, by the same limits.
    """
    found = health.ready()
    body = {"well": found.is_well, "problems": found.problems}
    return JsonResponse(body, status=200 if found.is_well else 503)
