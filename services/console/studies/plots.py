"""Pictures as PNG files, where matplotlib is installed."""

from collections.abc import Mapping, Sequence
from math import nan
from pathlib import Path
from typing import Any

from rampart_fl.shared.errors import RampartError


class NoPlots(RampartError):
    """A picture was asked for, and the library that draws it is not there."""

    slug = "no-plots"
    title = "matplotlib is missing"


def figure(width: float, height: float, what: str = "picture") -> Any:
    """An empty matplotlib figure that can be saved, in inches.

    Raises:
        NoPlots: matplotlib is not installed; says which picture there is none of.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise NoPlots(
            f"no {what} without matplotlib; install it with: pip install 'rampart[plots]'"
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
) -> None:
    """Draws lines over one axis, one panel beside the other.

    Args:
        path: the PNG file.
        title: above all.
        axis: what is counted from left to right.
        at: where the points of every line are: numbers, or names side by side.
        panels: by what a panel shows, its lines by name; gaps where a value is None.
        spread: half the height of a band around a line, by panel and line.
    Raises:
        NoPlots: matplotlib is not installed.
    """
    picture = figure(5 * len(panels) + 0.5, 4, "curves")
    picture.suptitle(title)
    for place, (shown, lines) in zip(
        picture.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True
    ):
        for name, values in lines.items():
            known = [nan if value is None else value for value in values]
            (line,) = place.plot(at, known, label=name, marker="." if len(at) < 60 else "")
            band = [half or 0.0 for half in (spread or {}).get((shown, name), ())]
            if band:
                low = [value - half for value, half in zip(known, band, strict=True)]
                high = [value + half for value, half in zip(known, band, strict=True)]
                place.fill_between(at, low, high, color=line.get_color(), alpha=0.2)
        place.set_xlabel(axis)
        place.set_ylabel(shown)
        place.grid(alpha=0.3)
        place.legend()
    picture.savefig(path, dpi=90)
