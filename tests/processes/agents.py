"""Found by autodiscovery in the processes that the tests start."""

import sys

from anvil_django import register

from .crew import AGENT

if "qcluster" in sys.argv:
    # Before the workers are forked, so that none of them takes the time for it again.
    import anthropic.resources.messages  # noqa: F401

register(AGENT)
