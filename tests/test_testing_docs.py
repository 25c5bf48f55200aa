"""docs/testing.md: its examples are tests that pytest collects here, and its table is that of the code."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

from anvil_django import boundaries
from anvil_django.boundaries import BOUNDARIES
from anvil_django.testing import killpoints

TEXT = (Path(__file__).resolve().parent.parent / "docs" / "testing.md").read_text()
BLOCKS = dict(re.findall(r"```python\n# tests/(\w+)\.py\n(.*?)```", TEXT, re.DOTALL))


def load(name: str) -> ModuleType:
    """The example as the module that it says it is, for the examples that import from it."""
    module = ModuleType(f"{__package__}.{name}")
    code = compile(BLOCKS[name], f"docs/testing.md ({name})", "exec", dont_inherit=True)
    module.__package__ = __package__
    exec(code, vars(module))
    sys.modules[module.__name__] = module
    return module


for _name in BLOCKS:
    for _key, _value in vars(load(_name)).items():
        if _key.startswith(("test_", "Test")):
            assert _key not in globals(), _key
            globals()[_key] = _value


def test_every_example_is_collected() -> None:
    assert len(BLOCKS) == TEXT.count("```python")
    assert all(any(key in text for key in globals() if key[:4].lower() == "test") for text in BLOCKS.values())


def test_the_table_names_every_boundary_as_the_code_does() -> None:
    rows = re.findall(r"^\| `(\w+\.\w+)` \| (.+) \| (.+) \|$", TEXT, re.MULTILINE)

    assert tuple(name for name, *_ in rows) == BOUNDARIES
    # The table of the module is the same, broken into lines.
    words = {word for line in (boundaries.__doc__ or "").splitlines() for word in line.split()}
    for row in rows:
        assert {word.replace("`", "") for cell in row for word in cell.split()} <= words


def test_the_command_lines_name_places_that_there_are() -> None:
    lines = [shlex.split(line) for line in re.findall(r"^    (ANVIL_KILL_AT=.+)$", TEXT, re.MULTILINE)]

    for line in lines:
        variables = dict(word.split("=") for word in line if "=" in word)
        assert killpoints.read_points(variables["ANVIL_KILL_AT"])
        assert set(variables) <= {killpoints.AT, killpoints.ONCE}
    assert len(lines) == 2
