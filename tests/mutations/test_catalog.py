"""The catalog of mutations fits the code; `make mutations` runs it."""

from __future__ import annotations

import ast

import pytest

from .__main__ import DOCUMENT
from .catalog import MUTATIONS, ROOT, Mutation


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.breaks)
def test_the_line_is_there_once_and_what_replaces_it_can_be_read(mutation: Mutation) -> None:
    text = mutation.source.read_text()

    assert text.count(mutation.line) == 1
    ast.parse(text.replace(mutation.line, mutation.broken))
    assert all((ROOT / path).exists() for path in mutation.tests.split())


def test_every_promise_is_broken_once_at_least() -> None:
    broken = {number for m in MUTATIONS for number in m.breaks.partition(":")[0].replace(" ", "").split(",")}
    assert broken == {str(number) for number in range(1, 11)}


def test_the_document_lists_them_all() -> None:
    rows = [line for line in DOCUMENT.read_text().splitlines() if line.startswith("| ")][1:]
    assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == [m.breaks for m in MUTATIONS]
