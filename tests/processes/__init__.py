"""Real processes on a real database: what survives when they are killed, stopped or raced.

This package is also an installed app of the processes that the tests start: ``agents.py`` is found in it.
"""
