"""What the commands share: errors, safe text, tables, JSON, and sentences about where a run stands."""

from __future__ import annotations

import argparse
import io
import json
import re
import shutil
import sys
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, time, timedelta
from decimal import Decimal
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime

from .. import exactjson, redaction
from ..agents import registered
from ..clock import get_clock
from ..cost import Usage
from ..errors import AnvilError, UnknownAgentError
from ..health import MAX_AGE, MAX_WAIT
from ..models import Approval, Run
from ..states import ApprovalKind, ApprovalStatus, RunStatus

# Whole sequences first, so that nothing of them is left over: CSI (colors, cursor), then the strings that
# set titles, links and the clipboard, then two-character escapes.
_ESCAPES = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]"
)
_KEPT = frozenset("\n\t")
# Characters that reorder the line they stand in, so that it reads as something else.
_REORDERING = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def plain(text: str) -> str:
    """Text from a model or a tool, unable to steer the terminal: no escapes, controls or reordering."""
    return "".join(filter(None, map(_plain_character, _ESCAPES.sub("", text))))


def _plain_character(character: str) -> str:
    if character in _KEPT:
        return character
    if character in _REORDERING or unicodedata.category(character) == "Cc":
        return ""
    return "\N{REPLACEMENT CHARACTER}" if "\ud800" <= character <= "\udfff" else character


def one_line(text: str, width: int = 160) -> str:
    """The text on one line of at most ``width`` characters."""
    line = " ".join(plain(text).split())
    return line if len(line) <= width else line[: width - 1] + "…"


def as_text(content: Any) -> str:
    """A tool's input or result in one readable string: its text blocks, or JSON."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = (b.get("text") or f"[{b.get('type')}]" for b in content if isinstance(b, dict))
        return "\n".join(map(str, parts))
    return exactjson.readable(content)


def money(cost: Decimal | None) -> str:
    """A price, or that it is not known."""
    return "price not known" if cost is None else f"${cost:.4f}"


def tokens_of(run: Run) -> int:
    """All tokens that a run has used so far, those of the prompt cache too."""
    return Usage(run.input_tokens, run.output_tokens, run.cache_read_tokens, run.cache_write_tokens).total


def duration(span: timedelta) -> str:
    """How long, by its two largest units: 40s, 12m, 3h 5m, 2d 4h."""
    seconds = max(0, int(span.total_seconds()))
    if seconds < 60:
        return f"{seconds}s"
    minutes = seconds // 60
    for large, small, names in ((1440, 60, "dh"), (60, 1, "hm")):
        if minutes >= large:
            rest = minutes % large // small
            return f"{minutes // large}{names[0]}" + (f" {rest}{names[1]}" if rest else "")
    return f"{minutes}m"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows under a header, columns two spaces apart, the last one as it is."""
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    widths[-1] = 0
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def standing(run: Run) -> str:
    """Where a run stands and why, in one sentence without its end."""
    status = f"Run {run.run_id} is {run.status}"
    if run.status == str(RunStatus.DONE):
        return f"{status} ({one_line(run.stop_reason)})"
    if run.status == str(RunStatus.SUSPENDED):
        return f"{status} until a person decides"
    if run.status == str(RunStatus.RUNNING) and run.lease_owner:
        return f"{status}, advanced by {worker(run.lease_owner)}"
    return f"{status}: {one_line(run.why, 400).rstrip('.')}" if run.why else status


def worker(owner: str) -> str:
    """The process behind a lease, as people name it."""
    host, _, pid, *_ = [*owner.split("/"), "?", "?"]
    return f"process {one_line(pid)} on {one_line(host)}"


def open_questions(run: Run) -> list[str]:
    """Each decision a run waits for, one line each."""
    pending = Approval.objects.filter(run_id=run.pk, status=str(ApprovalStatus.PENDING)).order_by("id")
    return [_question(approval) for approval in pending.select_related("call")]


_ASKS = {
    ApprovalKind.TOOL: "may it run?",
    ApprovalKind.IN_DOUBT: "did it happen?",
    ApprovalKind.LIMIT: "may it use more?",
}


def _question(approval: Approval) -> str:
    asks = _ASKS[ApprovalKind(approval.kind)]
    tool = approval.tool
    line = f"approval {approval.pk}: {asks} {one_line(tool)} {_stored(tool, approval.call.input)}"
    return f"{line}; asked with {_stored(tool, approval.payload)}" if approval.payload else line


def _stored(tool: str, text: str) -> str:
    return one_line(as_text(redaction.shown_json(tool, text)))


def check_agent(name: str) -> None:
    """An agent's name given as a filter: registered here, or that of a stored run.

    Raises:
        UnknownAgentError: It is neither, and so misspelt.
    """
    if name not in registered() and not Run.objects.filter(agent=name).exists():
        raise UnknownAgentError(name, list(registered()))


