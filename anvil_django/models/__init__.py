"""The tables: agent versions, runs, messages, tool calls, approvals and decisions, clusters of workers."""

from .agent_version import AgentVersion
from .approval import Approval, Decision
from .cluster import Cluster
from .message import Message
from .run import Run
from .steering import Steering
from .tool_call import ToolCall

__all__ = ["AgentVersion", "Approval", "Cluster", "Decision", "Message", "Run", "Steering", "ToolCall"]
