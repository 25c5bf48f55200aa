"""Settings of the test suite.

``ANVIL_TEST_DB`` chooses the database: ``sqlite`` (default, nothing to install), ``postgres`` or ``mariadb``.
The servers are reached as ``ANVIL_TEST_POSTGRES_HOST``, ``_PORT``, ``_USER`` and ``_PASSWORD`` say, and
likewise ``ANVIL_TEST_MARIADB_...``; the user must be able to create databases.

A process that a test starts must work in the test's own database. Give it these settings and
``ANVIL_TEST_DB_NAME=connection.settings_dict["NAME"]``: the name is used as it is.
"""

import os
import tempfile
from pathlib import Path
from typing import Any

# No test may reach the real API, whatever the shell it is started from has set.
for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"):
    os.environ.pop(name, None)

SECRET_KEY = "only-for-tests"
DEBUG = False
ALLOWED_HOSTS = ["*"]
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en-us"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "rest_framework",
    "django_q",
    "anvil_django",
    "example_project.shop",
]
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]
ROOT_URLCONF = "tests.urls"
STATIC_URL = "static/"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


def database(kind: str) -> dict[str, Any]:
    given = os.environ.get("ANVIL_TEST_DB_NAME")
    if kind == "sqlite":
        # A file, not memory, so that real processes can share it; one per process, so that two suites
        # that run at the same time do not share it.
        path = given or str(Path(tempfile.gettempdir()) / f"anvil_django_tests_{os.getpid()}.sqlite3")
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": path,
            "OPTIONS": {
                "init_command": "PRAGMA journal_mode=WAL;PRAGMA synchronous=NORMAL;",
                "transaction_mode": "IMMEDIATE",
                "timeout": 20,
            },
            "TEST": {"NAME": path},
        }
    if kind not in ("postgres", "mariadb"):
        raise ValueError(f"ANVIL_TEST_DB is {kind!r}; it must be sqlite, postgres or mariadb.")

    def option(name: str, default: str = "") -> str:
        return os.environ.get(f"ANVIL_TEST_{kind.upper()}_{name}", default)

    server = {
        "NAME": given or "anvil_django",
        "HOST": option("HOST", "127.0.0.1"),
        "PORT": option("PORT"),
        "PASSWORD": option("PASSWORD"),
        "CONN_MAX_AGE": 600,
        "CONN_HEALTH_CHECKS": True,
    }
    if kind == "postgres":
        return server | {
            "ENGINE": "django.db.backends.postgresql",
            "USER": option("USER", "postgres"),
            # As the README has it; and as behind a PgBouncer.
            "OPTIONS": {"prepare_threshold": None if "ANVIL_TEST_PLAIN" in os.environ else 5},
        }
    return server | {
        "ENGINE": "django.db.backends.mysql",
        "USER": option("USER", "root"),
        "OPTIONS": {"charset": "utf8mb4"},
        "TEST": {"CHARSET": "utf8mb4"},
    }


DATABASES = {"default": database(os.environ.get("ANVIL_TEST_DB", "sqlite"))}

# Right for runs of hours; only the poll is shorter than on a site, so that tests wait less.
Q_CLUSTER = {
    "name": "anvil-tests",
    "orm": "default",
    "workers": 2,
    "queue_limit": 1,
    "bulk": 1,
    "timeout": 960,
    "retry": 2000,
    "max_attempts": 3,
    "save_limit": 100,
    "catch_up": False,
    "guard_cycle": 0.5,
    "poll": 0.05,
    "ALT_CLUSTERS": {},
}

ANVIL: dict[str, Any] = {
    "CLIENT": "tests.clients.loopback",
    # PostgreSQL: a save as one statement, or as the transaction of plain ones that it is elsewhere.
    "SAVE_IN_ONE_STATEMENT": "ANVIL_TEST_PLAIN" not in os.environ,
}
