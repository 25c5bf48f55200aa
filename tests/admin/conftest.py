"""An agent whose calls wait for people, and the people."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from django.test import Client

from anvil_django import Agent, register, runs, start_run, tasks
from anvil_django.agents import unregister
from anvil_django.clock import FixedClock, set_clock
from anvil_django.models import Approval
from anvil_django.testing import ScriptedMessagesAPI, say, thinking, tool_call

from .dashboards import NOW
from .teller import TOOLS, Ask, Died, done, logged_in, person


@pytest.fixture(autouse=True)
def agent() -> Iterator[Agent]:
    done.clear()
    yield register(Agent(name="teller", model="claude-sonnet-5-5", system="Be good.", tools=TOOLS))
    unregister("teller")


@pytest.fixture
def rita() -> Any:
    return person("rita", "decide_approval", "view_approval", "view_run")


@pytest.fixture
def operator() -> Any:
    return person("olga", "control_run", "view_run")


@pytest.fixture
def ask(messages_api: ScriptedMessagesAPI) -> Ask:
    """Start a run that calls one tool and advance it until a person is asked."""

    numbers = count(1)

    def case(account: str = "DE-1", amount: int = 50, *, name: str = "wire", **options: Any) -> Approval:
        run_id = options.pop("run_id", f"run-{next(numbers)}")
        text = f"{options.pop('text', 'Please pay the bill.')} [{run_id}]"
        arguments = {"to": account} if name in {"gift", "mail"} else {"account": account, "amount": amount}
        messages_api.script(say(thinking("hm"), "I will.", tool_call(name, arguments)), match=f"[{run_id}]")
        run = start_run("teller", text, run_id=run_id, **options)
        try:
            tasks.advance(run_id)
        except Died:
            assert len(list(runs.recover(run_id=run_id))) == 1
            tasks.advance(run_id)
        return Approval.objects.get(run=run)

    return case


@pytest.fixture
def noon() -> Iterator[None]:
    """The time that the tests of the dashboard count from."""
    before = set_clock(FixedClock(NOW))
    yield
    set_clock(before)


@pytest.fixture
def vera() -> Client:
    """Somebody who may see all runs."""
    return logged_in(person("vera", "view_run"))
