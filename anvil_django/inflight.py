"""Runs in flight that the code of this process cannot finish as they were begun: for checks and commands.

The database groups and counts; what is read one by one has a limit, so that asking stays cheap on any site.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import Count, F, Max, QuerySet

from . import exactjson
from .agents import Agent, registered
from .checkpoint import CHECKPOINT_VERSION
from .continuing import LIVE
from .models import AgentVersion, Approval, Run, ToolCall
from .states import ApprovalStatus, CallStatus
from .tools import InvalidToolInput

MOST_FINDINGS = 20
"""Most findings of one kind."""
MOST_CALLS = 1000
"""Most open calls whose arguments are looked at, oldest first."""
MOST_VERSIONS = 100
"""Most agent versions whose tools are looked at, those with the most runs first."""
MOST_TOLD = 200
"""Most characters of what the agent would be told."""
EXAMPLES = 3
"""Most run ids that a finding names."""

Key = tuple[str, str]
"""An agent and a tool."""


@dataclass(frozen=True)
class Finding:
    """Runs in flight with one and the same trouble."""

    code: str
    """A key of ``FIXES``."""
    problem: str
    """A sentence that counts the runs and names some."""
    runs: int
    """How many they are; of ``arguments_unfit``, among the calls that were looked at."""

    @property
    def fix(self) -> str:
        """What to do about it."""
        return FIXES[self.code]


FIXES = {
    "newer_checkpoint": "Upgrade anvil_django here, or let workers of the newer version finish them.",
    "unknown_agent": "Register the agent again, under the same name, until they have ended; or cancel them. "
    "Otherwise workers offer each to others for some minutes and then pause it.",
    "tool_gone": "Give the tool back to the agent, in retired=[...] and under its old name, until they have "
    "ended. Otherwise the agent is told that the tool was not found, or, where the call had begun, that its "
    "outcome is unknown.",
    "arguments_unfit": "Let the tool take the old arguments too, until they have ended. Otherwise the call "
    "is not run, and the agent is told why.",
    "tool_offered": "Keep the tool in retired=[...] of the agent, under its old name, until they have ended. "
    "Otherwise the agent is told that the tool was not found when it calls it.",
}
"""What to do, by the code of a finding; the gravest first."""


def find() -> Iterator[Finding]:
    """What stands against finishing the runs that have not ended, the gravest first.

    Raises:
        DatabaseError: The tables are not there, or not those of this version.
    """
    agents = registered()
    open_calls = _count_open_calls()
    yield from _newer()
    yield from _without_agent(agents)
    yield from _without_tool(agents, open_calls)
    yield from _unfit(agents)
    yield from _offered(agents, told=open_calls)


def _newer() -> Iterator[Finding]:
    runs = Run.objects.unfinished().filter(checkpoint_version__gt=CHECKPOINT_VERSION)
    found = runs.aggregate(count=Count("pk"), version=Max("checkpoint_version"))
    if count := found["count"]:
        yield Finding(
            "newer_checkpoint",
            f"{_subject(count)} saved by a newer anvil_django, up to checkpoint version {found['version']}. "
            f"This one reads up to version {CHECKPOINT_VERSION} and leaves them alone. {_named(runs)}",
            count,
        )


def _without_agent(agents: Mapping[str, Agent]) -> Iterator[Finding]:
    runs = Run.objects.unfinished().readable().exclude(agent__in=list(agents))
    groups = runs.order_by("agent").values_list("agent").annotate(count=Count("pk"))
    for name, count in list(groups[:MOST_FINDINGS]):
        yield Finding(
            "unknown_agent",
            f"{_subject(count, 'of')} the agent {name!r}, which is not registered. "
            f"{_named(runs.filter(agent=name))}",
            count,
        )


def _open_calls() -> QuerySet[ToolCall]:
    calls = ToolCall.objects.filter(
        run__status__in=[str(status) for status in LIVE], run__checkpoint_version__lte=CHECKPOINT_VERSION
    )
    return calls.exclude(status=str(CallStatus.DONE)).exclude(effect="limit")


def _count_open_calls() -> dict[Key, int]:
    """In how many runs each tool has open calls. Few tools: a call of an unknown one is never open."""
    groups = _open_calls().order_by().values_list("run__agent", "name")
    counted = groups.annotate(count=Count("run", distinct=True)).order_by("run__agent", "name")
    return {(agent, tool): count for agent, tool, count in counted}


def _without_tool(agents: Mapping[str, Agent], open_calls: Mapping[Key, int]) -> Iterator[Finding]:
    gone = [(key, count) for key, count in open_calls.items() if _is_gone(agents, key)]
    for (agent, tool), count in gone[:MOST_FINDINGS]:
        calls = _open_calls().filter(run__agent=agent, name=tool)
        yield Finding(
            "tool_gone",
            f"{_subject(count, 'with')} an open call of the tool {tool!r}, which the agent {agent!r} no "
            f"longer has. {_named(Run.objects.filter(pk__in=calls.values('run')))}",
            count,
        )


def _unfit(agents: Mapping[str, Agent]) -> Iterator[Finding]:
    """Open calls with arguments, the model's or a reviewer's, that their tools no longer take."""
    rows = _open_calls().filter(run__agent__in=list(agents)).order_by("pk")
    calls = list(rows.values_list("pk", "run__run_id", "run__agent", "name", "input")[:MOST_CALLS])
    edited = _edited([pk for pk, *_ in calls])
    unfit: dict[Key, dict[str, str]] = defaultdict(dict)
    for pk, run_id, agent, name, text in calls:
        tool = agents[agent].callable_tools.get(name)
        if tool is None:
            continue  # Told already.
        try:
            tool.validate(exactjson.loads(edited.get(pk, text)))
        except InvalidToolInput as exc:
            unfit[agent, name].setdefault(run_id, exc.message)
    for (agent, name), runs in sorted(unfit.items())[:MOST_FINDINGS]:
        first = next(iter(runs.values()))
        yield Finding(
            "arguments_unfit",
            f"{_subject(len(runs), 'with')} an open call whose arguments the tool {name!r} of the agent "
            f"{agent!r} no longer takes. {_listed(runs)} The first would be told: {_shortened(first)}",
            len(runs),
        )


def _edited(calls: list[int]) -> dict[int, str]:
    """The arguments in force of the calls whose reviewers changed them, as exact JSON text."""
    standing = (str(ApprovalStatus.PENDING), str(ApprovalStatus.APPROVED))
    rows = Approval.objects.filter(status__in=standing).exclude(proposal="").order_by("pk")
    found: dict[int, str] = {}
    for start in range(0, len(calls), 500):  # SQLite takes no more parameters than about a thousand.
        some = rows.filter(call__in=calls[start : start + 500])
        found.update(some.values_list("call_id", "proposal"))
    return found


def _offered(agents: Mapping[str, Agent], told: Iterable[Key]) -> Iterator[Finding]:
    """Tools that the frozen prefixes of unfinished runs still offer to the model."""
    runs = Run.objects.unfinished().readable().filter(agent__in=list(agents))
    groups = runs.order_by().values_list("version").annotate(count=Count("pk")).order_by("-count", "version")
    counts = dict(groups[:MOST_VERSIONS])
    offered: Counter[Key] = Counter()
    versions: dict[Key, list[int]] = defaultdict(list)
    for version in AgentVersion.objects.filter(pk__in=list(counts)):
        for tool in _callable(exactjson.loads(version.prefix)):
            if _is_gone(agents, key := (version.agent, tool)) and key not in told:
                offered[key] += counts[version.pk]
                versions[key].append(version.pk)
    for (agent, tool), count in sorted(offered.items())[:MOST_FINDINGS]:
        yield Finding(
            "tool_offered",
            f"{_subject(count)} begun with the tool {tool!r}, which the agent {agent!r} no longer has. "
            f"{_named(runs.filter(version__in=versions[agent, tool]))}",
            count,
        )


def _callable(prefix: Mapping[str, Any]) -> list[str]:
    """The names of the offered tools that run here, and not at the API."""
    return [tool["name"] for tool in prefix["tools"] if tool.get("type", "custom") == "custom"]


def _is_gone(agents: Mapping[str, Agent], key: Key) -> bool:
    agent, tool = key
    return agent in agents and tool not in agents[agent].callable_tools


# In words.


def _subject(count: int, verb: str = "") -> str:
    runs, be = ("unfinished run", "was") if count == 1 else ("unfinished runs", "were")
    return f"{count} {runs} {verb or be}"


def _named(runs: QuerySet[Run]) -> str:
    # Not simply by the key: for a few rows the database might look for them from the oldest run on.
    oldest = runs.order_by(F("pk") + 0)
    return _listed(oldest.values_list("run_id", flat=True)[: EXAMPLES + 1])


def _listed(run_ids: Iterable[str]) -> str:
    """The first few of them, as a sentence of its own."""
    names = list(run_ids)
    shown = ", ".join(names[:EXAMPLES])
    return f"{'Run' if len(names) == 1 else 'Runs'}: {shown}{', ...' if len(names) > EXAMPLES else '.'}"


def _shortened(text: str) -> str:
    """On one line; some of it may be the model's."""
    line = " ".join(text.split())
    return line if len(line) <= MOST_TOLD else f"{line[:MOST_TOLD]}..."
