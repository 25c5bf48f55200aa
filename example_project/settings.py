"""Settings of the example: a small shop whose support agent looks orders up, refunds and writes e-mails.

Good for trying things on one machine. A real site keeps SECRET_KEY secret, turns DEBUG off and names its
ALLOWED_HOSTS; what is said about Q_CLUSTER and SQLite below holds for it too.
"""

import os
from pathlib import Path
from typing import Any

BASE_DIR = Path(__file__).resolve().parent

SECRET_KEY = os.environ.get("SECRET_KEY", "the-demo-has-no-secrets-do-not-use-this-key-on-a-site")
DEBUG = True
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "[::1]", "testserver"]
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
ROOT_URLCONF = "example_project.urls"
WSGI_APPLICATION = "example_project.wsgi.application"
STATIC_URL = "static/"

# SQLite serves a site and its workers together only like this: readers do not block the writer (WAL), and
# a transaction takes its write lock when it begins instead of failing in the middle (IMMEDIATE).
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("EXAMPLE_DB", str(BASE_DIR / "db.sqlite3")),
        "OPTIONS": {
            "init_command": "PRAGMA journal_mode=WAL;PRAGMA synchronous=NORMAL;",
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
        },
    },
}

Q_CLUSTER = {
    "name": "example",  # the same in every process: the queue's signing salt
    "orm": "default",  # the database that holds the runs: handing a run over is part of its transaction
    "workers": 2,
    "queue_limit": 1,  # a worker takes what it can start at once and leaves the rest to others
    "bulk": 1,
    "timeout": 960,  # longer than the longest slice
    "retry": 2000,  # longer than timeout plus the time spent waiting for a free worker
    "max_attempts": 3,
    "save_limit": 100,
    "catch_up": False,
    "guard_cycle": 0.5,
    "poll": 0.05,  # a site is fine with the default, 0.2; the demo likes to be quick
    "ALT_CLUSTERS": {},
}

ANVIL: dict[str, Any] = {}
