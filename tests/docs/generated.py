"""The parts of the documentation that come from the code: tables between markers, and diagrams.

``make docs-write`` writes them into docs/; a test says when they are behind. A page marks the place of a
table by ``<!-- from the code: NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from django.apps import apps
from django.core.management import load_command_class
from django.core.management.base import BaseCommand
from django.db.models import Field, Model

import anvil_django
from anvil_django import conf, errors, model_errors, states
from anvil_django.management import commands

from . import diagrams

DOCS = Path(__file__).resolve().parents[2] / "docs"
MARKED = re.compile(r"(<!-- from the code: ([\w -]+) -->\n).*?(<!-- end -->)", re.DOTALL)
UNITS = {"page_size": "rows", "max_recoveries": "times", "max_model_attempts": "times"}
UNITS |= {"result_limit": "characters", "input_limit": "characters", "request_timeout": "seconds"}
UNITS |= {"approval_ttl": "seconds", "prices": "USD"}


@cache
def pages() -> dict[Path, str]:
    """Every file that holds something from the code, as it should be."""
    found = {path: filled(path.read_text()) for path in DOCS.rglob("*.md") if MARKED.search(path.read_text())}
    return found | {DOCS / "diagrams" / f"{name}.svg": text for name, text in diagrams.drawn().items()}


def filled(text: str) -> str:
    """A page with its marked places written anew."""
    return MARKED.sub(lambda place: f"{place[1]}{TABLES[place[2]]()}\n{place[3]}", text)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |") for line in lines)


def markdown(text: str | None) -> str:
    """A docstring's sentence in one line, with Markdown's code marks."""
    return " ".join(str(text or "").split()).replace("``", "`")


def documented_members(cls: type) -> dict[str, str]:
    """What stands as a string under each member of a class, by the member's name."""
    (tree,) = ast.parse(inspect.getsource(cls)).body
    assert isinstance(tree, ast.ClassDef)
    found, name = {}, None
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
        elif name and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            # One blank line separates paragraphs, of which a table's cell takes one.
            found[name] = markdown(str(node.value.value).replace("\n\n", " "))
            name = None
        else:
            name = None
    return found


# Settings.


def unit(key: str) -> str:
    """The unit of a setting, from its name where that says it."""
    for ending in ("seconds", "days"):
        if key.endswith(f"_{ending}"):
            return ending
    return UNITS.get(key, "")


def settings_table() -> str:
    meanings, defaults = documented_members(conf.Settings), conf.Settings()
    rows = []
    for each in fields(conf.Settings):
        default = getattr(defaults, each.name)
        shown = "`SECRET_NAMES`" if default is conf.SECRET_NAMES else f"`{_number(default)}`"
        rows.append((f"`{each.name.upper()}`", shown, unit(each.name), meanings[each.name]))
    return table(("Key", "Default", "Unit", "Meaning"), rows)


def _number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return repr(value)
    return f"{value:_g}" if isinstance(value, float) else f"{value:_}"


# Commands.


def command_names() -> list[str]:
    return sorted(module.name for module in pkgutil.iter_modules(commands.__path__))


def parser_of(name: str) -> argparse.ArgumentParser:
    return load_command_class("anvil_django", name).create_parser("manage.py", name)


COMMON = {action.dest for action in BaseCommand().create_parser("manage.py", "x")._actions}


def commands_section() -> str:
    return "\n\n".join(part for name in command_names() for part in _command(name))


def _command(name: str) -> Iterator[str]:
    parser = parser_of(name)
    yield f"## {name}\n\n{markdown(parser.description)}"
    yield from _arguments(parser, name)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for choice in action._choices_actions:
                verb, inner = choice.dest, action.choices[choice.dest]
                said = _sentence(choice.help)
                yield f"### {name} {verb}\n\n{said[:1].upper()}{said[1:]}."
                yield from _arguments(inner, f"{name} {verb}")


def _arguments(parser: argparse.ArgumentParser, name: str) -> Iterator[str]:
    shown = [a for a in parser._actions if a.dest not in COMMON and a.help != argparse.SUPPRESS]
    shown = [a for a in shown if not isinstance(a, argparse._SubParsersAction)]
    words = [_placeholder(a) for a in shown if not a.option_strings]
    options = " [options]" if any(a.option_strings for a in shown) else ""
    yield f"    {' '.join(['python manage.py', name, *words])}{options}"
    if shown:
        yield table(("Argument", "Meaning"), [(f"`{_written(a)}`", _help(a)) for a in shown])


def _placeholder(action: argparse.Action) -> str:
    word = str(action.metavar or action.dest).upper()
    return {"*": f"[{word} ...]", "+": f"{word} [{word} ...]", "?": f"[{word}]"}.get(str(action.nargs), word)


def _written(action: argparse.Action) -> str:
    if not action.option_strings:
        return _placeholder(action)
    if action.nargs == 0:
        return ", ".join(action.option_strings)
    return f"{', '.join(action.option_strings)} {action.metavar or action.dest.upper()}"


