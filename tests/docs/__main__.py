"""``python -m tests.docs``: write anew what in the documentation comes from the code."""

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.settings")
django.setup()

from . import generated  # noqa: E402 (it reads the code, which needs the app registry)

for path, text in generated.pages().items():
    path.write_text(text)
