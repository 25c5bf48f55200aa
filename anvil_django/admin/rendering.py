"""Text that a model, a tool or a caller wrote, made safe and honest for a person who decides by it.

Everything is escaped; nothing stored is ever markup. What is on the screen is what is stored: characters
that cannot be seen, that reorder their neighbors, or that pass for others are shown with their code.
"""

from __future__ import annotations

import json
import re
import unicodedata
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django.utils.formats import date_format, number_format
from django.utils.html import escape, format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.timezone import is_aware, localtime
from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext

from .. import exactjson

LINE_LIMIT = 200
LINES_OF_A_BOX, NARROWEST = 20, 30
"""What surely fits into a box of admin.css: so many lines, of so many characters on a small screen."""
TEXT_LIMIT = 4_000
MINUTE, HOUR, DAY = 60, 3_600, 86_400
CASE_LIMIT = 100_000
"""Most characters of the arguments of a call that somebody decides about: nearly always all of them."""

# Blank on the screen although their category says letter, mark or symbol.
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0")
# Bracket our own marks, so the stored text must not be able to write one.
_BRACKETS = frozenset("⟦⟧")
# Separators that pass for / . : @ in an address.
_SEPARATORS = "\u2044\u2215\u29f8\u2571\u2024\u3002\ufe52\uff0e\uff61\ua789\u2236\uff0f\uff1a\uff20"
# Latin letters that a reader of any language takes for another one.
_LATIN_LOOKALIKES = frozenset("\u0131\u017f\u01c0\u01c3")
# Scripts that are written next to Latin words every day and are not taken for Latin letters.
_EAST_ASIAN = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC")

_PLAIN = re.compile(r"[\n\t\x20-\x7e]*")
_TOKEN = re.compile(rf"([\w@.\-\u0300-\u036f{_SEPARATORS}]+)")
_ASCII_LETTER = re.compile(r"[A-Za-z]")


def visible(text: str, limit: int = LINE_LIMIT) -> SafeString:
    """The text, escaped, with deceptive characters shown, and at most ``limit`` characters of it."""
    text = text.replace("\r\n", "\n")
    rest = len(text) - limit
    shown = _marked(text[:limit])
    return shown if rest <= 0 else format_html("{}{}", shown, _cut(rest))


def block(text: str, limit: int = TEXT_LIMIT) -> SafeString:
    """The text as it is laid out, in a ``<pre>``."""
    shown = text[:limit]
    return format_html('<pre class="anvil-text" dir="auto"{}>{}</pre>', tab_stop(shown), visible(text, limit))


def pretty(value: Any, limit: int = TEXT_LIMIT) -> SafeString:
    """A JSON value, indented, in a ``<pre>``; a string is shown as the text it is."""
    if isinstance(value, str):
        return block(value, limit)
    text = json.dumps(value, indent=2, ensure_ascii=False)
    shown = text[:limit]
    return format_html('<pre class="anvil-json" dir="ltr"{}>{}</pre>', tab_stop(shown), visible(text, limit))


