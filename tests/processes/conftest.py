from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anvil_django import register
from anvil_django.agents import unregister
from anvil_django.testing import ScriptedMessagesAPI

from .cluster import Site


@pytest.fixture
def site(
    transactional_db: None, tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Site]:
    """The test's own corner; every process in it is killed before the database is emptied."""
    from .crew import AGENT, client

    api = ScriptedMessagesAPI().start()
    monkeypatch.setenv("ANVIL_TEST_API_URL", api.url)
    monkeypatch.setenv("ANVIL_TEST_WORKSPACE", str(tmp_path))
    # One client for what the test itself advances, so that it can be closed.
    mine = client()
    settings.ANVIL = {"CLIENT": lambda: mine}
    register(AGENT)
    corner = Site(tmp_path, api)
    try:
        yield corner
    finally:
        corner.kill_all()
        unregister(AGENT.name)
        mine.close()
        api.stop()
    problems = api.problems(unconsumed=False)
    assert not problems, problems
