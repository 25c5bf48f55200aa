"""What the documentation names exists: settings, commands, modules, permissions, targets of make."""

from __future__ import annotations

import importlib
import re
from dataclasses import fields
from pathlib import Path

import pytest
from django.contrib.auth.models import Permission

from anvil_django.conf import Settings

from .blocks import ROOT, pages
from .generated import command_names

KEYS = {each.name.upper() for each in fields(Settings)}
TEXTS = {path: path.read_text() for path in pages()}
WORDS = {"SECRET_NAMES", "SECRET_KEY", "Q_CLUSTER"}
"""Names in capitals that are no settings of ours, and that a page may set in code marks without saying so."""


def found(pattern: str) -> set[tuple[str, str]]:
    """What matches on any page, with the page."""
    matches = ((path, re.findall(pattern, text)) for path, text in TEXTS.items())
    return {(path.relative_to(ROOT).as_posix(), match) for path, all_ in matches for match in all_}


def test_every_key_of_anvil_exists() -> None:
    keys = found(r'ANVIL\[["\'](\w+)["\']\]') | found(r'ANVIL = \{"(\w+)"')
    assert len(keys) > 10
    assert {(page, key) for page, key in keys if key not in KEYS} == set()


def test_a_default_in_brackets_after_a_setting_is_its_default() -> None:
    defaults = Settings()
    for page, (key, value) in {(p, m) for p, m in found(r"`([A-Z]+_[A-Z_]+)` \((\d[\d_]*)(?: s)?\)")}:  # type: ignore[misc]
        if key in KEYS:
            assert getattr(defaults, key.lower()) == int(value), (page, key)


def test_every_command_exists() -> None:
    named = found(r"\b(anvil_(?!django)[a-z_]+)\b(?!\.|/|\()")
    known = {*command_names(), "anvil_waiting"}
    wrong = {(page, name) for page, name in named if name not in known and f"`{name}`" in TEXTS[ROOT / page]}
    assert wrong == set()


def test_every_dotted_name_leads_to_something() -> None:
    names = found(r"`(anvil_django(?:\.\w+)+)`")
    assert len(names) > 15
    for page, name in names:
        if re.search(r"\.[EW]\d+$", name) or is_permission(name) or is_label(name):
            continue
        assert leads_somewhere(name), (page, name)


def is_permission(name: str) -> bool:
    return re.fullmatch(r"anvil_django\.(add|change|view|delete|control|decide)_\w+", name) is not None


def is_label(name: str) -> bool:
    """The name of a schedule or of a logger."""
    return name in {"anvil_django.recover", "anvil_django.prune"}


def leads_somewhere(name: str) -> bool:
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for part in parts[cut:]:
            if not hasattr(value, part):
                return False
            value = getattr(value, part)
        return True
    return False


@pytest.mark.django_db
def test_every_permission_exists() -> None:
    known = {
        f"anvil_django.{name}"
        for name in Permission.objects.filter(content_type__app_label="anvil_django").values_list(
            "codename", flat=True
        )
    }
    named = {(page, name) for page, name in found(r"`(anvil_django\.\w+)`") if is_permission(name)}
    assert named
    assert {(page, name) for page, name in named if name not in known} == set()


def test_every_code_of_a_failed_run_is_in_the_code() -> None:
    text = TEXTS[ROOT / "docs/reference/errors.md"]
    source = "".join(path.read_text() for path in (ROOT / "anvil_django").rglob("*.py"))
    codes = re.findall(r"^\| `([a-z_]+)` \|", text, re.MULTILINE)
    assert len(codes) > 40
    assert {code for code in codes if f'"{code}"' not in source} == set()


def test_every_target_of_make_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert {(page, name) for page, name in found(r"`make ([a-z-]+)`") if name not in targets} == set()


def test_every_file_that_is_named_is_there() -> None:
    named = found(r"`((?:tests|docs|anvil_django|benchmarks|example_project)/[\w/.-]+\.\w+)(?:::\w+)?`")
    assert {(page, name) for page, name in named if not (ROOT / name).is_file()} == set()


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_to_files_and_to_headings(path: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#:\s]*)(?:#([\w-]+))?\)", TEXTS[path]):
        file = (path.parent / target).resolve() if target else path
        assert file.exists(), target
        if anchor and file.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", file.read_text(), re.MULTILINE)
            assert anchor in {slug(heading) for heading in headings}, f"{target}#{anchor}"


def slug(heading: str) -> str:
    """The anchor of a heading, on GitHub as in the built pages."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize(
    "path", [path for path in TEXTS if path.parent.name != "reference"], ids=lambda p: p.name
)
def test_a_page_can_be_read_in_one_go(path: Path) -> None:
    assert len(TEXTS[path].splitlines()) <= 320
