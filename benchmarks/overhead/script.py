"""The workload's model behind the scripted Messages API: ``anvil_django.testing.server`` loads ``answer``."""

from __future__ import annotations

from anvil_django.testing import say
from anvil_django.testing.scripts import Request
from anvil_django.testing.turns import Turn

from . import workload
from .workload import Job


def answer(request: Request) -> Turn:
    """The turn of this request, after the wait of its job."""
    job, i = Job.of(request.opening), request.assistant_turns
    blocks = [
        {**block, "id": f"toolu_{block['id']}"} if "id" in block else block
        for block in workload.blocks(job, i)
    ]
    return say(*blocks, delay=job.wait)
