"""`python -m example_project.demo [--serve]`."""

import argparse
import os
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

from .processes import DemoError, Processes

ROOT = Path(__file__).resolve().parent.parent.parent


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m example_project.demo", description=__doc__)
    parser.add_argument("--serve", action="store_true", help="leave the example running until Ctrl-C")
    options = parser.parse_args()
    # `timeout` and a closed terminal must not leave processes behind either.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    with tempfile.TemporaryDirectory(prefix="anvil-demo-", ignore_cleanup_errors=True) as folder:
        environment = _environment(Path(folder))
        os.environ.clear()
        os.environ.update(environment)
        import django

        django.setup()
        processes = Processes(Path(folder), ROOT, environment)
        try:
            return _play(processes, serve=options.serve)
        except DemoError as error:
            print(f"\nFAILED: {error}\n", file=sys.stderr)
            print(processes.tails(), file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("\nStopped.")
            return 0 if options.serve else 130
        finally:
            processes.stop()


def _environment(folder: Path) -> dict[str, str]:
    """That of every process: the example's settings, and a database of its own."""
    here = ("127.0.0.1", "localhost")
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "example_project.settings",
        "EXAMPLE_DB": str(folder / "db.sqlite3"),
        "PYTHONUNBUFFERED": "1",
        "NO_PROXY": ",".join(filter(None, [os.environ.get("NO_PROXY"), *here])),
        "no_proxy": ",".join(filter(None, [os.environ.get("no_proxy"), *here])),
    }


def _play(processes: Processes, *, serve: bool) -> int:
    # They import models, so not before Django is set up.
    if serve:
        from .serve import serve as play
    else:
        from .story import tell as play
    return play(processes)


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
