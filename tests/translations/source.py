"""What the package says to people: found in its source, with Python alone.

The catalogs are made by ``makemessages``, which needs the gettext tools; the tests do not.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

from django.utils.translation.template import templatize

import anvil_django

PACKAGE = Path(anvil_django.__file__).parent
MARKS = {
    "_": 1,
    "gettext": 1,
    "gettext_lazy": 1,
    "gettext_noop": 1,
    "ngettext": 2,
    "ngettext_lazy": 2,
    "pgettext": 2,
    "pgettext_lazy": 2,
    "npgettext": 3,
    "npgettext_lazy": 3,
}
"""What marks a text, and how many arguments are texts; a context comes first."""

Message = tuple[str | None, str, str | None]
"""Context, singular and plural."""


def python_files() -> list[Path]:
    """All of the package that is Python and not made by a machine."""
    return [path for path in sorted(PACKAGE.rglob("*.py")) if "migrations" not in path.parts]


def templates() -> list[Path]:
    return sorted((PACKAGE / "templates").rglob("*.html"))


@cache
def messages() -> set[Message]:
    """Every text that is marked."""
    found: set[Message] = set()
    for path in python_files():
        found |= set(marked(path.read_text(), names_of_marks(path.read_text())))
    for path in templates():
        found |= set(marked_in_template(path.read_text()))
    return found


# Python.


def names_of_marks(source: str) -> dict[str, int]:
    """What marks a text in this module, under the names it is imported by."""
    names = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module == "django.utils.translation":
            for alias in node.names:
                if alias.name in MARKS:
                    names[alias.asname or alias.name] = MARKS[alias.name]
    return names


def calls_of_marks(tree: ast.AST, names: dict[str, int]) -> Iterator[tuple[ast.Call, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
            yield node, names[node.func.id]


def marked(source: str, names: dict[str, int]) -> Iterator[Message]:
    """The marked texts of a module."""
    contexts = {name for name in names if "pgettext" in name}
    for call, number in calls_of_marks(ast.parse(source), names):
        texts = [node.value for node in call.args[:number] if isinstance(node, ast.Constant)]
        if len(texts) < number:
            continue  # A variable, whose values are marked where they are written.
        assert isinstance(call.func, ast.Name)
        context = texts.pop(0) if call.func.id in contexts else None
        yield context, texts[0], texts[1] if len(texts) > 1 else None


def unmarked(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each literal that reads like something said to people and is not marked."""
    tree = ast.parse(source)
    passed_over: set[int] = set()
    for call, _number in calls_of_marks(tree, names_of_marks(source)):
        passed_over |= {id(node) for node in ast.walk(call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            passed_over.add(id(node.value))  # A docstring.
        elif isinstance(node, ast.Subscript) or _is_all(node):  # Names of classes.
            passed_over |= {id(inner) for inner in ast.walk(node)}
        elif isinstance(node, ast.JoinedStr):
            passed_over |= {id(part) for part in ast.walk(node)} - {id(node)}
        elif isinstance(node, ast.Call) and _is_for_developers(node.func):
            passed_over |= {id(inner) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in passed_over:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if reads_like_words(node.value):
                yield node.lineno, node.value
        elif isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
            if reads_like_words(text := "".join(map(str, parts))):
                yield node.lineno, text
        for text in labels(node):
            if id(text) not in passed_over:
                yield text.lineno, str(text.value)


LABELS = {"description", "empty_label", "help_text", "label", "title", "verbose_name", "verbose_name_plural"}


def labels(node: ast.AST) -> Iterator[ast.Constant]:
    """Literals in places that are shown whatever they read like: a label of one small word, for example."""
    given: list[ast.expr | None] = []
    if isinstance(node, ast.Call):
        given = [keyword.value for keyword in node.keywords if keyword.arg in LABELS]
        name = ast.unparse(node.func)
        if re.fullmatch(r"models\.\w+Field", name) and node.args:
            given.append(node.args[0])
    elif isinstance(node, ast.Assign) and any(getattr(to, "id", "") in LABELS for to in node.targets):
        given.append(node.value)
    for value in given:
        is_text = isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value != ""
        # Those that read like words are found wherever they are.
        if is_text and not reads_like_words(value.value):
            yield value


def _is_all(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"


def _is_for_developers(function: ast.expr) -> bool:
    name = ast.unparse(function)
    return name.startswith("logger.") or name.endswith(("AgentDefinitionError", "cast", "TypeVar"))


_FILLED_IN = re.compile(r"<[^>]*>|\{[^}]*\}|%\(\w+\)[srd]|%[srdg]")


def reads_like_words(text: str) -> bool:
    """Two words, or one with a capital; without tags and what is filled in."""
    text = _FILLED_IN.sub(" ", text).strip()
    return bool(re.search(r"[^\W\d_]{2,} [^\W\d_]", text) or re.fullmatch(r"[A-Z][a-z]+[.:!?…]?", text))


# Templates.

_MARKED = re.compile(r"\{%\s*blocktrans(?:late)?\b.*?\{%\s*endblocktrans(?:late)?\s*%\}", re.DOTALL)
_COMMENTS = re.compile(r"\{#.*?#\}|\{%\s*comment\b.*?\{%\s*endcomment\s*%\}", re.DOTALL)
_CLASSES = re.compile(r"\{% block bodyclass %\}.*?\{% endblock %\}", re.DOTALL)
_TAGS = re.compile(r"\{%.*?%\}|\{\{.*?\}\}", re.DOTALL)
_CALL = re.compile(r"\b((?:n?p|n)?gettext|_)\((?=u?['\"])")
SHOWN = {"alt", "aria-description", "aria-label", "aria-roledescription", "placeholder", "title", "value"}
"""Attributes that people read; so are ours whose name begins with data-."""


def marked_in_template(source: str) -> Iterator[Message]:
    """The marked texts of a template, as ``makemessages`` sees them."""
    text = templatize(source)
    for found in _CALL.finditer(text):
        end = next(
            end
            for end in (match.end() for match in re.finditer(r"\)", text[found.start() :]))
            if _is_call(text[found.start() : found.start() + end])
        )
        yield from marked(text[found.start() : found.start() + end], MARKS)


def _is_call(text: str) -> bool:
    try:
        return isinstance(ast.parse(text, mode="eval").body, ast.Call)
    except SyntaxError:
        return False


def unmarked_in_template(source: str) -> list[str]:
    """Each text between tags, and in attributes that are read, that no tag translates."""
    for pattern in (_COMMENTS, _MARKED, _CLASSES, _TAGS):
        source = pattern.sub(" ", source)
    reader = _Reader()
    reader.feed(source)
    reader.close()
    return reader.found


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_data(self, data: str) -> None:
        if re.search(r"[^\W\d_]{2,}", data):
            self.found.append(" ".join(data.split()))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        fields = dict(attrs)
        for name, value in attrs:
            is_button = fields.get("type") in {"submit", "button", "reset"} and tag == "input"
            is_shown = name in SHOWN - {"value"} or (name == "value" and is_button)
            is_ours = name.startswith("data-") and reads_like_words(value or "")
            if is_ours or (is_shown and re.search(r"[^\W\d_]{2,}", value or "")):
                self.found.append(str(value).strip())


# Scripts.

_LITERAL = re.compile(r"\"((?:[^\"\\\n]|\\.)*)\"|'((?:[^'\\\n]|\\.)*)'|`((?:[^`\\]|\\.)*)`")
_SCRIPT_COMMENTS = re.compile(r"/\*.*?\*/|(?<!:)//[^\n]*", re.DOTALL)


def unmarked_in_script(source: str) -> list[str]:
    """Each literal of a script that reads like a sentence: those come with the page, in data attributes."""
    literals = _LITERAL.findall(_SCRIPT_COMMENTS.sub(" ", source))
    return [text for text in map("".join, literals) if re.search(r"^[A-Z].*[a-z]{2,} [a-z]", text)]
