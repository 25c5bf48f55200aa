"""Leave the example running, to click through."""

import logging
import time

from django.contrib.auth import get_user_model

from anvil_django import start_run
from example_project.shop.seed import CLERK, PEOPLE

from . import site
from .processes import Processes

REQUESTS = [
    "Where is my order A-1003?",
    "Please refund order A-1002: the coffee grinder does not start.",
    "Please refund order A-1001: the espresso machine arrived with a cracked water tank.",
]


def serve(processes: Processes) -> int:
    site.prepare()
    running = site.start(processes, "example_project.demo.conversations:serving_script")
    logging.getLogger("django-q").setLevel(logging.WARNING)
    clerk = get_user_model().objects.get(username=CLERK.username)
    for text in REQUESTS:
        start_run("support", text, user=clerk)
    print(_welcome(running), flush=True)
    while True:
        processes.check()
        time.sleep(0.5)


def _welcome(running: site.Site) -> str:
    people = "\n".join(
        f"    {p.username:<10}{p.password:<16}{p.first_name} {p.last_name}, {p.does}" for p in PEOPLE
    )
    model = (
        "the real API"
        if running.model_url is None
        else "a scripted model (set ANTHROPIC_API_KEY for the real one)"
    )
    return f"""
The shop is at {running.url}admin/, its agents answer through {model}.

{people}

Three runs have been started. One waits for a person: log in as reviewer and decide it.
    Runs        {running.url}admin/anvil_django/run/
    Approvals   {running.url}admin/anvil_django/approval/
    Refunds     {running.url}admin/shop/refund/
    REST API    {running.url}api/agents/v1/runs/

Start another run:
    curl -u {CLERK.username}:{CLERK.password} -H 'Content-Type: application/json' \\
        -d '{{"agent": "support", "input": "Please refund order A-1003."}}' {running.url}api/agents/v1/runs/

Ctrl-C stops it and throws its database away.
"""
