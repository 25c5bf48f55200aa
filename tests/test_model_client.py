"""The client of a process: made once, when it is needed, and without retries of its own."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from anvil_django.clients import default_client, get_client, reset_clients
from anvil_django.model_errors import ModelCallError
from anvil_django.testing import ScriptedMessagesAPI, fault, say
from tests.model_calls import ask, failure


@pytest.fixture(autouse=True)
def fresh_clients() -> Iterator[None]:
    reset_clients()
    yield
    reset_clients()


def test_the_default_client_leaves_retries_to_the_run(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    settings.ANVIL = {"REQUEST_TIMEOUT": 12.5}
    with default_client() as client:
        assert client.max_retries == 0
        assert client.timeout == anthropic.Timeout(12.5, connect=10)
    assert get_client().max_retries == 0


def test_a_client_of_the_site_makes_no_hidden_retries(settings: Any) -> None:
    with ScriptedMessagesAPI([say("Done.").after(fault.overloaded())]) as api:
        settings.ANVIL = {"CLIENT": lambda: api.client(max_retries=5)}
        with get_client() as client:
            assert failure(client).code == "overloaded"
            assert len(api.requests) == 1
            ask(client)


def test_a_client_without_options_is_used_as_it_is(settings: Any) -> None:
    client = object()
    settings.ANVIL = {"CLIENT": lambda: client}
    assert get_client() is client


def test_threads_share_one_client(settings: Any) -> None:
    made = []

    def slowly() -> object:
        time.sleep(0.05)
        made.append(object())
        return made[-1]

    settings.ANVIL = {"CLIENT": slowly}
    got: list[object] = []
    threads = [threading.Thread(target=lambda: got.append(get_client())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert got == made * 8


def test_new_settings_make_a_new_client(settings: Any) -> None:
    settings.ANVIL = {"CLIENT": object}
    first = get_client()
    assert get_client() is first
    reset_clients()
    second = get_client()
    assert second is not first
    settings.ANVIL = {"CLIENT": object, "REQUEST_TIMEOUT": 1}
    assert get_client() is not second


@pytest.mark.parametrize("client", ["nowhere.to.be.found", lambda: 1 / 0])
def test_a_client_that_cannot_be_made_is_a_matter_of_configuration(settings: Any, client: Any) -> None:
    settings.ANVIL = {"CLIENT": client}
    with pytest.raises(ModelCallError, match="Set ANTHROPIC_API_KEY, or ANVIL") as caught:
        get_client()
    assert caught.value.kind == "config"


def test_a_forked_child_makes_a_client_of_its_own() -> None:
    program = """
import os, threading
from django.conf import settings
settings.configure(ANVIL={"CLIENT": object})
from anvil_django import clients
mine = clients.get_client()
held = clients._lock  # another thread of the parent could hold it at the time of the fork
held.acquire()
pid = os.fork()
if pid == 0:
    os._exit(0 if clients.get_client() is not mine else 1)
held.release()
assert os.waitpid(pid, 0)[1] == 0
assert clients.get_client() is mine
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)


def test_importing_the_module_does_not_load_the_sdk() -> None:
    modules = "anvil_django.clients, anvil_django.model_call"
    program = f"import sys, {modules}; sys.exit('anthropic' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
