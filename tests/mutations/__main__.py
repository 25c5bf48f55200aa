"""python -m tests.mutations [--write] [WORD...]

Breaks each promise (or those whose description holds a WORD) in a copy of the tree and runs the tests that
should notice. Exits with 1 if one of them did not. ``--write`` puts the table into docs/mutations.md.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from .catalog import MUTATIONS, ROOT, Mutation

DOCUMENT = ROOT / "docs" / "mutations.md"
COPIED = ("anvil_django", "docs", "example_project", "tests", "README.md", "manage.py", "pyproject.toml")
TEXT = """# Each promise, broken on purpose

A test that cannot fail proves nothing. `make mutations` changes the line that keeps a promise, one at a time,
in a copy of the tree, and runs the tests that should notice. The first test that failed:

| promise | file | caught by |
|---|---|---|
{rows}
"""


def copy_tree(to: Path) -> None:
    """What the tests need, without what they leave behind."""
    ignored = shutil.ignore_patterns("__pycache__", "*.sqlite3*", ".hypothesis")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, to / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, to / name)


def caught_by(mutation: Mutation, tree: Path) -> str:
    """The first test that fails with the mutation in ``tree``; "" if all pass."""
    file = tree / "anvil_django" / mutation.file
    text = file.read_text()
    try:
        file.write_text(text.replace(mutation.line, mutation.broken))
        run = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:randomly", *mutation.tests.split()],
            cwd=tree,
            capture_output=True,
            text=True,
            timeout=300,
        )
    finally:
        file.write_text(text)
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", run.stdout, re.MULTILINE)
    # 1: tests failed. Anything else is a mutation that does not even run, which shows nothing.
    if run.returncode not in {0, 1} or bool(failed) != (run.returncode == 1):
        raise SystemExit(
            f"{mutation.breaks}: pytest ended with {run.returncode}\n{run.stdout[-3000:]}{run.stderr}"
        )
    return failed[1] if failed else ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="WORD")
    parser.add_argument("--write", action="store_true", help=f"write {DOCUMENT.name}")
    options = parser.parse_args()
    chosen = [m for m in MUTATIONS if not options.words or any(word in m.breaks for word in options.words)]
    rows, missed = [], 0
    with tempfile.TemporaryDirectory(prefix="anvil-mutations-") as folder:
        tree = Path(folder)
        copy_tree(tree)
        for number, mutation in enumerate(chosen, 1):
            began = time.monotonic()
            test = caught_by(mutation, tree)
            missed += not test
            took = time.monotonic() - began
            told = f"caught by {test}" if test else "NOT CAUGHT"
            print(f"{number}/{len(chosen)} {mutation.breaks}: {told} ({took:.0f} s)", flush=True)
            rows.append(f"| {mutation.breaks} | `{mutation.file}` | `{test.partition('[')[0]}` |")
    if options.write and not options.words and not missed:
        DOCUMENT.write_text(TEXT.format(rows="\n".join(rows)))
    print(f"{len(chosen) - missed} of {len(chosen)} caught")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
