"""How often one person may call, with rates from ``ANVIL``: the host's own rates are for its own views."""

from __future__ import annotations

from rest_framework.request import Request
from rest_framework.throttling import SimpleRateThrottle
from rest_framework.views import APIView

from ..conf import get_settings


class AnvilThrottle(SimpleRateThrottle):
    """Counts by person; a subclass names the setting that has the rate."""

    setting: str

    def get_rate(self) -> str | None:
        """What ``ANVIL`` says; None: no limit."""
        rate: str | None = getattr(get_settings(), self.setting)
        return rate

    def get_cache_key(self, request: Request, view: APIView) -> str:
        """One counter for each person and setting."""
        # Throttles are asked after permissions: whoever comes here is logged in.
        who = f"user-{request.user.pk}" if request.user.is_authenticated else self.get_ident(request)
        return f"anvil_django.{self.setting}.{who}"


class StartThrottle(AnvilThrottle):
    """For what sets the model to work: start, fork, resume, retry, and further messages."""

    setting = "throttle_start"


class DecideThrottle(AnvilThrottle):
    """For decisions and claims."""

    setting = "throttle_decide"


class ReadThrottle(AnvilThrottle):
    """For everything that changes nothing."""

    setting = "throttle_read"
