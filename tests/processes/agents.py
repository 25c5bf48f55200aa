"""Found by autodiscovery in the processes that the tests start."""

# The workers are forked from a process that has loaded it, so that no worker takes the time again.
import anthropic.resources.messages  # noqa: F401

from anvil_django import register

from .crew import AGENT

register(AGENT)
