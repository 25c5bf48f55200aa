"""``Agent`` and the registry: which agents this site has, found in every installed app's ``agents.py``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any

from . import credentials, exactjson
from .conf import get_settings
from .cost import is_priced
from .errors import AgentDefinitionError, AgentNotAllowedError, UnknownAgentError
from .limits import Limits
from .tools import ServerTool, Tool, adapt

RESERVED_PARAMS = frozenset({"model", "max_tokens", "messages", "system", "tools", "stream", "cache_control"})


@dataclass(frozen=True, kw_only=True)
class Agent:
    """A named agent: model, system prompt, tools and limits.

    Args:
        name: Unique name; stored with every run.
        model: Model id, as the Messages API takes it.
        system: System prompt: a string or a list of text blocks.
        tools: Functions made with ``@tool``, the SDK's ``@beta_tool`` objects, or server-tool dicts.
        retired: Tools that new runs are no longer offered. Runs that began with them can still call them, by
            the name they had, until the last such run has ended.
        description: One sentence for people who may start it.
        max_tokens: Most tokens of one answer.
        max_iterations: Most model calls over the whole life of a run.
        max_cost_usd: Most money over the whole life of a run; needs a model with a known price.
        max_tokens_total: Most tokens (input, cached and output) over the whole life of a run.
        max_seconds: Most time a run may spend advancing; waiting for people or for a worker does not count.
        max_pauses: Most ``pause_turn`` answers in a row.
        on_limit: What happens at a limit: ``"stop"`` ends the run, ``"ask"`` asks a person for more.
        cache: Prompt caching: ``"5m"``, ``"1h"`` or None for none.
        permission: What people need beside ``anvil_django.add_run`` to start it over the REST API, as
            ``"app_label.codename"``. Code that calls ``start_run`` decides for itself.
        params: Further request parameters (``thinking``, ``output_config``, ``betas``, ...).

    Raises:
        AgentDefinitionError: The definition cannot work; the message says what to change.
    """

    name: str
    model: str
    system: str | Sequence[Mapping[str, Any]] = ""
    tools: Sequence[Any] = ()
    retired: Sequence[Any] = ()
    description: str = ""
    max_tokens: int = 16_000
    max_iterations: int = 50
    max_cost_usd: Decimal | None = None
    max_tokens_total: int | None = None
    max_seconds: float | None = None
    max_pauses: int = 10
    on_limit: str = "stop"
    cache: str | None = "5m"
    permission: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.name or len(self.name) > 100 or not self.name.isprintable():
            raise AgentDefinitionError("An agent needs a name of 1 to 100 printable characters.")
        if not self.model:
            raise AgentDefinitionError(f"Agent {self.name!r} needs a model.")
        if self.max_tokens < 1:
            raise AgentDefinitionError(f"Agent {self.name!r}: max_tokens must be at least 1.")
        if self.cache not in {None, "5m", "1h"}:
            raise AgentDefinitionError(f'Agent {self.name!r}: cache must be "5m", "1h" or None.')
        if self.permission is not None and not _is_permission(self.permission):
            raise AgentDefinitionError(
                f'Agent {self.name!r}: permission must be "app_label.codename", not {self.permission!r}.'
            )
        if taken := RESERVED_PARAMS & set(self.params):
            raise AgentDefinitionError(
                f"Agent {self.name!r}: params may not contain {', '.join(sorted(taken))}; "
                "give them as the agent's own fields."
            )
        if where := credentials.carried_by(self.params):
            raise AgentDefinitionError(
                f"Agent {self.name!r}: params.{where} is a credential, and params are stored with every run. "
                "Give it to the client that ANVIL['CLIENT'] makes."
            )
        self.limits.check(self.name)
        names = [t.name for t in self._adapted() if isinstance(t, Tool)]
        if doubled := sorted({n for n in names if names.count(n) > 1}):
            raise AgentDefinitionError(f"Agent {self.name!r} has two tools named {', '.join(doubled)}.")

    @property
    def limits(self) -> Limits:
        """The limits that a new run of this agent gets."""
        return Limits(
            max_iterations=self.max_iterations,
            max_cost_usd=self.max_cost_usd,
            max_tokens_total=self.max_tokens_total,
            max_seconds=self.max_seconds,
            max_pauses=self.max_pauses,
            on_limit=self.on_limit,
        )

    @cached_property
    def callable_tools(self) -> dict[str, Tool]:
        """The tools this process can run, by name."""
        return {t.name: t for t in self._adapted() if isinstance(t, Tool)}

    def _adapted(self) -> Iterator[Tool | ServerTool]:
        return map(adapt, (*self.tools, *self.retired))

    def cost_so_far(self) -> Decimal | None:
        """What a new run has cost: nothing, or None when a cost limit is set and the price is not known.

        A run whose cost cannot be known stops before its first call, not after it.
        """
        if self.max_cost_usd is None or is_priced(self.model, get_settings().prices):
            return Decimal(0)
        return None

    @cached_property
    def prefix(self) -> dict[str, Any]:
        """The request prefix that a new run freezes, as it reads back from storage."""
        system = self.system
        blocks = [{"type": "text", "text": system}] if isinstance(system, str) else [dict(b) for b in system]
        if isinstance(system, str) and not system.strip():
            blocks = []
        prefix = {
            "model": self.model,
            "max_tokens": self.max_tokens,
            "system": blocks,
            "tools": [adapt(t).definition() for t in self.tools],
            "params": dict(self.params),
            "cache": self.cache,
        }
        frozen: dict[str, Any] = exactjson.loads(exactjson.dumps(exactjson.clean(prefix)))
        return frozen


def _is_permission(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"\w+\.\w+", value) is not None


_registry: dict[str, Agent] = {}


def register(agent: Agent) -> Agent:
    """Make ``agent`` known to this process under its name; returns it.

    Raises:
        AgentDefinitionError: Another agent already has that name.
    """
    if not isinstance(agent, Agent):
        raise AgentDefinitionError(f"register() takes an Agent, not {type(agent).__name__}.")
    if _registry.get(agent.name, agent) is not agent:
        raise AgentDefinitionError(
            f"Two agents are named {agent.name!r}. Names are stored with every run, so each must be unique."
        )
    _registry[agent.name] = agent
    return agent


def unregister(name: str) -> None:
    """Forget the agent of that name; nothing happens if there is none."""
    _registry.pop(name, None)


def registered() -> dict[str, Agent]:
    """All registered agents by name."""
    return dict(_registry)


def get_agent(agent: str | Agent) -> Agent:
    """The agent of that name; an ``Agent`` is returned as it is.

    Raises:
        UnknownAgentError: Nothing is registered under the name.
    """
    if isinstance(agent, Agent):
        return agent
    try:
        return _registry[agent]
    except (KeyError, TypeError):
        raise UnknownAgentError(str(agent), list(_registry)) from None


# Who may start what: asked by whatever acts for a person who is not trusted with Python.

START_PERMISSION = "anvil_django.add_run"


def may_start(user: Any, agent: Agent) -> bool:
    """Whether a person may start runs of an agent: by ``add_run``, and by the agent's own permission."""
    return not _missing(user, agent)


def startable(user: Any) -> list[Agent]:
    """The agents that a person may start, by name."""
    return [agent for _, agent in sorted(_registry.items()) if may_start(user, agent)]


def get_startable(user: Any, name: str) -> Agent:
    """The agent of that name, for a person who wants to start it.

    Raises:
        UnknownAgentError: Nothing is registered under the name.
        AgentNotAllowedError: The person lacks a permission.
    """
    agent = _registry.get(name)
    if agent is None:
        # Names of agents that are kept from this person are none of their business.
        raise UnknownAgentError(name, [known.name for known in startable(user)])
    if missing := _missing(user, agent):
        raise AgentNotAllowedError(name, missing)
    return agent


def _missing(user: Any, agent: Agent) -> str:
    needed = [START_PERMISSION, *([agent.permission] if agent.permission else [])]
    return next((permission for permission in needed if not user.has_perm(permission)), "")
