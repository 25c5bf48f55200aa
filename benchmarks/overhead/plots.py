"""Plots for the documentation, as SVG; they need matplotlib (the dependency group ``bench``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .figures import Row, labels, value

STYLES = {
    "raw": ("#9e9e9e", ":"),
    "raw2": ("#616161", "--"),
    "raw-1rt": ("#bdbdbd", ":"),
    "django-rows": ("#2e7d32", "-."),
    "anvil": ("#c2410c", "-"),
}
"""Color and line of each contestant; peers get what is left."""
DATABASES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}


def draw(rows: Sequence[Row], folder: Path) -> tuple[dict[str, str], str]:
    """Draw what there are figures for.

    Args:
        rows: What was measured.
        folder: Where the files go.

    Returns:
        The titles by file name, and why there are none.
    """
    try:
        import matplotlib
    except ImportError:
        return {}, "No plots: matplotlib is not installed (dependency group `bench`)."
    matplotlib.use("svg")
    # The same figures give the same file.
    matplotlib.rcParams.update({"svg.hashsalt": "anvil", "svg.fonttype": "none", "font.size": 9})
    folder.mkdir(exist_ok=True)
    drawn = {}
    for name, (title, unit, axes) in PLOTS.items():
        lines = axes(rows)
        if any(any(points.values()) for points in lines.values()):
            _draw(folder / f"{name}.svg", title, unit, lines)
            drawn[f"{name}.svg"] = title
    return drawn, ""


Lines = dict[str, dict[str, dict[float, float]]]
"""By panel and by line: figures by their place on the x axis."""


def _against_length(what: str, key: str, scale: float = 1.0) -> Callable[[Sequence[Row]], Lines]:
    def lines(rows: Sequence[Row]) -> Lines:
        found: Lines = {}
        for kind, name in DATABASES.items():
            found[name] = {}
            for who in labels(rows, "contestant", what=what, db=kind, shape="read", size=1024):
                points = {
                    n: value(rows, key, what=what, db=kind, contestant=who, n=n)
                    for n in labels(rows, "n", what=what, db=kind, contestant=who, shape="read", size=1024)
                }
                found[name][who] = {n: at / scale for n, at in sorted(points.items()) if at is not None}
        return found

    return lines


def _against_workers(rows: Sequence[Row]) -> Lines:
    found: Lines = {}
    for kind in labels(rows, "db", what="workers"):
        for broker in labels(rows, "broker", what="workers", db=kind):
            asked: dict[str, Any] = {"what": "workers", "db": kind, "broker": broker, "wait": 0.05}
            points = {n: value(rows, "per_second", workers=n, **asked) for n in (1, 2, 4)}
            line = {float(n): at for n, at in points.items() if at is not None}
            found.setdefault(DATABASES[kind], {})[f"{broker} broker"] = line
    return found


PLOTS: dict[str, tuple[str, tuple[str, str], Callable[[Sequence[Row]], Lines]]] = {
    "time": ("Time per iteration", ("iterations of the run", "ms"), _against_length("run", "ms")),
    "bytes": ("Bytes per iteration", ("iterations of the run", "KB"), _against_length("run", "bytes", 1000)),
    "resume": (
        "Resume after a crash",
        ("iterations of the run", "ms"),
        _against_length("resume", "resume_ms"),
    ),
    "workers": ("Throughput, the model takes 50 ms", ("workers", "iterations/s"), _against_workers),
}


def _draw(path: Path, title: str, units: tuple[str, str], panels: Lines) -> None:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(panels), figsize=(4.2 * len(panels), 3.1), squeeze=False)
    for place, (name, lines) in zip(axes[0], panels.items(), strict=True):
        for who, points in lines.items():
            color, style = STYLES.get(who, (None, "-"))
            place.plot(
                list(points), list(points.values()), label=who, color=color, linestyle=style, marker="."
            )
        places = sorted({x for points in lines.values() for x in points})
        place.set_xscale("log")
        place.set_xticks(places, [f"{x:g}" for x in places])
        place.minorticks_off()
        top = max((y for points in lines.values() for y in points.values()), default=1)
        place.set_ylim(0, top * 1.4)  # With room for the legend.
        place.set_title(name)
        place.set_xlabel(units[0])
        place.set_ylabel(units[1])
        place.grid(True, alpha=0.3)
        if lines:
            place.legend(frameon=False, fontsize=8, ncols=3, loc="upper center")
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None})
    pyplot.close(figure)
