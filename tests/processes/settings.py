"""Settings of the processes that the tests start: those of the suite, with an agent that acts on files.

``ANVIL_TEST_SETTINGS`` may hold a JSON object that is laid over ``ANVIL``.
"""

import json
import os

from tests.settings import *  # noqa: F403
from tests.settings import ANVIL, INSTALLED_APPS, Q_CLUSTER

INSTALLED_APPS = [*INSTALLED_APPS, "tests.processes"]
# How soon the sentinel notices a dead worker; exact in binary, as django-q2's timers need it.
Q_CLUSTER = {
    **Q_CLUSTER,
    "guard_cycle": 0.25,
    "workers": int(os.environ.get("ANVIL_TEST_WORKERS", "2")),
}
ANVIL = {
    **ANVIL,
    "CLIENT": "tests.processes.crew.client",
    "HEARTBEAT_SECONDS": 0.5,
    **json.loads(os.environ.get("ANVIL_TEST_SETTINGS", "{}")),
}
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "loggers": {"anvil_django": {"handlers": ["console"], "level": "INFO"}},
}
