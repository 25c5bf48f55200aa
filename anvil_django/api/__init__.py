"""The REST API, thin over ``runs.py`` and ``approvals.py``; include ``anvil_django.api.urls``."""
