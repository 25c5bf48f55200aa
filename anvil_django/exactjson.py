"""JSON that survives every database byte for byte.

What goes to the model is prompt bytes: a database that reorders keys or rewrites numbers changes them.
So it is stored as ASCII text that ``dumps`` wrote, never as a database's own JSON type, and everything from
outside passes through ``clean`` (already JSON) or ``encode`` (any Python value) before it is stored or sent.
"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import hashlib
import json
import math
import pathlib
import re
import sys
import uuid
from collections import UserString
from collections.abc import Iterable, Mapping, MappingView, Sequence, Set
from typing import Any, NoReturn

from .errors import NotJSONError

MAX_DEPTH = 100
"""How many lists and objects may lie inside one another; what is deeper is replaced by ``TOO_DEEP``."""

MAX_INT_DIGITS = 4300
"""Python's default limit for reading an integer back from text."""

TOO_DEEP = f"[left out: nested more than {MAX_DEPTH} levels deep]"
TOO_BIG = f"[left out: an integer of more than {MAX_INT_DIGITS} digits]"

_DUMP = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode
_DUMP_SORTED = json.JSONEncoder(
    ensure_ascii=True, allow_nan=False, separators=(",", ":"), sort_keys=True
).encode
_DUMP_TEXT = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode

_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
# Not the six characters themselves, whose backslash is written as two.
_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_SCALARS = frozenset({str, float, bool, type(None)})
# 640 digits, the lowest limit a Python process can be given, are more than 2,000 bits.
_SURELY_PRINTABLE_BITS = 2000


def dumps(value: Any) -> str:
    """Write a JSON value as compact ASCII text, keys in their own order.

    For every value that ``clean`` or ``encode`` returned, ``dumps(loads(dumps(x))) == dumps(x)``.

    Raises:
        NotJSONError: the value is not JSON (pass it through ``clean`` or ``encode`` first).
    """
    try:
        return _DUMP(value)
    except (TypeError, ValueError, RecursionError) as exc:
        raise NotJSONError("value", f"cannot be written as JSON: {exc}") from exc


def loads(text: str) -> Any:
    """Read a text that ``dumps`` wrote.

    Raises:
        ValueError: the text is not JSON; ``NaN`` and ``Infinity`` are not JSON either.
    """
    return _LOAD(text)


def readable(value: Any) -> str:
    """Write a clean JSON value as compact text for the model: like ``dumps``, but not restricted to ASCII."""
    return _DUMP_TEXT(value)


def canonical(value: Any) -> str:
    """One text for all equal stored values, whatever the order of their keys.

    The value is written and read back first, so that the text is the same before and after a trip through
    the database.

    Raises:
        NotJSONError: the value is not JSON.
    """
    return _DUMP_SORTED(loads(dumps(value)))


def digest(*parts: Any) -> str:
    """SHA-256 (64 hex digits) of the canonical JSON of all parts; binds a decision to what it was about.

    Raises:
        NotJSONError: a part is not JSON.
    """
    return hashlib.sha256(canonical(list(parts)).encode("ascii")).hexdigest()


def clean(value: Any, *, keep_nul: bool = False, path: str = "value") -> Any:
    """Make a JSON value storable in every database and sendable through the SDK.

    Lone surrogates become U+FFFD, not-a-number and the infinities become their names, integers too long to
    print and nesting deeper than ``MAX_DEPTH`` become a note, keys become strings (of two keys that become
    the same the last wins), tuples become lists. A value that needs none of this is returned as it is, the
    same object.

    Args:
        value: What came from the model, a user or a tool, already made of JSON's own types.
        keep_nul: Leave NUL characters in strings (for the model's own output, which is sent back unchanged);
            otherwise they become U+FFFD.
        path: What to call the value in an error.

    Raises:
        NotJSONError: a value inside is not of a JSON type, or contains itself.
    """
    if _is_clean(value, keep_nul):
        return value
    return _Walk(path, keep_nul, rich=False).convert(value)


def encode(value: Any, *, path: str = "value", keep_nul: bool = False) -> Any:
    """Turn a Python value into clean JSON: this package's one encoder.

    Dates, times and durations become ISO 8601, ``Decimal``, ``UUID``, ``Path`` and lazy translations become
    strings, enums their value, dataclasses and pydantic models objects, sets sorted lists, other sequences
    lists.

    Args:
        value: The value, for example what a tool returned.
        path: What to call the value in an error, for example ``"result"``.
        keep_nul: As for ``clean``.

    Raises:
        NotJSONError: something inside has no JSON form (a model instance, a QuerySet, bytes, a generator, any
            other object) or contains itself. The message names the place and says what to use instead.
    """
    if _is_clean(value, keep_nul):
        return value
    return _Walk(path, keep_nul, rich=True).convert(value)


