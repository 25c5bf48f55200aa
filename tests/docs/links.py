"""``python -m tests.docs.links FOLDER``: do the links of the built pages lead somewhere?

Links inside the site must, anchors included. Those to other sites cannot be followed without a network:
their form is checked, and they are listed.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The anchors of a page, and what it refers to."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = {"", "top"}
        self.targets: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif name in {"href", "src"} and value:
                self.targets.add(value)


def examine(folder: Path) -> tuple[list[str], set[str]]:
    """What is wrong with the links of the pages in a folder, and all links to other sites."""
    pages = {path.resolve(): Page(path) for path in folder.rglob("*.html")}
    wrong, outside = [], set()
    for path, page in pages.items():
        for target in sorted(page.targets):
            parts = urlsplit(target)
            if parts.scheme in {"data", "mailto"}:
                continue
            if parts.scheme or parts.netloc:
                outside.add(target)
                if parts.scheme != "https" or "." not in parts.netloc:
                    wrong.append(f"{path.name}: {target} is no https address")
                continue
            found = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            found = found / "index.html" if found.is_dir() else found
            if not found.is_file():
                wrong.append(f"{path.name}: {target} leads nowhere")
            elif found in pages and unquote(parts.fragment) not in pages[found].anchors:
                wrong.append(f"{path.name}: {target} has no such anchor")
    return wrong, outside


def main(folder: str) -> int:
    wrong, outside = examine(Path(folder))
    print("Links to other sites, not followed:", *sorted(outside), sep="\n  ")
    print(*wrong, sep="\n", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
