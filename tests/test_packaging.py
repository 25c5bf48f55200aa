"""What is built is what is in the tree: a template or a migration left out shows only on a user's machine."""

import re
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from django.core.management import call_command

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


@pytest.mark.parametrize("language", ["de", "fr"])
def test_wheel_holds_the_translations_as_they_are_loaded(wheel, language):
    catalog = f"anvil_django/locale/{language}/LC_MESSAGES/django.mo"

    assert wheel.read(catalog) == (ROOT / catalog).read_bytes()


def test_wheel_holds_nothing_but_the_package(wheel):
    folders = {name.split("/")[0] for name in wheel.namelist()}

    assert folders == {"anvil_django", f"anvil_django-{anvil_django.__version__}.dist-info"}


def test_wheel_says_what_of_others_is_in_it(wheel):
    folder = "anvil_django/static/anvil_django/vendor/chartjs"
    script = wheel.read(f"{folder}/chart.umd.min.js").decode()
    readme = wheel.read(f"{folder}/README.md").decode()
    (version,) = re.findall(r"^/\*!\n \* Chart\.js v(\S+)$", script, re.MULTILINE)

    assert readme.startswith(f"# Chart.js {version}\n")
    assert f"Chart.js](https://www.chartjs.org) {version} (MIT)" in (ROOT / "docs/dashboard.md").read_text()
    assert wheel.read(f"{folder}/LICENSE.md").startswith(b"The MIT License (MIT)")
    # The source map is not shipped, and a storage that hashes names refuses a script that names it.
    assert "sourceMappingURL" not in script


def test_static_files_are_collected_by_a_storage_that_hashes_names(tmp_path, settings):
    storage = {"BACKEND": "django.contrib.staticfiles.storage.ManifestStaticFilesStorage"}
    settings.STORAGES = settings.STORAGES | {"staticfiles": storage}
    settings.STATIC_ROOT = tmp_path

    call_command("collectstatic", interactive=False, verbosity=0)

    names = {path.name for path in (tmp_path / "anvil_django").rglob("*.js")}
    assert {"dashboard.js", "chart.umd.min.js"} < names


def test_wheel_metadata(wheel):
    info = f"anvil_django-{anvil_django.__version__}.dist-info"
    metadata = Parser().parsestr(wheel.read(f"{info}/METADATA").decode())

    assert metadata["Name"] == "anvil-django"
    assert metadata["Version"] == anvil_django.__version__
    assert metadata["License-Expression"] == "BSD-3-Clause AND MIT"
    vendored = "anvil_django/static/anvil_django/vendor/chartjs/LICENSE.md"
    assert {f"{info}/licenses/LICENSE", f"{info}/licenses/{vendored}"} <= set(wheel.namelist())
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