def _help(action: argparse.Action) -> str:
    default = f"{action.default:g}" if isinstance(action.default, float) else action.default
    said = _sentence((action.help or "") % {**vars(action), "default": default})
    choices = ", ".join(f"`{choice}`" for choice in action.choices or ())
    return f"{said}; one of {choices}" if choices else said


def _sentence(text: str | None) -> str:
    return re.sub(r"(ANVIL|Q_CLUSTER)\['(\w+)'\]", r'`\1["\2"]`', markdown(text))


# Errors.


def every_error() -> list[type[errors.AnvilError]]:
    for module in pkgutil.walk_packages(anvil_django.__path__, "anvil_django."):
        if not re.search(r"\.(testing|migrations)\b", module.name):
            with suppress(ImportError):  # Of what an extra brings, which need not be installed.
                importlib.import_module(module.name)

    def below(cls: type[errors.AnvilError]) -> Iterator[type[errors.AnvilError]]:
        for child in cls.__subclasses__():
            if child.__module__.startswith("anvil_django."):
                yield child
                yield from below(child)

    return [
        errors.AnvilError,
        *sorted(set(below(errors.AnvilError)), key=lambda cls: (cls.code, cls.__name__)),
    ]


def errors_table() -> str:
    rows = []
    for cls in every_error():
        sentence = markdown((cls.__doc__ or "").partition("\n\n")[0])
        rows.append((f"`{cls.code}`", f"{cls.http_status:d}", f"`{cls.__module__}.{cls.__name__}`", sentence))
    return table(("Code", "HTTP", "Class", "Default sentence"), rows)


def model_errors_table() -> str:
    rows = [(f"`{code}`", _sentence(sentence)) for code, sentence in model_errors._SENTENCES.items()]
    return table(("Code", "What an operator reads"), rows)


# REST.


def endpoints_table() -> str:
    document = yaml.safe_load((DOCS / "openapi.yaml").read_text())
    rows = []
    for path, item in document["paths"].items():
        for method, operation in item.items():
            good = [status for status in operation["responses"] if status < "300"]
            what = markdown(operation.get("description", "").partition("\n\n")[0])
            rows.append((f"`{method.upper()}`", f"`{path}`", ", ".join(good), what))
    return table(("Method", "Path", "Success", "What it does"), rows)


def problems_table() -> str:
    """The statuses that are no success, and what each means."""
    found: dict[str, list[str]] = {}
    for operation in _operations():
        for status, answer in operation["responses"].items():
            said = found.setdefault(status, [])
            if (sentence := markdown(answer["description"])) not in said:
                said.append(sentence)
    return table(("HTTP", "When"), [(s, " ".join(found[s])) for s in sorted(found) if s >= "400"])


def _operations() -> Iterator[dict[str, Any]]:
    for item in yaml.safe_load((DOCS / "openapi.yaml").read_text())["paths"].values():
        yield from item.values()


# States.


def statuses_table() -> str:
    meanings = documented_members(states.RunStatus)
    rows = [
        (
            f"`{status}`",
            meanings[status.name],
            ", ".join(f"`{to}`" for to in states.RunStatus if to in targets),
        )
        for status, targets in states.TRANSITIONS.items()
    ]
    return table(("Status", "Meaning", "Can become"), rows)


def members_table(cls: type[Any]) -> str:
    meanings = documented_members(cls)
    return table(("Value", "Meaning"), [(f"`{member}`", meanings.get(member.name, "")) for member in cls])


# Models.


def models_section() -> str:
    found = sorted(apps.get_app_config("anvil_django").get_models(), key=lambda model: model.__name__)
    return "\n\n".join(part for model in found for part in _model(model))


def _model(model: type[Model]) -> Iterator[str]:
    yield f"## {model.__name__}\n\n{markdown((model.__doc__ or '').partition(chr(10) * 2)[0])}"
    rows = [(f"`{field.name}`", _kind(field), _about(field)) for field in model._meta.fields]
    yield table(("Field", "Kind", "Meaning"), rows)


def _kind(field: Field[Any, Any]) -> str:
    kind = f"`{field.get_internal_type()}`"
    if field.related_model is not None and not isinstance(field.related_model, str):
        kind += f" to `{field.related_model._meta.object_name}`"
    return f"{kind} or null" if field.null else kind


def _about(field: Field[Any, Any]) -> str:
    label = "" if field.name == str(field.verbose_name).replace(" ", "_") else str(field.verbose_name)
    return ". ".join(filter(None, (label, str(field.help_text).rstrip("."))))


TABLES = {
    "models": models_section,
    "settings": settings_table,
    "commands": commands_section,
    "errors": errors_table,
    "model errors": model_errors_table,
    "endpoints": endpoints_table,
    "problems": problems_table,
    "run statuses": statuses_table,
    "call statuses": lambda: members_table(states.CallStatus),
    "outcomes": lambda: members_table(states.Outcome),
}
