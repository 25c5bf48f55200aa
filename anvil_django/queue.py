"""django-q2: the doorbell.

It may ring twice, at the same time, late, or never; the payload is a run id and the truth is in our tables.
Nothing here decides anything about a run.
"""

from __future__ import annotations

import gc
import importlib
import logging
import sys
from collections.abc import Callable
from datetime import timedelta
from types import FrameType
from typing import Any

from django.db import connections, transaction

from .clock import get_clock
from .conf import get_settings

logger = logging.getLogger(__name__)

ADVANCE = "anvil_django.tasks.advance"
RECOVER = "anvil_django.tasks.recover"
PROBE = "anvil_django.tasks.answer"
PRUNE = "anvil_django.tasks.prune"
SCHEDULE_NAME = "anvil_django.recover"
PRUNE_SCHEDULE_NAME = "anvil_django.prune"


def ring(run_id: str, *, using: str) -> None:
    """Have a worker advance the run once the current transaction is committed.

    With the ORM broker on the runs' own database the ticket is part of the transaction. Otherwise it is sent
    after the commit; if the process dies in between, the recovery sweep sends it.

    Args:
        run_id: The run.
        using: Database alias of the runs.
    """
    from django_q.conf import Conf

    if using == Conf.ORM and not Conf.SYNC:
        # Inside a transaction the broker leaves the connection alone; outside it would reopen it.
        with transaction.atomic(using=using, savepoint=False):
            _send(run_id)
    else:
        transaction.on_commit(lambda: _send(run_id), using=using, robust=True)


def _send(run_id: str) -> None:
    from django_q.conf import Conf
    from django_q.tasks import async_task

    if Conf.SYNC:
        # In the caller's own process: the loop goes on there until the run waits or ends.
        from . import tasks

        tasks.advance(run_id)
        return
    cluster = get_settings().queue
    options: dict[str, Any] = {"cluster": cluster} if cluster else {}
    async_task(ADVANCE, run_id, save=False, ack_failure=True, group="anvil", **options)


def ring_later(run_id: str, seconds: float, *, using: str) -> None:
    """Ring after a delay, without holding the worker: the backoff of a failed model call.

    The timer lives in this process; if that ends first, the sweep rings once the run is overdue.
    """

    def late() -> None:
        try:
            ring(run_id, using=using)
        except Exception as exc:  # noqa: BLE001 (a timer has nobody to raise to; the sweep repeats it)
            logger.warning("run not queued again: %s", type(exc).__name__, extra={"run_id": run_id})
        finally:
            connections.close_all()

    get_clock().call_later(seconds, late)


def name() -> str:
    """The queue that a cluster started by this process would serve."""
    from django_q.conf import Conf

    return str(Conf.CLUSTER_NAME)


def workers() -> int:
    """How many workers such a cluster has."""
    from django_q.conf import Conf

    return int(Conf.WORKERS)


def most_tickets() -> int:
    """How many tickets one cluster may have taken from the broker without having looked at them."""
    from django_q.conf import Conf

    # In the hands of workers that have just begun, in the local queue (0: without a limit), and in the hands
    # of the process that fills it.
    return workers() + int(Conf.QUEUE_LIMIT or 1000) + int(Conf.BULK) + 1


def check_reachable() -> None:
    """Ask the database of the runs and the broker for a sign of life.

    Raises:
        Exception: Whatever the one that does not answer makes of it.
    """
    from django_q.brokers import get_broker

    from .models import Cluster

    Cluster.objects.exists()
    get_broker().ping()


def preload() -> None:
    """Import what the first task and its model call need, which takes a second or two.

    Done by the process from which workers are forked: otherwise each new worker takes that time again, also
    the one that goes on where a killed one stopped. What is loaded by then stays shared with them: Python's
    garbage collector looks at it no more, and so does not write to its pages in every worker.
    """
    for module in (
        "anthropic.resources.messages",
        "django.db.models.sql.compiler",
        "django_q.brokers.orm",
        "django_q.tasks",
        "genai_prices.data",
    ):
        importlib.import_module(module)
    try:
        get_settings().client_factory()
    except Exception as exc:  # noqa: BLE001 (the first model call says so, on the run, where it is seen)
        logger.warning("ANVIL['CLIENT'] could not be imported: %s", type(exc).__name__)
    gc.freeze()


