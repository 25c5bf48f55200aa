"""Sentences that workers stored with a run, in the language of whoever reads them.

A worker does not know who will read it, so it stores English, and over REST and in a log it stays that.
"""

from __future__ import annotations

import re
from functools import cache

from django.utils.translation import gettext

from .. import answers, endings, errors, model_errors, recovery, runs, steps

#: The sentences that have something filled in; ``why`` is a sentence itself. The last fits many others.
PATTERNS = (
    endings.POISON,
    recovery.UNREADABLE,
    runs.LEFT_ALONE,
    runs.THEN_RESUME,
    errors.UNKNOWN_AGENT,
    steps.COST_UNKNOWN,
    steps.PAUSE_LIMIT,
    answers.CUT_OFF,
    answers.UNKNOWN_REASON,
    answers.REFUSED_BECAUSE,
    model_errors.SAID,
    model_errors.CAUSE,
    model_errors.FACTS,
)
_FIELD = re.compile(r"\{(\w+)\}|%\((\w+)\)[rsd]")


def shown(sentence: str) -> str:
    """The sentence in the active language; one that is not known here stays as it is."""
    if not sentence:
        return ""  # gettext has the head of the catalog for it.
    if (whole := gettext(sentence)) != sentence:
        return whole
    for pattern in PATTERNS:
        if found := _matcher(pattern).fullmatch(sentence):
            return _filled(gettext(pattern), found.groupdict())
    return sentence


def _filled(pattern: str, told: dict[str, str]) -> str:
    if "why" in told:
        told["why"] = shown(told["why"])
    return _FIELD.sub(lambda field: told[field[1] or field[2]], pattern)


@cache
def _matcher(pattern: str) -> re.Pattern[str]:
    """Finds what a pattern was filled with."""
    parts = _FIELD.split(pattern)
    found = [re.escape(parts[0])]
    for braced, percent, text in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        found.append(f"(?P<{braced or percent}>.*?){re.escape(text)}")
    return re.compile("".join(found), re.DOTALL)
