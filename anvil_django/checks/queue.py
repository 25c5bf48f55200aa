"""django-q2: that it delivers runs, and neither cuts them off nor runs them twice at once."""

from __future__ import annotations

from typing import Any

from django.apps import apps
from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, Tags, register
from django.db import router

from ..conf import get_settings
from .asking import has_settings


@register(Tags.compatibility)
def check_queue(**kwargs: Any) -> list[CheckMessage]:
    """django-q2 is set up so that a slice is never cut off or run twice at once by the queue."""
    if not has_settings():
        return []
    if not apps.is_installed("django_q"):
        return [
            Error(
                "django_q is not in INSTALLED_APPS, so no worker can advance a run.",
                hint='Add "django_q" to INSTALLED_APPS; the README of anvil_django shows its Q_CLUSTER.',
                id="anvil_django.E002",
            )
        ]
    from ..models import Run

    cluster = effective_cluster()
    found: list[CheckMessage] = []
    alias = router.db_for_write(Run)
    if cluster.get("orm") not in {None, alias}:
        found.append(
            Error(
                f"Q_CLUSTER['orm'] is {cluster['orm']!r}, but the runs are in the database {alias!r}: "
                "queueing a task inside a transaction would silently undo that transaction.",
                hint=f"Set Q_CLUSTER['orm'] = {alias!r}, or use the Redis broker.",
                id="anvil_django.E003",
            )
        )
    found += _check_name(cluster)
    found += _check_times(cluster)
    return found


def effective_cluster() -> dict[str, Any]:
    """``Q_CLUSTER`` as it holds for the cluster that advances runs."""
    cluster = dict(getattr(settings, "Q_CLUSTER", {}))
    queue = get_settings().queue
    if queue and queue not in {cluster.get("name"), cluster.get("cluster_name")}:
        cluster.update(cluster.get("ALT_CLUSTERS", {}).get(queue, {}))
    return cluster


def _check_name(cluster: dict[str, Any]) -> list[CheckMessage]:
    queue, others = get_settings().queue, cluster.get("ALT_CLUSTERS", {})
    if queue is None or queue in {cluster.get("name"), cluster.get("cluster_name"), *others}:
        return []
    return [
        Error(
            f"ANVIL['QUEUE'] is {queue!r}, and Q_CLUSTER knows no cluster of that name: no worker would take "
            "a run.",
            hint=f"Add Q_CLUSTER['ALT_CLUSTERS'][{queue!r}] = {{...}}, or correct the name.",
            id="anvil_django.E011",
        )
    ]


def _check_times(cluster: dict[str, Any]) -> list[CheckMessage]:
    if cluster.get("sync"):
        return []
    timeout, retry = cluster.get("timeout"), cluster.get("retry", 60)
    needed = int(get_settings().slice_seconds + get_settings().request_timeout)
    if not isinstance(timeout, int) or timeout < needed:
        return [
            Error(
                f"Q_CLUSTER['timeout'] is {timeout!r}: the queue would kill a worker in mid-slice.",
                hint=f"Set it to at least {needed} seconds (ANVIL slice_seconds + request_timeout), "
                "as a whole number.",
                id="anvil_django.E004",
            )
        ]
    if not isinstance(retry, int) or retry <= timeout:
        return [
            Error(
                f"Q_CLUSTER['retry'] is {retry!r} and the timeout {timeout}: the queue would deliver a run "
                "again while it is still being advanced.",
                hint=f"Set retry to more than twice the timeout, such as {2 * timeout + 60}.",
                id="anvil_django.E005",
            )
        ]
    lease = get_settings().lease_seconds
    if retry <= lease:
        return [
            checks.Warning(
                f"Q_CLUSTER['retry'] is {retry} and ANVIL['LEASE_SECONDS'] is {lease:g}: when a worker dies, "
                "its run is delivered again while it still counts as held, and has to wait for the sweep.",
                hint=f"Set LEASE_SECONDS to less than {retry}; 60 does for most sites.",
                id="anvil_django.W005",
            )
        ]
    return []
