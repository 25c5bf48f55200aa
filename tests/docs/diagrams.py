"""The diagrams of the documentation, as SVG: that of a run's statuses comes from the table of transitions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape

from anvil_django.states import ADVANCING, TERMINAL, TRANSITIONS, UNFINISHED, RunStatus

Point = tuple[float, float]

STYLE = """
  .ground { fill: #ffffff; stroke: #d0d7de }
  .box { fill: #eef4fb; stroke: #3b6ea5; stroke-width: 1.5 }
  .rest { fill: #fdf6e3; stroke: #9a7b1e }
  .end { fill: #f0f0f0; stroke: #555555 }
  .frame { fill: none; stroke: #888888; stroke-dasharray: 5 4 }
  .edge { fill: none; stroke: #444444; stroke-width: 1.4; marker-end: url(#tip) }
  text { font-family: sans-serif; font-size: 13px; fill: #1f2328; text-anchor: middle }
  .small { font-size: 11px; fill: #4b5563 }
  .left { text-anchor: start }
  .mono { font-family: monospace; font-size: 13px }
"""
TIP = (
    '<marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0,0 L8,4 L0,8 z" fill="#444444"/></marker>'
)


def drawn() -> dict[str, str]:
    """Every diagram by the name of its file."""
    return {"run-statuses": run_statuses(), "steps": steps(), "in-doubt": in_doubt(), "doorbell": doorbell()}


def svg(title: str, width: int, height: int, parts: Iterator[str]) -> str:
    size, label = f'width="{width}" height="{height}"', f'role="img" aria-label="{escape(title)}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {size} {label}>',
        "<!-- Written by `make docs-write`. -->",
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>",
        f"<defs>{TIP}</defs>",
        f'<rect class="ground" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="6"/>',
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def box(centre: Point, label: str, kind: str = "", width: float = 96, height: float = 36) -> str:
    x, y = centre
    return (
        f'<rect class="box {kind}" x="{x - width / 2:g}" y="{y - height / 2:g}" width="{width:g}" '
        f'height="{height:g}" rx="7"/><text x="{x:g}" y="{y + 4.5:g}">{escape(label)}</text>'
    )


def text(at: Point, words: str, kind: str = "small") -> str:
    return f'<text class="{kind}" x="{at[0]:g}" y="{at[1]:g}">{escape(words)}</text>'


def edge(start: Point, bend: Point, end: Point) -> str:
    (x, y), (u, v), (z, w) = start, bend, end
    return f'<path class="edge" d="M{x:.1f},{y:.1f} Q{u:.1f},{v:.1f} {z:.1f},{w:.1f}"/>'


def border(centre: Point, towards: Point, width: float = 96, height: float = 36) -> Point:
    """Where the line from the centre of a box towards a point leaves the box."""
    x, y = towards[0] - centre[0], towards[1] - centre[1]
    scale = min(
        (width / 2 + 2) / abs(x) if x else math.inf,
        (height / 2 + 2) / abs(y) if y else math.inf,
    )
    return centre[0] + x * scale, centre[1] + y * scale


# The statuses of a run.

S = RunStatus
PLACES: dict[RunStatus, Point] = {
    S.QUEUED: (110, 240),
    S.RUNNING: (450, 240),
    S.SUSPENDED: (280, 120),
    S.PAUSED: (280, 330),
    S.FAILED: (450, 400),
    S.DONE: (690, 240),
    S.CANCELLED: (690, 400),
}
FRAME = (30, 80, 560, 450)
"""Around all that can be cancelled: one arrow leads from it to ``cancelled``."""
BENDS: dict[tuple[RunStatus, RunStatus], Point] = {
    (S.QUEUED, S.RUNNING): (280, 205),
    (S.RUNNING, S.QUEUED): (280, 275),
    (S.RUNNING, S.SUSPENDED): (430, 130),
    (S.SUSPENDED, S.QUEUED): (130, 130),
    (S.QUEUED, S.PAUSED): (205, 300),
    (S.PAUSED, S.QUEUED): (140, 330),
    (S.RUNNING, S.PAUSED): (410, 320),
    (S.RUNNING, S.FAILED): (450, 320),
    (S.QUEUED, S.FAILED): (130, 420),
    (S.FAILED, S.QUEUED): (60, 470),
    (S.RUNNING, S.DONE): (570, 240),
    (S.DONE, S.QUEUED): (100, -80),
    (S.CANCELLED, S.QUEUED): (-40, 600),
}
ENDS = {(S.CANCELLED, S.QUEUED): (60, 248)}
"""Where a move arrives, if not where its bend points to."""
LABELS: dict[tuple[RunStatus, RunStatus], tuple[str, Point]] = {
    (S.QUEUED, S.RUNNING): ("a worker takes it", (280, 214)),
    (S.RUNNING, S.QUEUED): ("slice over, or a later attempt", (283, 275)),
    (S.RUNNING, S.SUSPENDED): ("a person is asked", (500, 196)),
    (S.SUSPENDED, S.QUEUED): ("decided", (195, 158)),
    (S.RUNNING, S.DONE): ("finished", (590, 234)),
    (S.DONE, S.QUEUED): ("a further message", (330, 62)),
    (S.CANCELLED, S.QUEUED): ("a further message", (470, 486)),
    (S.PAUSED, S.QUEUED): ("resumed", (205, 356)),
    (S.FAILED, S.QUEUED): ("resumed, or a further message", (330, 438)),
}


def run_statuses() -> str:
    """The diagram of ``TRANSITIONS``; fails if it could not show one of them."""
    inside = {s for s, (x, y) in PLACES.items() if FRAME[0] < x < FRAME[2] and FRAME[1] < y < FRAME[3]}
    if inside != UNFINISHED:
        raise ValueError(f"the frame must hold what can be cancelled: {sorted(UNFINISHED)}")
    moves = {(one, to) for one, targets in TRANSITIONS.items() for to in targets if to is not S.CANCELLED}
    if moves != set(BENDS) or not set(LABELS) <= moves:
        raise ValueError(f"give a bend to each of {sorted(moves)}, and to no other")
    return svg("The statuses of a run and the moves between them", 780, 510, _statuses())


def _statuses() -> Iterator[str]:
    left, top, right, bottom = FRAME
    yield f'<rect class="frame" x="{left}" y="{top}" width="{right - left}" height="{bottom - top}" rx="10"/>'
    for (one, to), bend in BENDS.items():
        yield edge(border(PLACES[one], bend), bend, ENDS.get((one, to)) or border(PLACES[to], bend))
    gone = PLACES[S.CANCELLED]
    yield edge((right, gone[1]), ((right + gone[0]) / 2, gone[1]), border(gone, (right, gone[1])))
    yield text((602, gone[1] - 7), "cancelled")
    for words, at in LABELS.values():
        yield text(at, words)
    for status, place in PLACES.items():
        yield box(place, str(status), "" if status in ADVANCING else "end" if status in TERMINAL else "rest")


# What is committed when.


def steps() -> str:
    """The commits of an iteration with two side effects."""
    return svg("The commits of one iteration with two side effects", 780, 210, _steps())


def _steps() -> Iterator[str]:
    done = [
        ("model answers", ("the answer, usage,", "tool 1 started")),
        ("tool 1 runs", ("result 1,", "tool 2 started")),
        ("tool 2 runs", ("result 2,", "the turn is answered")),
        ("model answers", ("...", "")),
    ]
    for at, (what, stored) in enumerate(done):
        x = 110 + at * 185
        yield box((x, 50), what, "", 120)
        yield edge((x, 70), (x, 85), (x, 104))
        yield box((x, 124), "commit", "rest", 120)
        for line, words in enumerate(stored):
            yield text((x, 162 + line * 16), words)
        if at < len(done) - 1:
            yield edge((x + 62, 124), (x + 95, 87), (x + 123, 52))


# A side effect and a crash.


def in_doubt() -> str:
    """A crash at each place around a side effect, and what follows."""
    return svg("A side effect, and what a crash at each place means", 780, 230, _in_doubt())


def _in_doubt() -> Iterator[str]:
    places = [(130, "commit: started"), (390, "the tool acts"), (650, "commit: result")]
    for x, what in places:
        yield box((x, 50), what, "rest" if "commit" in what else "", 140)
    yield edge((202, 50), (260, 50), (316, 50))
    yield edge((462, 50), (520, 50), (576, 50))
    spans = [
        (20, 200, "crash before:", "it is not begun,", "and will be run"),
        (
            210,
            570,
            "crash in between:",
            "in doubt. on_interrupt decides: ask a person,",
            "run it again with its key, or tell the agent",
        ),
        (580, 760, "crash after:", "it is done,", "and never run again"),
    ]
    for left, right, *lines in spans:
        yield f'<path class="frame" d="M{left},95 L{right},95"/>'
        for line, words in enumerate(lines):
            yield text(((left + right) / 2, 122 + line * 18), words, "" if line == 0 else "small")
    yield text((390, 205), "An atomic tool has no middle: what it writes and its result are one commit.")


# The queue is a doorbell.


def doorbell() -> str:
    """Who writes what where."""
    return svg("Tables hold the truth, the queue rings", 780, 260, _doorbell())


def _doorbell() -> Iterator[str]:
    yield box((110, 60), "start_run, decide", "", 150)
    yield box((110, 200), "sweep", "", 150)
    yield box((400, 130), "your database", "rest", 150, 60)
    yield text((400, 180), "runs, messages, calls, decisions")
    yield box((400, 40), "queue", "end", 110)
    yield box((670, 130), "worker", "", 120)
    yield edge((187, 66), (270, 80), (323, 116))
    yield text((232, 112), "1 commit")
    yield edge((187, 54), (270, 44), (342, 41))
    yield text((262, 38), "2 ring: a run id")
    yield edge((457, 41), (600, 40), (660, 110))
    yield text((610, 52), "3 hear")
    yield edge((608, 122), (540, 110), (478, 122))
    yield text((543, 107), "4 claim the lease")
    yield edge((608, 140), (540, 152), (478, 140))
    yield text((543, 163), "5 save each step")
    yield edge((187, 196), (270, 180), (323, 146))
    yield text((248, 206), "finds what nobody hears, and rings again", "small left")