def clean_text(text: str, *, keep_nul: bool = False) -> str:
    """``clean`` for one string."""
    if not text.isascii():
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            text = _PAIR.sub(_join_pair, text)
            text = _SURROGATE.sub("\ufffd", text)
    if not keep_nul and "\0" in text:
        text = text.replace("\0", "\ufffd")
    return text


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_LOAD = json.JSONDecoder(parse_constant=_refuse_constant).decode


def _join_pair(match: re.Match[str]) -> str:
    return match.group().encode("utf-16-le", "surrogatepass").decode("utf-16-le")


def _is_clean(value: Any, keep_nul: bool) -> bool:
    """Whether ``clean`` has nothing to do. Costs about one dump: the encoder in C does most of it."""
    try:
        text = _DUMP_TEXT(value)
        if not text.isascii():
            text.encode("utf-8")
    except (TypeError, ValueError, RecursionError):
        # Also a UnicodeEncodeError, which is a ValueError.
        return False
    if not keep_nul and "\\u0000" in text and _NUL.search(text):
        return False
    return _has_plain_shape(value)


def _has_plain_shape(value: Any) -> bool:
    """Whether all types are exactly JSON's own, all keys strings and the nesting within the limit.

    Goes level by level, without recursion; only called on what the encoder accepted, which has no cycles.
    """
    level = [value]
    for depth in range(MAX_DEPTH + 1):
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind in _SCALARS:
                continue
            if kind is int:
                if item.bit_length() > _SURELY_PRINTABLE_BITS:
                    return False
            elif depth == MAX_DEPTH:
                return False
            elif kind is dict:
                for key in item:
                    if type(key) is not str:
                        return False
                below.extend(item.values())
            elif kind is list:
                below.extend(item)
            else:
                return False
        if not below:
            return True
        level = below
    return False  # not reached: the last level has nothing below it


class _Walk:
    """One pass over a value. The recursion takes one frame a level and is bounded by ``MAX_DEPTH``."""

    def __init__(self, root: str, keep_nul: bool, rich: bool) -> None:
        self.root = root
        self.keep_nul = keep_nul
        self.rich = rich
        self.trail: list[str | int] = []
        self.open: set[int] = set()

    def convert(self, value: Any) -> Any:
        # Only the real type counts: a lazy object pretends to be an instance of what it wraps.
        kind = type(value)
        while self.rich and issubclass(kind, enum.Enum):
            value = value.value
            kind = type(value)
        if value is None or kind is bool:
            return value
        if issubclass(kind, str):
            return clean_text(str.__str__(value), keep_nul=self.keep_nul)
        if issubclass(kind, int):
            return _printable(int.__int__(value))
        if issubclass(kind, float):
            return _finite(float.__float__(value))
        if self.rich:
            text = _as_text(value, kind)
            if text is not None:
                return clean_text(text, keep_nul=self.keep_nul)
            if hasattr(kind, "__pydantic_serializer__") and hasattr(kind, "model_dump"):
                return self.convert(self.dump_model(value))
        if id(value) in self.open:
            raise self.refusal("contains itself. Use a copy without the cycle.")
        if len(self.open) >= MAX_DEPTH:
            return TOO_DEEP
        named, parts = self.parts(value, kind)
        self.open.add(id(value))
        items: list[Any] = []
        names: list[str] = []
        for part in parts:
            if named:
                name, part = part
                if type(name) is not str:
                    name = self.key(name)
                name = clean_text(name, keep_nul=self.keep_nul)
                names.append(name)
                self.trail.append(name)
            else:
                self.trail.append(len(items))
            items.append(self.convert(part))
            self.trail.pop()
        self.open.discard(id(value))
        if named:
            return dict(zip(names, items, strict=True))
        return _sorted(items) if issubclass(kind, Set) and not issubclass(kind, MappingView) else items

    def parts(self, value: Any, kind: type) -> tuple[bool, Iterable[Any]]:
        """What lies inside a container: (True, pairs of name and value) or (False, values)."""
        if issubclass(kind, dict):
            return True, value.items()
        if issubclass(kind, (list, tuple)):
            return False, value
        if not self.rich:
            raise self.refusal(f"is {_a(kind)}, which is not JSON. Pass it through exactjson.encode first.")
        if dataclasses.is_dataclass(kind):
            return True, ((field.name, getattr(value, field.name)) for field in dataclasses.fields(kind))
        if issubclass(kind, Mapping):
            return True, value.items()
        if issubclass(kind, (bytes, bytearray, memoryview)):
            raise self.refusal(
                f"is {_a(kind)}. Use text (decode it), or base64 text inside an image or document block."
            )
        if issubclass(kind, (Sequence, Set, MappingView)):
            return False, value
        raise self.refusal(_why_refused(value, kind))

    def dump_model(self, model: Any) -> Any:
        # In JSON mode, because the model's own serializers may be declared for JSON only.
        try:
            return model.model_dump(mode="json", warnings=False)
        except Exception as exc:
            reason = f"could not be dumped ({type(exc).__name__}). Use a dict of plain values."
            raise self.refusal(reason) from exc

    def key(self, key: Any) -> str:
        """A key that is not a plain string, written as JSON writes it."""
        kind = type(key)
        while self.rich and issubclass(kind, enum.Enum):
            key = key.value
            kind = type(key)
        if issubclass(kind, str):
            return str.__str__(key)
        if key is None or kind is bool:
            return _DUMP(key)
        if issubclass(kind, int):
            return str(_printable(int.__int__(key)))
        if issubclass(kind, float):
            return str(_finite(float.__float__(key)))
        text = _as_text(key, kind) if self.rich else None
        if text is None:
            raise self.refusal(f"has a key that is {_a(kind)}. Use strings as keys.")
        return text

    def refusal(self, reason: str) -> NotJSONError:
        return NotJSONError(self.root + "".join(map(_path_part, self.trail)), reason)


