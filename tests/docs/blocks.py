"""Every block of code in the README and in docs/, and how a block becomes a module."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[\w{}:-]*)[^\n]*\n(?P<text>.*?)^(?P=indent)```$", re.M | re.S
)
INDENTED = re.compile(r"(?:\A|\n\n)((?:    +\S[^\n]*\n(?:\n(?=    ))?)+)")


@dataclass(frozen=True)
class Block:
    """One block: the page it stands on, its language ("" if indented), and its text."""

    page: str
    language: str
    text: str

    @property
    def label(self) -> str:
        """What its first line says it is, for code that begins with a comment."""
        first = self.text.lstrip().partition("\n")[0]
        return first[1:].strip() if first[:1] in {"#", ";"} else ""

    @property
    def name(self) -> str:
        return f"{self.page}: {self.label or self.text.strip().partition(chr(10))[0]}"


def pages() -> list[Path]:
    """All pages whose blocks must work."""
    return [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]


@cache
def every() -> tuple[Block, ...]:
    """All blocks of all pages."""
    return tuple(block for path in pages() for block in _blocks(path))


def _blocks(path: Path) -> Iterator[Block]:
    text, page = path.read_text(), path.relative_to(ROOT).as_posix()
    for match in FENCE.finditer(text):
        yield Block(page, match["language"], match["text"])
    for match in INDENTED.finditer(FENCE.sub("\n", text)):
        yield Block(page, "", match[1])


def find(page: str, label: str) -> Block:
    """The block of a page that begins with this label."""
    (block,) = [b for b in every() if b.page == page and b.label.startswith(label)]
    return block


@contextmanager
def modules(page: str, *labels: str) -> Iterator[list[ModuleType]]:
    """Blocks as the modules that they say they are (``shop/agents.py``), importable from one another."""
    before, made = dict(sys.modules), []
    try:
        for label in labels:
            made.append(_module(find(page, label)))
        yield made
    finally:
        for name in set(sys.modules) - set(before):
            if (getattr(sys.modules[name], "__file__", None) or "").startswith("docs:"):
                del sys.modules[name]


def _module(block: Block) -> ModuleType:
    path = block.label.split(":")[0].split()[0].removesuffix(".py")
    *packages, _ = path.split("/")
    for depth in range(1, len(packages) + 1):
        package = ".".join(packages[:depth])
        if package not in sys.modules:
            sys.modules[package] = _empty(package, block.page)
    name = path.replace("/", ".")
    module = sys.modules[name] = _empty(name, block.page)
    exec(compile(block.text, f"{block.page} ({block.label})", "exec", dont_inherit=True), vars(module))
    return module


def _empty(name: str, page: str) -> ModuleType:
    module = ModuleType(name)
    module.__file__, module.__path__ = f"docs:{page}", []
    return module


def names(block: Block) -> dict[str, Any]:
    """What the code of a block defines, on its own."""
    found: dict[str, Any] = {"__name__": "docs"}
    exec(compile(block.text, f"{block.page} ({block.label})", "exec", dont_inherit=True), found)
    return found
