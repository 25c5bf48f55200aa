"""``ANVIL`` itself, and the few settings of the site that everything relies on."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, Tags, register
from django.utils.module_loading import import_string

from ..clients import default_client
from ..conf import get_settings, problems
from .asking import has_settings

DEFAULT_CLIENT = f"{default_client.__module__}.{default_client.__qualname__}"


@register(Tags.compatibility)
def check_settings(**kwargs: Any) -> list[CheckMessage]:
    """``ANVIL`` has only known keys with values of the right type."""
    hint = "The keys, their units and defaults stand in anvil_django.conf.Settings and in the docs."
    return [
        Error(sentence, hint=hint, id="anvil_django.E001")
        for sentence in problems(getattr(settings, "ANVIL", {}))
    ]


@register(Tags.compatibility)
def check_time_zones(**kwargs: Any) -> list[CheckMessage]:
    """Leases compare times, which needs aware ones."""
    if settings.USE_TZ:
        return []
    return [
        Error(
            "USE_TZ is False: leases would be wrong for an hour at each change of the clocks.",
            hint="Set USE_TZ = True.",
            id="anvil_django.E006",
        )
    ]


@register(Tags.compatibility)
def check_functions(**kwargs: Any) -> list[CheckMessage]:
    """The functions that ``ANVIL`` names can be called."""
    if not has_settings():
        return []
    found: list[CheckMessage] = []
    redact, client = get_settings().redact, get_settings().client
    if why := _why_not_callable(redact):
        found.append(
            Error(
                f"ANVIL['REDACT'] is {redact!r}, which {why}: nothing that it might hide could be shown.",
                hint="Name a function (tool, path, value) that answers with the value or a text to show "
                "instead.",
                id="anvil_django.E007",
            )
        )
    if why := _why_not_callable(client):
        found.append(
            Error(
                f"ANVIL['CLIENT'] is {client!r}, which {why}: no worker could call the model.",
                hint="Name a function without arguments that makes the client, or leave the key out.",
                id="anvil_django.E009",
            )
        )
    return found


def _why_not_callable(path: Any) -> str:
    if not isinstance(path, str):
        return ""  # A function, or names: of the right type, says the check of the settings.
    try:
        return "" if callable(import_string(path)) else "is no function"
    except ImportError as exc:
        return f"cannot be imported ({exc})"


@register(Tags.compatibility)
def check_telemetry(**kwargs: Any) -> list[CheckMessage]:
    """What is to be told can be told."""
    if not has_settings() or not get_settings().telemetry or find_spec("opentelemetry"):
        return []
    return [
        Error(
            "ANVIL['TELEMETRY'] is on, and OpenTelemetry is not installed: nothing is told.",
            hint="Install anvil-django[otel] and an SDK with an exporter, or take the key out.",
            id="anvil_django.E013",
        )
    ]


@register(Tags.compatibility)
def check_heartbeat(**kwargs: Any) -> list[CheckMessage]:
    """A worker may miss a renewal of its lease and keep its run."""
    if not has_settings():
        return []
    lease, heartbeat = get_settings().lease_seconds, get_settings().heartbeat_seconds
    if lease > 2 * heartbeat:
        return []
    return [
        Error(
            f"ANVIL['LEASE_SECONDS'] is {lease:g} and ANVIL['HEARTBEAT_SECONDS'] is {heartbeat:g}: a worker "
            "whose renewal is late once loses its run, and its step is done again.",
            hint=f"Set LEASE_SECONDS to more than twice HEARTBEAT_SECONDS: {6 * heartbeat:g} or longer.",
            id="anvil_django.E008",
        )
    ]


@register(Tags.security, deploy=True)
def check_credentials(**kwargs: Any) -> list[CheckMessage]:
    """The SDK finds something to authenticate with, where the site makes no client of its own."""
    if not has_settings() or get_settings().client not in {DEFAULT_CLIENT, default_client}:
        return []
    try:
        client = default_client()
    except Exception as exc:  # noqa: BLE001 (whatever the SDK makes of a profile or a file)
        why = f"the SDK cannot make a client ({type(exc).__name__})"
    else:
        if client.api_key or client.auth_token or client.credentials:
            return []
        why = "this process has no credentials for the Messages API"
    return [
        checks.Warning(
            f"ANVIL['CLIENT'] is not set and {why}: workers with this environment cannot call the model.",
            hint="Set ANTHROPIC_API_KEY in the environment of the workers, or name a function that makes the "
            "client in ANVIL['CLIENT']. Other processes need none.",
            id="anvil_django.W006",
        )
    ]


@register(Tags.compatibility)
def check_notifications(**kwargs: Any) -> list[CheckMessage]:
    """E-mails to reviewers lead somewhere."""
    if not has_settings():
        return []
    found = get_settings()
    if not found.notify_reviewers or found.base_url:
        return []
    return [
        checks.Warning(
            "ANVIL['NOTIFY_REVIEWERS'] is on without ANVIL['BASE_URL']: its e-mails lead to no case.",
            hint='Set ANVIL["BASE_URL"] to the scheme and host of the admin, such as "https://example.com".',
            id="anvil_django.W002",
        )
    ]
