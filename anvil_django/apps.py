"""The app: agents are discovered and signal handlers connected; no database is touched."""

import os

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class AnvilConfig(AppConfig):
    """``anvil_django`` in ``INSTALLED_APPS``."""

    name = "anvil_django"
    label = "anvil_django"
    verbose_name = _("Agents")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from django.utils.module_loading import autodiscover_modules

        from . import checks, notifications, queue, telemetry  # noqa: F401 (checks register themselves)

        autodiscover_modules("agents")
        queue.connect(self)
        notifications.connect()
        telemetry.connect()
        if "ANVIL_KILL_AT" in os.environ:
            _arm_kill_points()


def _arm_kill_points() -> None:
    # Nothing of ``testing`` is imported in a process that is not to be killed on purpose.
    from django.conf import settings

    from .conf import get_settings
    from .testing.killpoints import arm

    arm(os.environ, allowed=settings.DEBUG or get_settings().kill_points)
