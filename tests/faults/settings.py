"""Settings of the campaign's processes: those of the suite with short times, so that minutes are enough.

``ANVIL_FAULTS_REDIS`` is the socket of a Redis that carries the queue; without it the database does.
"""

import os

from tests.settings import *  # noqa: F403
from tests.settings import ANVIL, DATABASES, INSTALLED_APPS, Q_CLUSTER

INSTALLED_APPS = [*INSTALLED_APPS, "tests.faults"]
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    # A transaction that waits for the lock while a fault holds it must outlast that.
    DATABASES["default"]["OPTIONS"]["timeout"] = 20

Q_CLUSTER = {
    **Q_CLUSTER,
    "name": "anvil-faults",
    "workers": int(os.environ.get("ANVIL_FAULTS_WORKERS", "2")),
    # How soon the sentinel notices a dead worker; exact in binary, as django-q2's timers need it.
    "guard_cycle": 0.25,
    "log_level": "INFO",
}
if socket := os.environ.get("ANVIL_FAULTS_REDIS"):
    Q_CLUSTER = {key: value for key, value in Q_CLUSTER.items() if key != "orm"}
    Q_CLUSTER["redis"] = {"unix_socket_path": socket}

ANVIL = {
    "CLIENT": "tests.faults.agents.client",
    "SAVE_IN_ONE_STATEMENT": ANVIL["SAVE_IN_ONE_STATEMENT"],
    "LEASE_SECONDS": 3.0,
    "HEARTBEAT_SECONDS": 0.5,
    "TICKET_SECONDS": 3.0,
    "SLICE_SECONDS": 4.0,
    "SLICE_SOFT_SECONDS": 1.0,
    "FLUSH_SECONDS": 0.3,
    "BACKOFF_SECONDS": 0.2,
    "BACKOFF_CAP_SECONDS": 1.0,
    # A run is hit far more often here than by bad luck, and giving up on it would hide what becomes of it.
    "MAX_RECOVERIES": 20,
    "MAX_MODEL_ATTEMPTS": 50,
}
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"timed": {"format": "%(asctime)s %(process)d %(name)s %(levelname)s %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "timed"}},
    "loggers": {
        "anvil_django": {"handlers": ["console"], "level": "INFO"},
        "django.db.backends": {"handlers": ["console"], "level": "ERROR"},
    },
}
