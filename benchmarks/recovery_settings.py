"""Settings of ``benchmarks.recovery``: those of the process tests, with a site's own timers.

``ANVIL_TEST_DB`` chooses the database as in the tests; ``ANVIL_BENCH_REDIS`` may hold the URL of a Redis that
is then the broker.
"""

import json
import os

from tests.processes.settings import *  # noqa: F403
from tests.processes.settings import ANVIL, Q_CLUSTER

# Of django-q2 itself: the tests use shorter ones.
Q_CLUSTER = {**Q_CLUSTER, "name": "anvil-bench", "guard_cycle": 0.5, "poll": 0.2}
if url := os.environ.get("ANVIL_BENCH_REDIS"):
    del Q_CLUSTER["orm"]
    Q_CLUSTER["redis"] = url
ANVIL = {**ANVIL, "HEARTBEAT_SECONDS": 5.0, **json.loads(os.environ.get("ANVIL_TEST_SETTINGS", "{}"))}
