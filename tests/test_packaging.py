"""What is built is what is in the tree: a template or a migration left out shows only on a user's machine."""

import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

import anvil_django

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "anvil_django"


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--target", "sdist", "-d", folder],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    return folder


@pytest.fixture(scope="module")
def wheel(built):
    with zipfile.ZipFile(next(built.glob("*.whl"))) as archive:
        yield archive


def test_wheel_holds_every_file_of_the_package(wheel):
    in_tree = {
        path.relative_to(ROOT).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    in_wheel = {name for name in wheel.namelist() if name.startswith("anvil_django/")}

    assert in_wheel == in_tree
    assert {"anvil_django/py.typed", "anvil_django/migrations/__init__.py"} <= in_wheel


def test_wheel_holds_nothing_but_the_package(wheel):
    folders = {name.split("/")[0] for name in wheel.namelist()}

    assert folders == {"anvil_django", f"anvil_django-{anvil_django.__version__}.dist-info"}


def test_wheel_metadata(wheel):
    info = f"anvil_django-{anvil_django.__version__}.dist-info"
    metadata = Parser().parsestr(wheel.read(f"{info}/METADATA").decode())

    assert metadata["Name"] == "anvil-django"
    assert metadata["Version"] == anvil_django.__version__
    assert metadata["License-Expression"] == "BSD-3-Clause"
    assert f"{info}/licenses/LICENSE" in wheel.namelist()
    assert "anvil_django.testing.pytest_plugin" in wheel.read(f"{info}/entry_points.txt").decode()


def test_sdist_can_run_the_tests(built):
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    assert {
        "Makefile",
        "README.md",
        "LICENSE",
        "example_project/settings.py",
        "manage.py",
        "pyproject.toml",
        "tests/settings.py",
        "tests/test_packaging.py",
    } <= names
