"""How long until a run advances again: ``python -m benchmarks.recovery``.

Real processes on a real database, killed with SIGKILL; the model is scripted and answers at once. A time runs
from the kill to the arrival of the next model call of the run (or, for a stop, to the exit of the process).
All timers are the defaults but for the lease in "host lost".

    python -m benchmarks.recovery                               # SQLite, ORM broker
    ANVIL_TEST_DB=postgres python -m benchmarks.recovery        # PostgreSQL, ORM broker
    python -m benchmarks.recovery --redis redis://127.0.0.1:6379/9
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.processes.cluster import Site

LEASE = 5.0
"""Seconds of the lease in "host lost", where the default of 60 would be waited for each time."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=5, help="of each case (default: %(default)s)")
    parser.add_argument("--only", action="append", metavar="CASE", help="this case; may be repeated")
    parser.add_argument("--redis", metavar="URL", help="this Redis is the broker")
    parser.add_argument("--json", action="store_true", help="a line of JSON for each case")
    options = parser.parse_args()
    if options.redis:
        os.environ["ANVIL_BENCH_REDIS"] = options.redis
    with tempfile.TemporaryDirectory() as folder:
        _set_up(Path(folder))
        from django.db import connection

        name = connection.creation.create_test_db(verbosity=0, autoclobber=True)
        os.environ["ANVIL_TEST_DB_NAME"] = name
        where = f"{connection.vendor}, {'Redis' if options.redis else 'ORM'} broker"
        try:
            if not options.json:
                print(f"{where}, seconds\n{'case':<44}{'median':>8}{'max':>8}{'n':>4}")
            for case, measure in CASES.items():
                if options.only and case not in options.only:
                    continue
                times = [_trial(measure, Path(folder) / f"{case}-{i}") for i in range(options.trials)]
                _print(case, times, where if options.json else None)
        finally:
            connection.creation.destroy_test_db(name, verbosity=0)


def _print(case: str, times: list[float], where: str | None) -> None:
    median, most = statistics.median(times), max(times)
    if where is None:
        print(f"{case:<44}{median:>8.2f}{most:>8.2f}{len(times):>4}", flush=True)
    else:
        line = {"where": where, "case": case, "median": median, "max": most, "times": times}
        print(json.dumps(line), flush=True)


def _set_up(folder: Path) -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "benchmarks.recovery_settings"
    os.environ.setdefault("ANVIL_TEST_API_URL", "http://127.0.0.1:9")
    if os.environ.get("ANVIL_TEST_DB", "sqlite") == "sqlite":
        os.environ["ANVIL_TEST_DB_NAME"] = str(folder / "bench.sqlite3")
    else:
        os.environ.setdefault("ANVIL_TEST_DB_NAME", "anvil_bench_recovery")
    import django

    django.setup()
    import logging

    logging.getLogger("django-q").setLevel(logging.WARNING)


def _trial(measure: Callable[[Site], float], folder: Path) -> float:
    from django.core.management import call_command
    from django_q.brokers import get_broker

    from anvil_django.testing import ScriptedMessagesAPI
    from tests.processes.cluster import Site

    folder.mkdir()
    call_command("flush", interactive=False, verbosity=0)
    get_broker().purge_queue()
    api = ScriptedMessagesAPI().start()
    site = Site(folder, api, settings="benchmarks.recovery_settings")
    try:
        return measure(site)
    finally:
        site.kill_all()
        api.stop()


# What is measured.


def _stalls_once(site: Site) -> None:
    """The first call of the model never comes back; the one after it is answered."""
    from anvil_django.testing import fault, say

    site.api.script(say("Done.").after(fault.stall(120)))


def _next_call(site: Site, since: float, *, number: int = 2, seconds: float = 200.0) -> float:
    from tests.processes.cluster import wait_until

    wait_until(lambda: len(site.api.requests) >= number, "the model is called", seconds=seconds)
    return time.monotonic() - since


def _busy_run(site: Site) -> Any:
    _stalls_once(site)
    run = site.start_run()
    _next_call(site, 0, number=1)
    return run


