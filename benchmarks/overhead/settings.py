"""Settings of the processes that are measured; the driver chooses the database and the broker.

``ANVIL_BENCH_DB`` and ``ANVIL_BENCH_NAME`` say which database, ``ANVIL_BENCH_REDIS`` may hold the URL of a
broker, ``ANVIL_BENCH_WORKERS`` is the number of workers of a cluster.
"""

import os
from typing import Any

from .databases import django_database

SECRET_KEY = "only-for-benchmarks"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django_q",
    "anvil_django",
    "benchmarks.overhead",
]
DATABASES = {
    "default": django_database(
        os.environ.get("ANVIL_BENCH_DB", "sqlite"), os.environ.get("ANVIL_BENCH_NAME", ":memory:")
    )
}
POLL = 0.2
"""Seconds, django-q2's own: how often a cluster asks the ORM broker."""
Q_CLUSTER: dict[str, Any] = {
    "name": "anvil-bench",
    "workers": int(os.environ.get("ANVIL_BENCH_WORKERS", "2")),
    "queue_limit": 1,
    "bulk": 1,
    "timeout": 960,
    "retry": 2000,
    "max_attempts": 3,
    "save_limit": 100,
    "catch_up": False,
    "poll": POLL,
}
if url := os.environ.get("ANVIL_BENCH_REDIS"):
    Q_CLUSTER["redis"] = url
else:
    Q_CLUSTER["orm"] = "default"
ANVIL: dict[str, Any] = {
    "CLIENT": "benchmarks.overhead.contestants.ours.client",
    # One crashed run is resumed several times.
    "MAX_RECOVERIES": 1000,
    # The tools of the largest job return 1 MB.
    "RESULT_LIMIT": 2_000_000,
    "INSTALL_SCHEDULE": False,
}
