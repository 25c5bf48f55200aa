"""schemathesis against a live server: whatever is sent, the answer is one that the document describes.

pip install --group fuzz && python -m pytest tests/test_api_fuzz.py
"""

from __future__ import annotations

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


@pytest.mark.processes
@pytest.mark.django_db(transaction=True)
@pytest.mark.skipif(find_spec("schemathesis") is None, reason="schemathesis is not installed")
def test_nothing_that_can_be_sent_breaks_the_api(messages_api: ScriptedMessagesAPI, tmp_path: Path) -> None:
    root = person("root")
    type(root).objects.update(is_superuser=True)
    with bank():
        case = ask(messages_api, user=None, run_id="r1")
    config = tmp_path / "schemathesis.toml"
    config.write_text(f'[parameters]\nid = {case.pk}\nrun_id = "r1"\nname = "support"\n')
    command = [
        *(
            sys.executable,
            "-m",
            "schemathesis.cli",
            "--config-file",
            str(config),
            "run",
            str(openapi.DOCUMENT),
        ),
        *(
            "--auth",
            "root:secret",
            "--phases",
            "coverage,fuzzing",
            "--max-examples",
            "10",
            "--checks",
            CHECKS,
        ),
    ]
    with served() as (url, _):
        result = subprocess.run(
            [*command, "--url", url + openapi.PREFIX],
            capture_output=True,
            text=True,
            timeout=240,
            cwd=tmp_path,
        )

    assert result.returncode == 0, result.stdout + result.stderr
