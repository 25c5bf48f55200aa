"""What the documentation takes from the code is as the code has it."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from anvil_django.conf import Settings
from anvil_django.states import TRANSITIONS, RunStatus

from . import diagrams, generated, links


@pytest.mark.parametrize(
    "path", generated.pages(), ids=lambda path: path.relative_to(generated.DOCS).as_posix()
)
def test_a_page_is_as_the_code_has_it(path: Path) -> None:
    assert path.read_text() == generated.pages()[path], "run: make docs-write"


def test_every_table_has_a_place() -> None:
    texts = [path.read_text() for path in generated.pages()]
    assert {name for text in texts for _, name, _ in generated.MARKED.findall(text)} == set(generated.TABLES)


def test_every_setting_says_what_it_means_and_every_number_has_a_unit() -> None:
    meanings, defaults = generated.documented_members(Settings), Settings()
    for each in fields(Settings):
        assert meanings[each.name]
        default = getattr(defaults, each.name)
        if isinstance(default, (int, float)) and not isinstance(default, bool):
            assert generated.unit(each.name), each.name


def test_the_diagram_follows_the_table_of_transitions(monkeypatch: pytest.MonkeyPatch) -> None:
    before = diagrams.run_statuses()
    drawn = {status for status in RunStatus if f">{status}</text>" in before}
    assert drawn == set(RunStatus)
    assert before.count('class="edge"') == len(diagrams.BENDS) + 1

    monkeypatch.setitem(TRANSITIONS, RunStatus.DONE, frozenset({RunStatus.QUEUED, RunStatus.PAUSED}))
    with pytest.raises(ValueError, match="bend"):
        diagrams.run_statuses()


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<p id="x"><a href="b.html#y">b</a><a href="#x">x</a><a href="http://c.d/">c</a>'
    )
    (tmp_path / "b.html").write_text(
        '<img src="gone.png"><a href="a.html#x">a</a><a href="https://e.org/f">e</a>'
    )

    wrong, outside = links.examine(tmp_path)

    assert sorted(re.sub(r"^\w\.html: ", "", line) for line in wrong) == [
        "b.html#y has no such anchor",
        "gone.png leads nowhere",
        "http://c.d/ is no https address",
    ]
    assert outside == {"http://c.d/", "https://e.org/f"}
