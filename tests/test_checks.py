"""What ``manage.py check`` says about settings, queue, databases, API and admin; and that it is documented.

What it says about people stands in test_checks_review.py, about stored runs in test_inflight.py.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.apps import apps
from django.core import checks
from django.core.checks import CheckMessage, Error
from django.core.checks import Warning as CheckWarning
from django.db import connection
from django.urls import path
from django_q.models import Schedule
from rest_framework.permissions import AllowAny

from anvil_django import queue
from anvil_django.api.views import RunViewSet

ROOT = Path(__file__).resolve().parent.parent


def found(code: str, *, deploy: bool = False, databases: list[str] | None = None) -> list[Any]:
    """What ``manage.py check`` finds under one of our codes."""
    messages = checks.run_checks(include_deployment_checks=deploy, databases=databases)
    return [message for message in messages if message.id == f"anvil_django.{code}"]


def error(code: str, msg: str, hint: str) -> Error:
    return Error(msg, hint=hint, id=f"anvil_django.{code}")


def warning(code: str, msg: str, hint: str) -> CheckWarning:
    return CheckWarning(msg, hint=hint, id=f"anvil_django.{code}")


def test_the_tests_own_settings_are_right() -> None:
    assert [m for m in checks.run_checks() if str(m.id).startswith("anvil_django.")] == []


# The settings.


def test_keys_that_are_not_known_and_values_of_the_wrong_type(settings: Any) -> None:
    settings.ANVIL = {"LEASE": 60, "PRUNE_AFTER_DAYS": 0}

    hint = "The keys, their units and defaults stand in anvil_django.conf.Settings and in the docs."
    assert found("E001") == [
        error("E001", "ANVIL['LEASE'] is not a setting of anvil_django.", hint),
        error("E001", "ANVIL['PRUNE_AFTER_DAYS'] must be a number of days above zero or None, not 0.", hint),
    ]


def test_times_without_zones(settings: Any) -> None:
    settings.USE_TZ = False

    assert found("E006") == [
        error(
            "E006",
            "USE_TZ is False: leases would be wrong for an hour at each change of the clocks.",
            "Set USE_TZ = True.",
        )
    ]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("tests.nowhere.hide", "cannot be imported (No module named 'tests.nowhere')"),
        ("tests.settings.SECRET_KEY", "is no function"),
    ],
)
def test_functions_that_cannot_be_called(settings: Any, path: str, why: str) -> None:
    settings.ANVIL = {"REDACT": path, "CLIENT": path}

    assert found("E007") == [
        error(
            "E007",
            f"ANVIL['REDACT'] is {path!r}, which {why}: nothing that it might hide could be shown.",
            "Name a function (tool, path, value) that answers with the value or a text to show instead.",
        )
    ]
    assert found("E009") == [
        error(
            "E009",
            f"ANVIL['CLIENT'] is {path!r}, which {why}: no worker could call the model.",
            "Name a function without arguments that makes the client, or leave the key out.",
        )
    ]


def test_telemetry_without_opentelemetry(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.ANVIL = {"TELEMETRY": True}
    assert found("E013") == []
    monkeypatch.setattr("anvil_django.checks.settings.find_spec", lambda name: None)

    assert found("E013") == [
        error(
            "E013",
            "ANVIL['TELEMETRY'] is on, and OpenTelemetry is not installed: nothing is told.",
            "Install anvil-django[otel] and an SDK with an exporter, or take the key out.",
        )
    ]


def test_a_lease_that_does_not_outlive_a_late_renewal(settings: Any) -> None:
    settings.ANVIL = {"LEASE_SECONDS": 20, "HEARTBEAT_SECONDS": 10}
    assert found("E008") == [
        error(
            "E008",
            "ANVIL['LEASE_SECONDS'] is 20 and ANVIL['HEARTBEAT_SECONDS'] is 10: a worker whose renewal is "
            "late once loses its run, and its step is done again.",
            "Set LEASE_SECONDS to more than twice HEARTBEAT_SECONDS: 60 or longer.",
        )
    ]
    settings.ANVIL = {"LEASE_SECONDS": 21, "HEARTBEAT_SECONDS": 10}
    assert found("E008") == []


def test_no_credentials_for_the_api(settings: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))  # Where the SDK looks for profiles.
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert found("W006", deploy=True) == []  # The tests have a client of their own.
    settings.ANVIL = {}
    assert found("W006") == []
    assert found("W006", deploy=True) == [
        warning(
            "W006",
            "ANVIL['CLIENT'] is not set and this process has no credentials for the Messages API: workers "
            "with this environment cannot call the model.",
            "Set ANTHROPIC_API_KEY in the environment of the workers, or name a function that makes the "
            "client in ANVIL['CLIENT']. Other processes need none.",
        )
    ]
    monkeypatch.setenv("ANTHROPIC_API_KEY", "key")
    assert found("W006", deploy=True) == []


# The queue.


def test_a_site_without_django_q(settings: Any) -> None:
    settings.INSTALLED_APPS = [app for app in settings.INSTALLED_APPS if app != "django_q"]

    assert found("E002") == [
        error(
            "E002",
            "django_q is not in INSTALLED_APPS, so no worker can advance a run.",
            'Add "django_q" to INSTALLED_APPS; the README of anvil_django shows its Q_CLUSTER.',
        )
    ]


def test_a_queue_in_another_database(settings: Any) -> None:
    settings.Q_CLUSTER = {**settings.Q_CLUSTER, "orm": "queue"}

    assert found("E003") == [
        error(
            "E003",
            "Q_CLUSTER['orm'] is 'queue', but the runs are in the database 'default': queueing a task inside "
            "a transaction would silently undo that transaction.",
            "Set Q_CLUSTER['orm'] = 'default', or use the Redis broker.",
        )
    ]


@pytest.mark.parametrize("timeout", [None, 899, 960.0])
def test_a_timeout_that_cuts_a_slice_off(settings: Any, timeout: Any) -> None:
    settings.Q_CLUSTER = {**settings.Q_CLUSTER, "timeout": timeout}

    assert found("E004") == [
        error(
            "E004",
            f"Q_CLUSTER['timeout'] is {timeout!r}: the queue would kill a worker in mid-slice.",
            "Set it to at least 900 seconds (ANVIL slice_seconds + request_timeout), as a whole number.",
        )
    ]


@pytest.mark.parametrize("retry", [60, 960])
def test_a_run_that_is_delivered_again_while_it_is_advanced(settings: Any, retry: int) -> None:
    settings.Q_CLUSTER = {**settings.Q_CLUSTER, "retry": retry}

    assert found("E005") == [
        error(
            "E005",
            f"Q_CLUSTER['retry'] is {retry} and the timeout 960: the queue would deliver a run again while "
            "it "
            "is still being advanced.",
            "Set retry to more than twice the timeout, such as 1980.",
        )
    ]


def test_a_run_that_is_delivered_again_while_its_dead_worker_holds_it(settings: Any) -> None:
    settings.ANVIL = {"LEASE_SECONDS": 2000}

    assert found("W005") == [
        warning(
            "W005",
            "Q_CLUSTER['retry'] is 2000 and ANVIL['LEASE_SECONDS'] is 2000: when a worker dies, its run is "
            "delivered again while it still counts as held, and has to wait for the sweep.",
            "Set LEASE_SECONDS to less than 2000; 60 does for most sites.",
        )
    ]


def test_a_queue_that_no_cluster_serves(settings: Any) -> None:
    settings.ANVIL = {"QUEUE": "nigth"}
    settings.Q_CLUSTER = {**settings.Q_CLUSTER, "ALT_CLUSTERS": {"night": {}}}
    assert found("E011") == [
        error(
            "E011",
            "ANVIL['QUEUE'] is 'nigth', and Q_CLUSTER knows no cluster of that name: no worker would take a "
            "run.",
            "Add Q_CLUSTER['ALT_CLUSTERS']['nigth'] = {...}, or correct the name.",
        )
    ]
    for known in ("night", "anvil-tests"):
        settings.ANVIL = {"QUEUE": known}
        assert found("E011") == []


def test_what_holds_for_the_cluster_of_the_runs_counts(settings: Any) -> None:
    settings.ANVIL = {"QUEUE": "night"}
    settings.Q_CLUSTER = {**settings.Q_CLUSTER, "timeout": 5, "ALT_CLUSTERS": {"night": {"timeout": 960}}}

    assert found("E004") == []


@pytest.mark.django_db
def test_schedules_that_are_missing(settings: Any) -> None:
    assert found("W017", databases=["default"]) == []
    settings.ANVIL = {"PRUNE_AFTER_DAYS": 90}
    pruning = warning(
        "W017",
        "The schedule 'anvil_django.prune' is missing: no old run is deleted.",
        "Run migrate, which creates it; with ANVIL['INSTALL_SCHEDULE'] = False, create one that calls "
        "anvil_django.tasks.prune.",
    )
    assert found("W017", databases=["default"]) == [pruning]
    Schedule.objects.all().delete()
    sweep = warning(
        "W017",
        "The schedule 'anvil_django.recover' is missing: runs that lost their worker are found late.",
        "Run migrate, which creates it; with ANVIL['INSTALL_SCHEDULE'] = False, create one that calls "
        "anvil_django.tasks.recover.",
    )
    assert found("W017", databases=["default"]) == [sweep, pruning]
    queue.install_schedules("default")
    assert found("W017", databases=["default"]) == []


# The databases.


sqlite = pytest.mark.skipif("connection.vendor != 'sqlite'", reason="about SQLite")
server = pytest.mark.skipif("connection.vendor == 'sqlite'", reason="about servers")


@sqlite
@pytest.mark.django_db
def test_sqlite_whose_transactions_begin_as_readers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found("W001", databases=["default"]) == []
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", {})

    assert found("W001", databases=["default"]) == [
        warning(
            "W001",
            "Database 'default' is SQLite without transaction_mode \"IMMEDIATE\": several workers will meet "
            '"database is locked".',
            'Set OPTIONS = {"transaction_mode": "IMMEDIATE", "timeout": 20, "init_command": '
            '"PRAGMA journal_mode=WAL;"}.',
        )
    ]


@sqlite
@pytest.mark.django_db
def test_sqlite_with_many_workers(settings: Any) -> None:
    settings.Q_CLUSTER = {**settings.Q_CLUSTER, "workers": 5}
    assert found("W008", databases=["default"]) == [
        warning(
            "W008",
            "Database 'default' is SQLite, and a cluster has 5 workers: they will mostly wait for each "
            "other.",
            "Set Q_CLUSTER['workers'] to 4 or fewer, or use PostgreSQL.",
        )
    ]
    settings.Q_CLUSTER = {**settings.Q_CLUSTER, "workers": 4}
    assert found("W008", databases=["default"]) == []


@server
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_transactions_that_do_not_see_what_others_commit(level: str) -> None:
    assert found("W015", databases=["default"]) == []
    with connection.cursor() as cursor:
        of_session = "SESSION CHARACTERISTICS AS" if connection.vendor == "postgresql" else "SESSION"
        cursor.execute(f"SET {of_session} TRANSACTION ISOLATION LEVEL {level}")
    try:
        assert found("W015", databases=["default"]) == [
            warning(
                "W015",
                f"Database 'default' works at {level}: an atomic tool that takes longer than "
                "ANVIL['HEARTBEAT_SECONDS'] (5) cannot be committed.",
                "Leave the isolation level as Django sets it, READ COMMITTED: take isolation_level out of "
                "OPTIONS, and on PostgreSQL default_transaction_isolation out of the server's settings.",
            )
        ]
    finally:
        connection.close()


@pytest.mark.skipif("connection.vendor != 'postgresql'", reason="about PostgreSQL")
def test_a_pool_whose_sockets_the_workers_would_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", {"pool": True})

    assert found("W018") == [
        warning(
            "W018",
            "Database 'default' has OPTIONS['pool']: workers are forked and would share its sockets, and "
            "read each other's rows.",
            "Take it out of the settings of the workers; CONN_MAX_AGE = 600 with CONN_HEALTH_CHECKS does as "
            "well there. Other processes may have it.",
        )
    ]


class MessagesApart:
    """A router that keeps messages elsewhere."""

    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        return "archive" if model._meta.label == "anvil_django.Message" else None


class ReadsFromReplica:
    """A router that reads from a copy."""

    def db_for_read(self, model: Any, **hints: Any) -> str:
        return "replica"


def test_models_that_belong_together_in_two_databases(settings: Any) -> None:
    settings.DATABASE_ROUTERS = [MessagesApart()]

    (told,) = found("E010")

    assert told.msg.startswith(
        "DATABASE_ROUTERS keeps what belongs together apart: anvil_django.AgentVersion, "
    )
    assert told.msg.endswith(", auth.User in 'default'; anvil_django.Message in 'archive'.")
    assert told.hint == "Route all models of anvil_django, and those of the users, to one database."


def test_runs_that_are_read_from_a_replica(settings: Any) -> None:
    settings.DATABASE_ROUTERS = [ReadsFromReplica()]

    assert found("W016") == [
        warning(
            "W016",
            "DATABASE_ROUTERS has runs read from 'replica' and written to 'default': what was just done may "
            "not be seen, and is said to have failed.",
            "Read the models of anvil_django from the database that they are written to.",
        )
    ]


# The REST API and the admin.


class OpenRuns(RunViewSet):
    """Somebody has taken the lock off."""

    permission_classes = (AllowAny,)


class Speechless(RunViewSet):
    """Nobody can say who they are."""

    authentication_classes = ()


urlpatterns = [
    path("open/", OpenRuns.as_view({"get": "list"})),
    path("speechless/", Speechless.as_view({"get": "list"})),
]


def test_views_that_let_anybody_in_or_nobody(settings: Any) -> None:
    settings.ROOT_URLCONF = __name__

    assert found("E012") == [
        error(
            "E012",
            "tests.test_checks.OpenRuns lets anybody in.",
            "Keep the permission_classes of the class that it inherits from, and add to them.",
        )
    ]
    assert found("W007") == [
        warning(
            "W007",
            "tests.test_checks.Speechless has no authentication classes, so nobody can log in.",
            'Name some in REST_FRAMEWORK["DEFAULT_AUTHENTICATION_CLASSES"].',
        )
    ]


def test_a_site_that_lets_anybody_in_everywhere_else_is_no_trouble(settings: Any) -> None:
    settings.REST_FRAMEWORK = {"DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.AllowAny"]}

    assert found("E012") == []


@pytest.fixture
def unfold(monkeypatch: pytest.MonkeyPatch) -> None:
    """A site with that theme, as far as a check can tell."""
    package, module = ModuleType("unfold"), ModuleType("unfold.admin")
    module.ModelAdmin = type("ModelAdmin", (), {})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "unfold", package)
    monkeypatch.setitem(sys.modules, "unfold.admin", module)
    is_installed = apps.is_installed
    monkeypatch.setattr(apps, "is_installed", lambda name: name == "unfold" or is_installed(name))


@pytest.mark.usefixtures("unfold")
def test_admin_pages_that_are_not_built_on_the_sites_theme() -> None:
    def about(model: str) -> CheckMessage:
        return warning(
            "W009",
            f"The admin of anvil_django.{model} is not built on unfold.admin.ModelAdmin: its pages lack the "
            "styles and the buttons of unfold.",
            f"Unregister it and register a class ({model}AdminMixin, unfold.admin.ModelAdmin) instead, with "
            "the mixin from anvil_django.admin.",
        )

    assert found("W009") == [about("Run"), about("Approval")]


# The docs.


def test_every_check_is_in_the_docs_and_every_check_of_the_docs_exists() -> None:
    sources = (ROOT / "anvil_django" / "checks").glob("*.py")
    raised = {code for source in sources for code in re.findall(r"\b[EW]\d{3}\b", source.read_text())}
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "checks.md").read_text(), re.MULTILINE)

    assert rows == sorted(raised)
