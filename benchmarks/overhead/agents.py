"""The agent that is measured; found as in any app."""

from __future__ import annotations

from anvil_django import Agent, register, tool

from . import workload
from .contestants.scripted import MODEL


@tool
def lookup(seq: int, size: int = 1024) -> str:
    """Look something up."""
    return workload.perform(seq, size)


@tool(side_effect=True)
def post(seq: int, size: int = 1024) -> str:
    """Change something outside."""
    return workload.perform(seq, size)


@tool(side_effect=True, atomic=True)
def book(seq: int, size: int = 1024) -> str:
    """Change something in the site's own database."""
    from .models import Booking

    Booking.objects.create(seq=seq)
    return workload.perform(seq, size)


@tool(side_effect=True, requires_approval=True)
def ask(seq: int, size: int = 1024) -> str:
    """Do what a person must agree to."""
    return workload.perform(seq, size)


AGENT = register(
    Agent(
        name="bench",
        model=MODEL,
        system="Work.",
        tools=[lookup, post, book, ask],
        max_iterations=10**6,
    )
)
