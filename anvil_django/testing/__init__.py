"""The public test kit: a scripted Messages API over real HTTP, and the rules it holds a client to.

    from anvil_django.testing import ScriptedMessagesAPI, fault, say, tool_call

    with ScriptedMessagesAPI([
        say(tool_call("lookup_order", {"number": "A-1"})),
        say("Your order has shipped.").after(fault.overloaded()),
    ]) as api:
        client = api.client()
        ...

Leaving the ``with`` block raises ``AssertionError`` when a request broke a rule of the API, when a request
came that the script has no turn for, or when a turn was never served.

Names are loaded on first use, so that importing this package touches neither Django nor the SDK.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anvil_django.testing import fault as fault
    from anvil_django.testing.clocks import fixed_clock as fixed_clock
    from anvil_django.testing.conformance import StoreConformance as StoreConformance
    from anvil_django.testing.conversations import HistoryRules as HistoryRules
    from anvil_django.testing.crashes import CrashReport as CrashReport
    from anvil_django.testing.crashes import Scenario as Scenario
    from anvil_django.testing.crashes import crash_everywhere as crash_everywhere
    from anvil_django.testing.fault import Fault as Fault
    from anvil_django.testing.history_rules import violations as violations
    from anvil_django.testing.killpoints import Kill as Kill
    from anvil_django.testing.killpoints import kill_at as kill_at
    from anvil_django.testing.scripts import Request as Request
    from anvil_django.testing.server import Billed as Billed
    from anvil_django.testing.server import ScriptedMessagesAPI as ScriptedMessagesAPI
    from anvil_django.testing.turns import Turn as Turn
    from anvil_django.testing.turns import pause as pause
    from anvil_django.testing.turns import redacted_thinking as redacted_thinking
    from anvil_django.testing.turns import refusal as refusal
    from anvil_django.testing.turns import say as say
    from anvil_django.testing.turns import server_tool_call as server_tool_call
    from anvil_django.testing.turns import text as text
    from anvil_django.testing.turns import thinking as thinking
    from anvil_django.testing.turns import tool_call as tool_call
    from anvil_django.testing.turns import truncated as truncated

_HOMES = {
    "Billed": "server",
    "CrashReport": "crashes",
    "Fault": "fault",
    "HistoryRules": "conversations",
    "Kill": "killpoints",
    "Request": "scripts",
    "Scenario": "crashes",
    "ScriptedMessagesAPI": "server",
    "StoreConformance": "conformance",
    "Turn": "turns",
    "crash_everywhere": "crashes",
    "fixed_clock": "clocks",
    "kill_at": "killpoints",
    "pause": "turns",
    "redacted_thinking": "turns",
    "refusal": "turns",
    "say": "turns",
    "server_tool_call": "turns",
    "text": "turns",
    "thinking": "turns",
    "tool_call": "turns",
    "truncated": "turns",
    "violations": "history_rules",
}

__all__ = [
    "Billed",
    "CrashReport",
    "Fault",
    "HistoryRules",
    "Kill",
    "Request",
    "Scenario",
    "ScriptedMessagesAPI",
    "StoreConformance",
    "Turn",
    "crash_everywhere",
    "fault",
    "fixed_clock",
    "kill_at",
    "pause",
    "redacted_thinking",
    "refusal",
    "say",
    "server_tool_call",
    "text",
    "thinking",
    "tool_call",
    "truncated",
    "violations",
]


def __getattr__(name: str) -> Any:
    if name == "fault":
        return importlib.import_module(f"{__name__}.fault")
    if name in _HOMES:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