def tab_stop(text: str) -> SafeString:
    """The attribute by which keys can scroll a box with this text; nothing where all of it fits in."""
    lines = sum(1 + len(line) // NARROWEST for line in text.split("\n"))
    return mark_safe(' tabindex="0"') if lines > LINES_OF_A_BOX else SafeString()


def pretty_json(text: str, limit: int = TEXT_LIMIT) -> SafeString:
    """Stored exact JSON text, as ``pretty`` shows its value."""
    return pretty(exactjson.loads(text), limit)


def editable(value: Any) -> str:
    """A JSON value as text to edit: what cannot be seen is written as an escape, which JSON reads back."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    if _PLAIN.fullmatch(text):
        return text
    return "".join(json.dumps(char)[1:-1] if _is_hidden(char) else char for char in text)


def summary(arguments: dict[str, Any], limit: int = LINE_LIMIT) -> SafeString:
    """The arguments of a call in one line."""
    parts = [
        f"{key}: {value if isinstance(value, str) else exactjson.readable(value)}"
        for key, value in arguments.items()
    ]
    return visible(" ".join(", ".join(parts).split("\n")), limit)


def duration(time: timedelta) -> str:
    """A stretch of time in its two largest units."""
    seconds = time.total_seconds()
    whole = round(seconds)
    if seconds < MINUTE and whole < MINUTE:
        places = 2 if seconds < 1 else 1
        return _("%(seconds)s s") % {"seconds": number_format(seconds, decimal_pos=places)}
    if whole < HOUR:
        return _("%(minutes)d min %(seconds)d s") % {"minutes": whole // MINUTE, "seconds": whole % MINUTE}
    if whole < DAY:
        return _("%(hours)d h %(minutes)d min") % {"hours": whole // HOUR, "minutes": whole % HOUR // MINUTE}
    return _("%(days)d d %(hours)d h") % {"days": whole // DAY, "hours": whole % DAY // HOUR}


def dollars(amount: Decimal, places: int) -> str:
    """US dollars, with that many decimal places."""
    return _("$%(amount)s") % {"amount": number_format(amount, decimal_pos=places, force_grouping=True)}


def moment(when: datetime) -> str:
    """A moment of a run, to the second and without the year, which Django has no format for."""
    return str(date_format(localtime(when) if is_aware(when) else when, pgettext("format", "M j, H:i:s")))


def _cut(rest: int) -> SafeString:
    more = ngettext("%(count)d more character is not shown", "%(count)d more characters are not shown", rest)
    return format_html(' <span class="anvil-cut">[… {}]</span>', more % {"count": rest})


def _marked(text: str) -> SafeString:
    if _PLAIN.fullmatch(text):
        return escape(text)
    # Every piece is escaped by itself below.
    return mark_safe("".join(_marked_piece(piece) for piece in _TOKEN.split(text)))  # noqa: S308


def _marked_piece(piece: str) -> str:
    if _PLAIN.fullmatch(piece):
        return escape(piece)
    mixed = _ASCII_LETTER.search(piece) is not None
    shown: list[str] = []
    before = ""
    for char in piece:
        if _is_hidden(char):
            shown.append(_mark("", char))
        elif _is_lookalike(char, before, mixed):
            shown.append(_mark(char, char))
        else:
            shown.append(escape(char))
        before = char
    return "".join(shown)


def _mark(seen: str, char: str) -> str:
    name = unicodedata.name(char, "")
    return format_html(
        '<span class="anvil-mark" title="{}">{}⟦U+{}⟧</span>', name, seen, format(ord(char), "04X")
    )


def _is_hidden(char: str) -> bool:
    """Whether it cannot be seen, or changes how others are seen."""
    if char in "\n\t" or "\x20" <= char <= "\x7e":
        return False
    # Controls, formats (bidirectional, zero width, tags), surrogates, unassigned, private; separators.
    if unicodedata.category(char)[0] in "CZ":
        return True
    return char in _BLANK or char in _BRACKETS or _is_variation_selector(char)


def _is_variation_selector(char: str) -> bool:
    # Invisible, and any bytes can be written in them.
    return "\ufe00" <= char <= "\ufe0f" or "\U000e0100" <= char <= "\U000e01ef"


def _is_lookalike(char: str, before: str, mixed: bool) -> bool:
    """Whether it can be taken for a plain character of the word that it stands in."""
    if char.isascii():
        return False
    kind = unicodedata.category(char)
    if kind[0] in "LN" and kind != "No":
        plain = unicodedata.normalize("NFKC", char)
        if plain != char and plain.isascii() and plain.isalnum():
            return True  # full-width, mathematical and other dresses of an ASCII letter
    if not mixed:
        return False
    if char in _SEPARATORS or char in _LATIN_LOOKALIKES:
        return True
    if kind[0] == "M":
        return len(unicodedata.normalize("NFC", before + char)) > 1  # é is a letter, a struck-out e is not
    if kind == "Nd":
        return True
    if kind[0] != "L" or "\u00c0" <= char <= "\u024f" or "\u1e00" <= char <= "\u1eff":
        return False
    return not unicodedata.name(char, "").startswith(_EAST_ASIAN)
