"""A site whose people have a UUID as key and sign in with an e-mail address; there is no ``username``."""

import os
from typing import Any

from tests.settings import *  # noqa: F403
from tests.settings import DATABASES, INSTALLED_APPS

AUTH_USER_MODEL = "custom_user.Person"
INSTALLED_APPS = [*INSTALLED_APPS, "tests.custom_user"]

# These tests run inside the others, so on a server they need a database of their own.
if "sqlite" not in DATABASES["default"]["ENGINE"]:
    default: dict[str, Any] = DATABASES["default"]
    own = {"NAME": f"anvil_custom_user_{os.getpid()}"}
    DATABASES = {"default": {**default, "TEST": {**default.get("TEST", {}), **own}}}
