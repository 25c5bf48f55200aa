"""Durable Claude agents as ordinary Django.

Importing this package touches neither the ORM nor the app registry, so agents and tools may be defined
at module level; each public name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .agents import Agent, register
    from .checkpoint import AgentCheckpoint, AgentResult, Checkpointer, Decision
    from .drive import list_runs, resume_agent, run_agent, start_run, stream_agent
    from .errors import ApprovalRequiredError
    from .tools import ToolContext, tool

__version__ = "0.1.0.dev0"

_HOMES = {
    "Agent": "agents",
    "AgentCheckpoint": "checkpoint",
    "AgentResult": "checkpoint",
    "ApprovalRequiredError": "errors",
    "Checkpointer": "checkpoint",
    "Decision": "checkpoint",
    "ToolContext": "tools",
    "list_runs": "drive",
    "register": "agents",
    "resume_agent": "drive",
    "run_agent": "drive",
    "start_run": "drive",
    "stream_agent": "drive",
    "tool": "tools",
}

__all__ = [
    "Agent",
    "AgentCheckpoint",
    "AgentResult",
    "ApprovalRequiredError",
    "Checkpointer",
    "Decision",
    "ToolContext",
    "list_runs",
    "register",
    "resume_agent",
    "run_agent",
    "start_run",
    "stream_agent",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f".{_HOMES[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