def is_inline() -> bool:
    """Whether tasks run in the process that queues them (``Q_CLUSTER["sync"]``)."""
    from django_q.conf import Conf

    return bool(Conf.SYNC)


def stop_signal() -> Callable[[], bool]:
    """A function that says whether this worker's cluster has been told to stop.

    django-q2 tells its workers nothing on SIGTERM: it waits for their tasks. A worker is forked from the
    sentinel, though, whose frame is still on its stack and holds the event that was set. Where that is not
    found (another version, another platform) the run is handed back when its slice is over.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        owner = frame.f_locals.get("self")
        # Nothing but the sentinel is asked for an attribute: others on the stack may compute theirs.
        if type(owner).__name__ == "Sentinel" and (event := getattr(owner, "stop_event", None)) is not None:
            return _reader(event)
        frame = frame.f_back
    return lambda: False


def _reader(event: Any) -> Callable[[], bool]:
    # The flag's own value, without the event's lock: a worker killed inside is_set() would leave it locked.
    try:
        flag = event._flag
        flag.get_value()
    except AttributeError:
        return event.is_set  # type: ignore[no-any-return]
    return lambda: bool(flag.get_value())


def prune_on() -> None:
    """Have a worker go on with pruning."""
    from django_q.tasks import async_task

    cluster = get_settings().queue
    options: dict[str, Any] = {"cluster": cluster} if cluster else {}
    async_task(PRUNE, save=False, ack_failure=True, group="anvil", **options)


def install_schedules(using: str) -> None:
    """Create the schedules of the recovery sweep and, if runs are pruned, of that, where they are missing.

    An operator's changes to them stay.
    """
    from django_q.models import Schedule

    _install(using, SCHEDULE_NAME, RECOVER, schedule_type=Schedule.MINUTES, minutes=1)
    if get_settings().prune_after_days is not None:
        # Not at once: whoever has just set it can still see what would go.
        tomorrow = get_clock().now() + timedelta(days=1)
        _install(using, PRUNE_SCHEDULE_NAME, PRUNE, schedule_type=Schedule.DAILY, next_run=tomorrow)


def _install(using: str, name: str, function: str, **when: Any) -> None:
    from django_q.models import Schedule

    Schedule.objects.using(using).get_or_create(
        name=name,
        defaults={
            "func": function,
            "cluster": get_settings().queue,
            # Not saved: the sweep would push all other results out of the list.
            "kwargs": "q_options={'save': False, 'ack_failure': True}",
            **when,
        },
    )


def connect(config: Any) -> None:
    """Connect to the signals: a sweep when a worker starts, the schedule after ``migrate``.

    In the main process of a ``qcluster``, also import what its workers will need.
    """
    from django.db.models.signals import post_migrate
    from django_q.signals import post_spawn

    post_migrate.connect(_after_migrate, sender=config, dispatch_uid="anvil_django.schedule")
    post_spawn.connect(_worker_started, dispatch_uid="anvil_django.recover")
    # No signal comes between the start of the command and the fork of the sentinel.
    if sys.argv[1:2] == ["qcluster"]:
        preload()


def _after_migrate(*, using: str, **kwargs: Any) -> None:
    from django.apps import apps
    from django.db import router

    if not get_settings().install_schedule or not apps.is_installed("django_q"):
        return
    schedule = apps.get_model("django_q", "Schedule")
    if router.db_for_write(schedule) == using and schedule._meta.db_table in _tables(using):
        install_schedules(using)


def _tables(using: str) -> list[str]:
    return connections[using].introspection.table_names()


def _worker_started(**kwargs: Any) -> None:
    # A handler that raises would kill every new worker, also where the code on the disk is being replaced.
    # The sweep first: somebody's run waits for it.
    try:
        from . import clusters, tasks

        tasks.recover()
        clusters.join()
    except Exception:
        logger.exception("the recovery sweep of a starting worker failed; the schedule will repeat it")
    finally:
        connections.close_all()
