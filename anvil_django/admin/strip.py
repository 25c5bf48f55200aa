"""The drawing of a run's time: what goes where in an inline SVG, in percent of its width.

Four lanes under each other, the time from left to right. Long waits are drawn shorter than they were, or the
work between them could not be seen; they are marked as such. However many spans there are, what is drawn is
bounded: neighbors in a lane that the eye could not tell apart become one bar, as high as their share of the
time that it covers.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any

from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from ..timeline import WORK, Kind, Span

LANES: tuple[tuple[Any, tuple[Kind, ...]], ...] = (
    (_("Model"), (Kind.MODEL,)),
    (_("Tools"), (Kind.TOOL,)),
    (_("People"), (Kind.PERSON, Kind.PAUSED)),
    (pgettext_lazy("run", "Workers"), (Kind.QUEUE, Kind.BACKOFF, Kind.DOWN)),
)
"""What each lane shows; the rest is left blank."""
LANE_HEIGHT, BAR_HEIGHT, LOWEST = 24, 14, 4
RESOLUTION = 0.8
"""Percent of the width: gaps that are narrower are not drawn."""
WIDEST = 2.0
"""Percent of the width that neighbors cover together at most."""
NARROWEST = 0.4
"""Percent of the width that the shortest segment has."""
MOST_WAIT = 0.3
"""The longest that one wait is drawn, as a share of all work."""
TICKS = 4


@dataclass
class Segment:
    """One or more spans of a lane, drawn as one bar."""

    kind: Kind
    begin: float
    end: float
    spans: list[Span]
    is_cut: bool
    """Whether it is drawn shorter than it was."""
    covered: float
    """Percent of the width of its spans alone."""
    widest: float
    """Percent of the width of the span that gave it its kind."""

    @property
    def x(self) -> str:
        """Left edge in percent."""
        return f"{min(self.begin, 100 - NARROWEST):.3f}"

    @property
    def width(self) -> str:
        """Width in percent."""
        return f"{max(self.end - min(self.begin, 100 - NARROWEST), NARROWEST):.3f}"

    @property
    def height(self) -> int:
        """Height of its bar."""
        if len(self.spans) == 1 or self.end <= self.begin:
            return BAR_HEIGHT
        return max(LOWEST, round(BAR_HEIGHT * min(1.0, self.covered / (self.end - self.begin))))

    @property
    def drop(self) -> int:
        """How far its top is below that of a full bar."""
        return BAR_HEIGHT - self.height

    @property
    def middle(self) -> str:
        """Middle in percent."""
        return f"{(self.begin + self.end) / 2:.3f}"

    @property
    def is_bad(self) -> bool:
        """Whether anything in it went wrong."""
        return any(span.outcome not in ("", "running") for span in self.spans)


@dataclass(frozen=True)
class Lane:
    """A line of the drawing."""

    label: Any
    y: int
    segments: list[Segment]

    @property
    def bar(self) -> int:
        """Top of its bars."""
        return self.y + (LANE_HEIGHT - BAR_HEIGHT) // 2

    @property
    def sign(self) -> int:
        """Where a sign inside a bar stands."""
        return self.bar + BAR_HEIGHT - 3


@dataclass(frozen=True)
class Tick:
    """A moment on the axis."""

    x: str
    at: datetime
    anchor: str


@dataclass(frozen=True)
class Strip:
    """The drawing."""

    lanes: list[Lane]
    ticks: list[Tick]
    is_cut: bool
    """Whether any wait is drawn shorter than it was."""
    height: int


def draw(spans: Sequence[Span]) -> Strip | None:
    """The drawing of these spans; None where no time has passed."""
    if not spans or spans[-1].end <= spans[0].begin:
        return None
    scale = _Scale(spans)
    lanes = []
    for number, (label, kinds) in enumerate(LANES):
        segments = _segments([span for span in spans if span.kind in kinds], scale)
        lanes.append(Lane(label, number * LANE_HEIGHT, segments))
    anchors = ["start", *["middle"] * (TICKS - 1), "end"]
    ticks = [
        Tick(f"{100 * n / TICKS:.3f}", scale.moment(100 * n / TICKS), anchor)
        for n, anchor in enumerate(anchors)
    ]
    height = len(LANES) * LANE_HEIGHT
    return Strip(lanes, ticks, scale.longest is not None, height)


class _Scale:
    """Between moments and percents of the width."""

    def __init__(self, spans: Sequence[Span]) -> None:
        work = sum((span.duration for span in spans if span.kind in WORK), timedelta())
        longest = work * MOST_WAIT
        lengths = [
            span.duration if span.kind in WORK or not longest else min(span.duration, longest)
            for span in spans
        ]
        cut = any(length < span.duration for length, span in zip(lengths, spans, strict=True))
        self.longest: timedelta | None = longest if cut else None
        self._begins = [span.begin for span in spans] + [spans[-1].end]
        whole = sum(lengths, timedelta())
        self._percents = [100 * (at / whole) for at in accumulate(lengths, initial=timedelta())]

    def percent(self, moment: datetime) -> float:
        """Where a moment is."""
        at = min(max(bisect_right(self._begins, moment) - 1, 0), len(self._begins) - 2)
        return self._between(at, (moment - self._begins[at]) / self._length(at))

    def moment(self, percent: float) -> datetime:
        """What moment a place stands for."""
        at = min(max(bisect_right(self._percents, percent) - 1, 0), len(self._begins) - 2)
        width = self._percents[at + 1] - self._percents[at]
        share = (percent - self._percents[at]) / width if width else 0.0
        return self._begins[at] + min(share, 1.0) * (self._begins[at + 1] - self._begins[at])

    def _length(self, at: int) -> timedelta:
        return self._begins[at + 1] - self._begins[at] or timedelta.resolution

    def _between(self, at: int, share: float) -> float:
        width = self._percents[at + 1] - self._percents[at]
        return self._percents[at] + min(max(share, 0.0), 1.0) * width


def _segments(spans: Sequence[Span], scale: _Scale) -> list[Segment]:
    found: list[Segment] = []
    for span in spans:
        begin, end = scale.percent(span.begin), scale.percent(span.end)
        is_cut = scale.longest is not None and span.kind not in WORK and span.duration > scale.longest
        last = found[-1] if found else None
        if last is not None and begin - last.end < RESOLUTION and end - last.begin < WIDEST:
            if end - begin > last.widest:
                last.kind, last.widest = span.kind, end - begin
            last.end = max(last.end, end)
            last.spans.append(span)
            last.covered += end - begin
            last.is_cut = last.is_cut or is_cut
        else:
            found.append(Segment(span.kind, begin, end, [span], is_cut, end - begin, end - begin))
    return found
