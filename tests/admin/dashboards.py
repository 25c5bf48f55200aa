"""The dashboard as a client sees it: its address, its numbers at a glance, and its tables as files."""

from __future__ import annotations

import csv
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

from django.test import Client

DASHBOARD = "/admin/anvil_django/run/dashboard/"
NOW = datetime(2026, 3, 10, 12, 30, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def tiles(page: Any) -> dict[str, str]:
    """The numbers at a glance, each with what is said about it."""
    shown = page.context["page"]
    found = {str(tile.label): f"{tile.value} {tile.about}".strip() for tile in [*shown.now, *shown.totals]}
    return {label: text.replace("\N{NO-BREAK SPACE}", " ") for label, text in found.items()}


def rows(client: Client, table: str, query: str = "") -> list[list[str]]:
    """The lines of a downloaded table, without its heading."""
    return downloaded(client, table, query)[1:]


def downloaded(client: Client, table: str, query: str = "") -> list[list[str]]:
    response = client.get(f"{DASHBOARD}{table}.csv?{query}")
    assert response.status_code == 200
    return list(csv.reader(StringIO(b"".join(response).decode())))
