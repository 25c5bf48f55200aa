"""The user model is chosen before Django starts: the tests of another one run in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SETTINGS = "tests.custom_user.settings"


def test_approvals_work_with_a_custom_user_model_without_a_username() -> None:
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    outside.pop("ANVIL_TEST_DB_NAME", None)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--ds={SETTINGS}"]
    ended = subprocess.run(
        [*command, "tests/custom_user"],
        cwd=ROOT,
        env=outside,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert " passed" in ended.stdout
    assert "failed" not in ended.stdout
