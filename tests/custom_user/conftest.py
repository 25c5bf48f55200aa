from django.conf import settings

# Collected only under the settings next to it: tests/test_custom_user.py sees to that.
collect_ignore_glob = [] if settings.AUTH_USER_MODEL == "custom_user.Person" else ["test_*.py"]
