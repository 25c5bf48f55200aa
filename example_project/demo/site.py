"""The example as real processes: a model, a cluster of workers, and the site."""

import json
import os
from dataclasses import dataclass
from typing import Any
from urllib.request import ProxyHandler, build_opener

from django.core.management import call_command

from example_project.shop.seed import seed

from .browser import Browser
from .processes import Processes, free_port


@dataclass
class Site:
    processes: Processes
    url: str
    model_url: str | None
    """The scripted model's; None with the real API."""

    def browser(self) -> Browser:
        return Browser(self.url)

    def model_report(self) -> dict[str, Any]:
        """What the scripted model has seen and answered."""
        with build_opener(ProxyHandler({})).open(f"{self.model_url}/_script/report", timeout=10) as answer:
            report: dict[str, Any] = json.load(answer)
            return report


def prepare() -> None:
    """Tables, orders and people."""
    call_command("migrate", verbosity=0)
    seed(say=lambda line: None)


def start(processes: Processes, script: str) -> Site:
    """Start everything; the model is scripted unless a key for the real one is set."""
    environment, model_url = {}, None
    if not os.environ.get("ANTHROPIC_API_KEY"):
        model = processes.python("model", "-m", "anvil_django.testing.server", script, "--forks")
        model_url = processes.wait_for("The start of the scripted model", model.first_line, seconds=20)
        environment = {"ANTHROPIC_BASE_URL": model_url, "ANTHROPIC_API_KEY": "scripted"}
    processes.python("workers", "manage.py", "qcluster", **environment)
    address = f"127.0.0.1:{free_port()}"
    processes.python("site", "manage.py", "runserver", "--noreload", address)
    site = Site(processes, f"http://{address}/", model_url)

    def answers() -> bool:
        try:
            return site.browser().get("admin/login/").status == 200
        except OSError:
            return False

    processes.wait_for("The start of the site", answers, seconds=30, every=0.1)
    return site