def worker_of_qcluster_killed(site: Site) -> float:
    """One worker of a plain ``qcluster``, in a model call."""
    from tests.processes.cluster import worker_of

    site.start_cluster()
    run = _busy_run(site)
    killed = time.monotonic()
    os.kill(worker_of(run), signal.SIGKILL)
    return _next_call(site, killed)


def worker_killed(site: Site) -> float:
    """One worker of ``anvil_worker``, in a model call."""
    from tests.processes.cluster import worker_of
    from tests.processes.worker import start_worker

    start_worker(site)
    run = _busy_run(site)
    killed = time.monotonic()
    os.kill(worker_of(run), signal.SIGKILL)
    return _next_call(site, killed)


def cluster_killed(site: Site) -> float:
    """All processes below ``anvil_worker`` at once."""
    from tests.processes.worker import start_worker

    worker = start_worker(site)
    _busy_run(site)
    killed = time.monotonic()
    os.killpg(worker.cluster, signal.SIGKILL)
    return _next_call(site, killed)


def service_killed(site: Site) -> float:
    """``anvil_worker`` and all below it, started again at once as by systemd."""
    from tests.processes.worker import start_worker

    worker = start_worker(site)
    _busy_run(site)
    killed = time.monotonic()
    worker.kill()
    start_worker(site)
    return _next_call(site, killed)


def deadlock(site: Site) -> float:
    """The idle worker that is next in line, and a run that is started then."""
    from anvil_django.testing import say
    from tests.processes.worker import children, start_worker

    site.api.script(say("Done."))
    worker = start_worker(site, workers=1)
    time.sleep(1.0)
    (sentinel,) = children(worker.cluster)
    killed = time.monotonic()
    os.kill(next(pid for pid in worker.workers() if pid in children(sentinel)), signal.SIGKILL)
    site.start_run()
    return _next_call(site, killed, number=1)


def host_lost(site: Site) -> float:
    """The process that holds the lease is gone, and the idle ``anvil_worker`` that lives cannot know it."""
    from django.db.models import F, Value
    from django.db.models.functions import Concat

    from anvil_django.models import Run
    from tests.processes.worker import start_worker

    lost = start_worker(site, LEASE_SECONDS=LEASE, HEARTBEAT_SECONDS=1)
    run = _busy_run(site)
    start_worker(site, LEASE_SECONDS=LEASE, HEARTBEAT_SECONDS=1)
    # Stopped first: a process that is gone would be recognized until its lease names another host.
    os.killpg(lost.cluster, signal.SIGSTOP)
    killed = time.monotonic()
    elsewhere = Concat(Value("elsewhere-"), F("lease_owner"))
    assert Run.objects.filter(pk=run.pk, status="running").update(lease_owner=elsewhere)
    lost.kill()
    return _next_call(site, killed)


def stopped_idle(site: Site) -> float:
    """SIGTERM to an ``anvil_worker`` without work."""
    from tests.processes.worker import start_worker

    worker = start_worker(site)
    time.sleep(1.0)
    told = time.monotonic()
    worker.signal(signal.SIGTERM)
    assert worker.ended() == 0
    return time.monotonic() - told


def stopped_busy(site: Site) -> float:
    """SIGTERM while a model call has one second to go; its answer is stored, and the run handed back."""
    from anvil_django.testing import say, tool_call
    from tests.processes.worker import start_worker

    site.api.script(say(tool_call("act", {"name": "one"}), delay=1.0), say("Done."))
    worker = start_worker(site)
    run = site.start_run()
    _next_call(site, 0, number=1)
    told = time.monotonic()
    worker.signal(signal.SIGTERM)
    assert worker.ended() == 0
    took = time.monotonic() - told
    run.refresh_from_db()
    assert (run.status, run.iterations) == ("queued", 1)
    return took


CASES: dict[str, Callable[[Site], float]] = {
    "worker killed, qcluster": worker_of_qcluster_killed,
    "worker killed": worker_killed,
    "whole cluster killed": cluster_killed,
    "whole service killed and started again": service_killed,
    "idle next-in-line worker killed (deadlock)": deadlock,
    f"host lost (lease of {LEASE:g} s)": host_lost,
    "SIGTERM, idle": stopped_idle,
    "SIGTERM, 1 s left of a model call": stopped_busy,
}


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
        sys.exit(0)
    sys.exit(130)
