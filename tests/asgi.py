"""The ASGI application that tests start in a process of their own; its streams look often."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")

from django.conf import settings
from django.core.asgi import get_asgi_application

settings.ANVIL = {"EVENTS_POLL_SECONDS": 0.05}
application = get_asgi_application()
