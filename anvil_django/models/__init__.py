"""The tables: agent versions, runs, messages, tool calls, slices, approvals, decisions, worker clusters."""

from .agent_version import AgentVersion
from .approval import Approval, Decision
from .cluster import Cluster
from .message import Message
from .run import Run
from .slice import Slice
from .steering import Steering
from .tool_call import ToolCall

__all__ = [
    "AgentVersion",
    "Approval",
    "Cluster",
    "Decision",
    "Message",
    "Run",
    "Slice",
    "Steering",
    "ToolCall",
]