def _path_part(part: str | int) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    if len(part) > 60:
        part = part[:57] + "..."
    return f".{part}" if part.isidentifier() else f"[{_DUMP_TEXT(part)}]"


def _printable(number: int) -> int | str:
    if number.bit_length() <= _SURELY_PRINTABLE_BITS:
        return number
    # A process may run with a lower limit than the default, and a text written under a higher one could not
    # be read back elsewhere.
    digits = min(MAX_INT_DIGITS, sys.get_int_max_str_digits() or MAX_INT_DIGITS)
    return number if abs(number) < 10**digits else TOO_BIG


def _finite(number: float) -> float | str:
    if math.isfinite(number):
        return number
    if math.isnan(number):
        return "NaN"
    return "Infinity" if number > 0 else "-Infinity"


def _as_text(value: Any, kind: type) -> str | None:
    """The text of a value that is written as one string; None for everything else."""
    if issubclass(kind, (datetime.date, datetime.time)):
        return str(value.isoformat())
    if issubclass(kind, (decimal.Decimal, uuid.UUID, pathlib.PurePath, UserString)):
        return str(value)
    if issubclass(kind, datetime.timedelta):
        from django.utils.duration import duration_iso_string

        return duration_iso_string(value)
    # A lazy translation exists only where django.utils.functional has been imported.
    functional = sys.modules.get("django.utils.functional")
    if functional is not None and issubclass(kind, functional.Promise):
        return str(value)
    return None


def _sorted(items: list[Any]) -> list[Any]:
    # A set of strings has another order in every process; stored content must not.
    try:
        return sorted(items)
    except TypeError:
        return sorted(items, key=_DUMP_SORTED)


def _a(kind: type) -> str:
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    if kind in (bytes, int, str):
        return name
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _why_refused(value: Any, kind: type) -> str:
    """What to return instead. Told apart by looks, so that no Django model has to be imported for it."""
    meta = getattr(kind, "_meta", None)
    if meta is None and kind.__module__ == "django.utils.functional":
        meta = getattr(value, "_meta", None)
    label = getattr(meta, "label", None)
    if isinstance(label, str):
        return f"is a model instance ({label}). Use a dict of the fields the agent needs."
    if hasattr(kind, "_fetch_all") or kind.__name__ == "RawQuerySet":
        return "is a QuerySet. Use a list of plain values, for example list(queryset.values('id', 'name'))."
    if hasattr(kind, "__next__") or hasattr(kind, "__anext__"):
        return f"is {_a(kind)}, which can be read only once. Use a list."
    if hasattr(kind, "__await__"):
        return f"is {_a(kind)} that nothing awaited. Await it and use its result."
    if issubclass(kind, type):
        return f"is the class {value.__qualname__}. Use a value."
    return f"is {_a(kind)}. Use strings, numbers, lists and dicts."
