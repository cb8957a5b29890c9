"""Plots as PNG or SVG files; they need matplotlib, which is optional."""

from collections.abc import Mapping, Sequence
from math import nan
from pathlib import Path
from typing import Any

from rampart_fl.shared.errors import RampartError
from rampart_fl.shared.rounding import ceil_div


class MatplotlibMissing(RampartError):
    """A plot was requested, but matplotlib is not installed."""

    slug = "no-plots"
    title = "matplotlib is missing"


COLUMNS = 5
"""Maximum number of panels side by side."""
COLORS = 10
"""Number of colours; further lines repeat the colours in another line style."""
STYLES = ("-", "--", ":")


def figure(width: float, height: float, what: str = "picture") -> Any:
    """An empty matplotlib figure with a width and height in inches, ready to be saved.

    Raises:
        MatplotlibMissing: matplotlib is not installed; the message names the missing plot.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MatplotlibMissing(
            f"no {what} without matplotlib; install it with: pip install 'rampart-fl[plots]'"
        ) from None
    made = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(made)
    return made


def curves(
    path: Path,
    title: str,
    axis: str,
    at: Sequence[Any],
    panels: Mapping[str, Mapping[str, Sequence[float | None]]],
    spread: Mapping[tuple[str, str], Sequence[float | None]] | None = None,
    kinds: Sequence[str] = ("png",),
) -> None:
    """Draws lines in panels, at most `COLUMNS` side by side, with the same horizontal axis.

    Args:
        path: path of the file; its suffix is replaced with the name of each format in `kinds`.
        title: title above all panels.
        axis: label of the horizontal axis.
        at: the points' positions on the horizontal axis. Positions are numbers, or names, which are
            drawn at equal distances.
        panels: the lines of each panel, keyed by the panel's label, then by the line's name; None
            leaves a gap in a line.
        spread: half the height of the band around a line at each position, keyed by panel and line.
        kinds: the formats to write, `png` or `svg`.
    Raises:
        MatplotlibMissing: matplotlib is not installed.
    """
    one_legend = len({tuple(lines) for lines in panels.values()}) == 1
    columns = min(len(panels), COLUMNS)
    rows = ceil_div(len(panels), columns)
    picture = figure(5 * columns + (2.5 if one_legend else 0.5), 4 * rows, "curves")
    picture.suptitle(title)
    places = list(picture.subplots(rows, columns, squeeze=False).flat)
    for place in places[len(panels) :]:
        place.set_axis_off()
    for place, (shown, lines) in zip(places, panels.items(), strict=False):
        for number, (name, values) in enumerate(lines.items()):
            known = [nan if value is None else value for value in values]
            style = STYLES[number // COLORS % len(STYLES)]
            mark = "." if len(at) < 60 else ""
            (line,) = place.plot(at, known, label=name, marker=mark, linestyle=style)
            band = [half or 0.0 for half in (spread or {}).get((shown, name), ())]
            if band:
                low = [value - half for value, half in zip(known, band, strict=True)]
                high = [value + half for value, half in zip(known, band, strict=True)]
                place.fill_between(at, low, high, color=line.get_color(), alpha=0.2)
        place.set_xlabel(axis)
        if isinstance(at[0], str):
            place.tick_params(axis="x", labelrotation=30)
        place.set_ylabel(shown)
        place.grid(alpha=0.3)
        if not one_legend:
            place.legend()
    if one_legend:  # The legend is outside the panels, so it hides no line.
        picture.legend(*places[0].get_legend_handles_labels(), loc="outside right upper")
    for kind in kinds:
        picture.savefig(path.with_suffix(f".{kind}"), dpi=90)
        picture.set_layout_engine("none")  # Reuse this layout: computing it is slow.
