"""schemathesis against a live server: whatever is sent, the answer is one that the document describes.

`make test-fuzz`; ``ANVIL_FUZZ_SEED`` and ``ANVIL_FUZZ_EXAMPLES`` (per operation) choose what is sent.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from anvil_django.testing import ScriptedMessagesAPI

from . import openapi
from .cases import ask, bank
from .rest import person
from .served import served

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


SEED = os.environ.get("ANVIL_FUZZ_SEED", "1")
EXAMPLES = os.environ.get("ANVIL_FUZZ_EXAMPLES", "10")
MISSING = find_spec("schemathesis") is None and "ANVIL_FUZZ_REQUIRED" not in os.environ


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(MISSING, reason="schemathesis is not installed")
def test_nothing_that_can_be_sent_breaks_the_api(messages_api: ScriptedMessagesAPI, tmp_path: Path) -> None:
    root = person("root")
    type(root).objects.update(is_superuser=True)
    with bank():
        case = ask(messages_api, user=None, run_id="r1")
    config = tmp_path / "schemathesis.toml"
    config.write_text(f'[parameters]\nid = {case.pk}\nrun_id = "r1"\nname = "support"\n')
    program = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run"]
    with served() as (url, _):
        options = {
            "--url": url + openapi.PREFIX,
            "--auth": "root:secret",
            "--phases": "coverage,fuzzing",
            "--max-examples": EXAMPLES,
            "--seed": SEED,
            "--checks": CHECKS,
        }
        result = subprocess.run(
            [*program, str(openapi.DOCUMENT), *(part for option in options.items() for part in option)],
            capture_output=True,
            text=True,
            timeout=240,
            cwd=tmp_path,
        )

    assert result.returncode == 0, result.stdout + result.stderr
