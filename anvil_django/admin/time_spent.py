"""Where the time of a run went, for its page: the drawing, the totals, and the same as a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.utils.html import escape, format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.text import capfirst
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from ..models.tool_call import OUTCOME_LABELS
from ..timeline import INTERRUPTED, RUNNING, Kind, Span, totals
from .facts import Outline
from .rendering import duration, visible
from .strip import Lane, Segment, Strip, draw

LABELS = {
    Kind.MODEL: gettext_lazy("asking the model"),
    Kind.TOOL: gettext_lazy("running tools"),
    Kind.PERSON: gettext_lazy("waiting for a person"),
    Kind.QUEUE: gettext_lazy("waiting for a worker"),
    Kind.BACKOFF: gettext_lazy("backing off"),
    Kind.PAUSED: gettext_lazy("paused"),
    Kind.DOWN: gettext_lazy("worker lost"),
    Kind.ENDED: gettext_lazy("ended, until it was continued"),
    Kind.OTHER: gettext_lazy("in between"),
}
OUTCOMES = {
    RUNNING: gettext_lazy("goes on"),
    INTERRUPTED: gettext_lazy("interrupted"),
    **{str(outcome): label for outcome, label in OUTCOME_LABELS.items()},
}
NAMES_LIMIT = 120

Address = Callable[[int, int], str]
"""Where a step is shown, by its iteration and the number of its message."""


@dataclass(frozen=True)
class Total:
    """What a run spent on one kind of thing."""

    kind: Kind
    label: str
    time: str
    share: str


@dataclass(frozen=True)
class Line:
    """One segment of the drawing in words."""

    segment: Segment
    what: SafeString
    begin: datetime
    time: str
    outcome: SafeString
    step: int
    url: str


@dataclass(frozen=True)
class TimeSpent:
    """The section of the page."""

    whole: str
    totals: list[Total]
    strip: Strip | None
    lanes: list[tuple[Lane, list[Line]]]

    @property
    def rows(self) -> list[Line]:
        """All lines, in the order of time."""
        return sorted((line for _, lines in self.lanes for line in lines), key=lambda line: line.begin)


def read(outline: Outline, address: Address) -> TimeSpent:
    """Tell the outline of a run."""
    strip = draw(outline.spans)
    whole = sum((span.duration for span in outline.spans), timedelta())
    return TimeSpent(
        whole=duration(whole),
        totals=[
            Total(kind, capfirst(str(LABELS[kind])), duration(time), _share(time, whole))
            for kind, time in totals(outline.spans).items()
        ],
        strip=strip,
        lanes=[
            (lane, [_line(segment, address) for segment in lane.segments])
            for lane in (strip.lanes if strip else ())
        ],
    )


def _share(time: timedelta, whole: timedelta) -> str:
    percent = 100 * (time / whole) if whole else 0.0
    if percent < 1:
        return _("< 1 %")
    return _("%(percent)d %%") % {"percent": round(percent)}


def _line(segment: Segment, address: Address) -> Line:
    spans, first = segment.spans, segment.spans[0]
    return Line(
        segment=segment,
        what=_what(segment),
        begin=first.begin,
        time=duration(sum((span.duration for span in spans), timedelta())),
        outcome=_outcome(spans),
        step=first.iteration,
        url=address(first.iteration, first.seq),
    )


def _what(segment: Segment) -> SafeString:
    kind, spans = segment.kind, segment.spans
    label = capfirst(str(LABELS[kind]))
    if len(spans) > 1:
        times = ngettext("%(count)d time", "%(count)d times", len(spans)) % {"count": len(spans)}
        label = _("%(what)s, %(times)s") % {"what": label, "times": times}
    names = ", ".join(dict.fromkeys(span.label for span in spans if span.label and span.kind is kind))
    if not names or kind not in (Kind.TOOL, Kind.PERSON):
        return escape(label)
    return format_html("{}: {}", label, visible(names, NAMES_LIMIT))


def _outcome(spans: list[Span]) -> SafeString:
    said = dict.fromkeys(span.outcome for span in spans if span.outcome)
    return format_html_join(", ", "{}", ((OUTCOMES.get(outcome) or visible(outcome),) for outcome in said))
