"""What a reviewer changes in the arguments of a call, line by line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from .rendering import LINE_LIMIT, tab_stop, visible

MOST_LINES = 1_000
"""Of changed lines on either side that are compared one by one: comparing takes the square of it."""
LONGEST_LINE = 100 * LINE_LIMIT

_LINES = {
    " ": '<span class="anvil-same">  {}</span>',
    "-": '<del class="anvil-removed">- {}</del>',
    "+": '<ins class="anvil-added">+ {}</ins>',
}


def diff(before: Any, after: Any) -> SafeString:
    """Two JSON values as lines: those that go with a minus, those that come with a plus."""
    lines = list(compare(_lines(before), _lines(after)))
    shown = format_html_join("", "{}", ((_line(sign, text),) for sign, text in lines))
    text = "\n".join(line for _sign, line in lines)
    return format_html('<div class="anvil-diff" dir="ltr"{}>{}</div>', tab_stop(text), shown)


def compare(before: list[str], after: list[str]) -> Iterator[tuple[str, str]]:
    """Each line of both with " ", "-" or "+" before it."""
    start = _common(before, after)
    end = _common(before[start:][::-1], after[start:][::-1])
    old, new = before[start : len(before) - end], after[start : len(after) - end]
    yield from ((" ", line) for line in before[:start])
    if max(len(old), len(new)) > MOST_LINES:
        yield from (("-", line) for line in old)
        yield from (("+", line) for line in new)
    else:
        for _tag, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            if old[a:b] == new[c:d]:
                yield from ((" ", line) for line in old[a:b])
                continue
            yield from (("-", line) for line in old[a:b])
            yield from (("+", line) for line in new[c:d])
    yield from ((" ", line) for line in before[len(before) - end :])


def _common(before: list[str], after: list[str]) -> int:
    """How many lines both begin with."""
    count = 0
    for old, new in zip(before, after, strict=False):
        if old != new:
            break
        count += 1
    return count


def _lines(value: Any) -> list[str]:
    # Split where the indentation does, not at the separators that a text may hold: JSON escapes its newlines.
    return json.dumps(value, indent=2, ensure_ascii=False).split("\n")


def _line(sign: str, text: str) -> SafeString:
    return format_html(_LINES[sign], visible(text, LONGEST_LINE))
