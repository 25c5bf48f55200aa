"""A check for django-health-check (``pip install anvil-django[health]``)::

HealthCheckView.as_view(checks=[..., "anvil_django.health_check.Agents"])
"""

from __future__ import annotations

import dataclasses

from django.db import connections
from health_check.base import HealthCheck
from health_check.exceptions import ServiceUnavailable

from . import health


@dataclasses.dataclass
class Agents(HealthCheck):  # type: ignore[misc] # (of a package without type information)
    """Whether runs get on: what ``manage.py anvil_health`` asks.

    Args:
        queue_name: Only clusters of this queue.
        max_age: Seconds since the last sign of life of a cluster.
        max_wait: Seconds that a run may be due, or without its worker.
    """

    queue_name: str | None = None
    max_age: float = health.MAX_AGE
    max_wait: float = health.MAX_WAIT

    def run(self) -> None:
        """Ask the database.

        Raises:
            ServiceUnavailable: With a sentence for each problem.
        """
        try:
            found = health.ready(queue_name=self.queue_name, max_age=self.max_age, max_wait=self.max_wait)
        finally:
            # Nobody else would close those of a thread that is not of a request.
            connections.close_all()
        if not found.is_well:
            raise ServiceUnavailable(" ".join(found.problems))
