"""Found by autodiscovery in the processes that the tests start."""

from anvil_django import register

from .crew import AGENT

register(AGENT)