def named_user(username: str) -> Any:
    """The person of that user name, whatever the user model calls it.

    Raises:
        CommandError: There is nobody of that name.
    """
    model = get_user_model()
    try:
        return model._default_manager.get_by_natural_key(username)
    except model.DoesNotExist:
        raise CommandError(f"There is no user {one_line(username)!r}.") from None


def positive(text: str) -> int:
    """For argparse: a whole number above zero."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above zero")
    return number


def seconds(text: str) -> float:
    """For argparse: a number of seconds above zero."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above zero")
    return number


_AGE = re.compile(r"([0-9]+(?:\.[0-9]+)?)([dh])")


def age(text: str) -> timedelta:
    """For argparse: an age above zero, in days or hours."""
    match = _AGE.fullmatch(text)
    try:
        hours = 0.0 if match is None else float(match[1]) * (24 if match[2] == "d" else 1)
        found = timedelta(hours=hours)
    except OverflowError:
        found = timedelta()
    # Dates end a little before year 0.
    if not timedelta() < found < timedelta(days=365 * 1000):
        raise argparse.ArgumentTypeError(f"{text!r} is not an age such as 90d or 12h")
    return found


Moment = timedelta | datetime
"""A time, or how long ago it was."""


def moment(text: str) -> Moment:
    """For argparse: an age, or a date or time, in the site's time zone where it names none."""
    with suppress(argparse.ArgumentTypeError):
        return age(text)
    try:
        found = parse_datetime(text)
        if found is None and (day := parse_date(text)) is not None:
            found = datetime.combine(day, time())
        if found is not None:
            return found if timezone.is_aware(found) else timezone.make_aware(found)
    except (ValueError, OverflowError):
        pass
    raise argparse.ArgumentTypeError(
        f"{text!r} is no time: give an age such as 2d or 12h, or 2026-12-01 or 2026-12-01T15:00"
    )


def resolved(given: Moment | None) -> datetime | None:
    """The time that is meant now."""
    return get_clock().now() - given if isinstance(given, timedelta) else given


def fitted(text: str) -> str:
    """As much of the text as one screen of this terminal holds, each line cut at its right edge."""
    size = shutil.get_terminal_size()
    return "\n".join(line[: size.columns] for line in text.split("\n")[: size.lines - 1])


class TerminalCommand(BaseCommand):
    """A command whose errors are sentences, whose JSON goes to stdout and whose progress to stderr."""

    _shows_progress = False

    def run_from_argv(self, argv: list[str]) -> None:
        """Run from the command line, where what a terminal cannot show must not end a run's display."""
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        super().run_from_argv(argv)

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run the command.

        Raises:
            CommandError: With the message of whatever error of this package occurred.
        """
        self._verbosity = options.get("verbosity", 1)
        try:
            return super().execute(*args, **options)
        except AnvilError as exc:
            raise CommandError(one_line(exc.message, 2000)) from exc

    def tell(self, line: str) -> None:
        """Show progress, apart from what the command answers; ``--verbosity 0`` turns it off."""
        if self._verbosity:
            self.stderr.write(line, self.style.NOTICE)

    def progress(self, line: str) -> None:
        """Show how far it has come on the last line of the terminal; elsewhere, nothing.

        "" takes away what was shown, and nothing else: a text may stand there, unfinished.
        """
        if self._verbosity and self.stderr.isatty() and (line or self._shows_progress):
            self.stderr.write(f"\r\x1b[K{line}", ending="")
            self.stderr.flush()
            self._shows_progress = bool(line)

    def write_json_line(self, value: Any) -> None:
        """Answer in JSON on one line, for whoever reads line by line."""
        self.stdout.write(json.dumps(value, default=str))

    def write_json(self, value: Any) -> None:
        """Answer in JSON; ASCII only, so no text in it can steer the terminal."""
        self.stdout.write(json.dumps(value, indent=2, default=str))


def add_patience(parser: CommandParser, waits: str) -> None:
    """The options of whoever asks how the workers are.

    Args:
        waits: What ``--max-wait`` is about.
    """
    shown = " (default: %(default)s)"
    parser.add_argument("--cluster-name", metavar="NAME", help="only clusters that serve this queue")
    parser.add_argument(
        "--max-age",
        type=seconds,
        default=MAX_AGE,
        metavar="SECONDS",
        help="a cluster without a sign of life for longer counts as gone" + shown,
    )
    parser.add_argument("--max-wait", type=seconds, default=MAX_WAIT, metavar="SECONDS", help=waits + shown)
    parser.add_argument("--json", action="store_true", help="answer in JSON")
