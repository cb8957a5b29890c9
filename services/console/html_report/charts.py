"""Charts as inline SVG: line charts, and a matrix with the decision on each client per round."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil, floor, log10

from rampart_fl.services.console.html_report.markup import Html, tag
from rampart_fl.shared.rounding import ceil_div

WIDTH, HEIGHT = 880.0, 260.0
LEFT, RIGHT, TOP, BOTTOM = 62.0, 12.0, 12.0, 38.0
POINTS = 400
"""Maximum number of points in a line.

If a line has more values, only every n-th value is drawn. The number n is as small as possible."""


@dataclass(frozen=True)
class Line:
    """A line of a chart.

    Args:
        name: the line's name, shown in a legend and as a tooltip.
        values: the line's values; None leaves a gap.
        style: a class of the style sheet.
    """

    name: str
    values: Sequence[float | None]
    style: str


@dataclass(frozen=True)
class Band:
    """The area between two lines."""

    low: Sequence[float | None]
    high: Sequence[float | None]
    style: str = "band"


def line_chart(
    label: str,
    at: Sequence[float],
    lines: Sequence[Line],
    *,
    axis: str = "round",
    bands: Sequence[Band] = (),
    marks: Mapping[float, str] | None = None,
    bounds: tuple[float, float] | None = None,
    percent: bool = False,
) -> Html:
    """Draws lines over a shared horizontal axis.

    Args:
        label: a description of the chart, for screen readers.
        at: positions on the horizontal axis, in ascending order.
        lines: the lines.
        axis: title of the horizontal axis.
        bands: areas behind the lines.
        marks: the text of each vertical mark, keyed by the mark's horizontal position.
        bounds: the lowest and highest value shown; values outside are drawn at the edge.
        percent: whether the values are fractions; the axis then shows them in percent.
    """
    known = [v for line in lines for v in line.values if v is not None]
    known += [v for band in bands for side in (band.low, band.high) for v in side if v is not None]
    low, high = bounds or (min(known, default=0.0), max(known, default=1.0))
    ticks = axis_ticks(low, high)
    first, last = (at[0], at[-1]) if at else (0.0, 1.0)
    scales = _Scales(first, last, min(low, ticks[0]), max(high, ticks[-1]))
    drawn = [
        *_values_axis(scales, ticks, percent),
        *_horizontal_axis(scales, axis),
        *(path for band in bands for path in _band(scales, at, band)),
        *(_mark(scales, position, text) for position, text in (marks or {}).items()),
        *(path for line in lines for path in _line(scales, at, line)),
    ]
    return _svg(label, HEIGHT, drawn)


@dataclass(frozen=True)
class _Scales:
    """The ranges of a chart's axes, which determine where a value is drawn."""

    first: float
    last: float
    low: float
    high: float

    def x(self, value: float) -> float:
        """The horizontal place of a value."""
        share = (value - self.first) / ((self.last - self.first) or 1.0)
        return LEFT + share * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        """The vertical place of a value; a value beyond the axis is placed at the axis's nearer
        end."""
        inside = min(max(value, self.low), self.high)
        share = (self.high - inside) / ((self.high - self.low) or 1.0)
        return TOP + share * (HEIGHT - TOP - BOTTOM)

    def runs(
        self, at: Sequence[float], values: Sequence[float | None]
    ) -> list[list[tuple[float, float]]]:
        """The points (x, y) of a line, split at gaps; at most `POINTS` points are kept."""
        step = max(1, ceil_div(len(at), POINTS))
        known = [
            (self.x(at[i]), self.y(v)) if (v := values[i]) is not None else None
            for i in range(0, len(values), step)
        ]
        return [
            [p for p in run if p] for there, run in groupby(known, lambda p: p is not None) if there
        ]


def _values_axis(scales: _Scales, ticks: Sequence[float], percent: bool) -> list[Html]:
    drawn = []
    for tick in ticks:
        y = scales.y(tick)
        drawn.append(tag("line", x1=LEFT, x2=WIDTH - RIGHT, y1=y, y2=y, class_="grid"))
        shown = f"{100 * tick:g} %" if percent else f"{tick:g}"
        drawn.append(tag("text", shown, x=LEFT - 8, y=y + 4, text_anchor="end"))
    return drawn


def _horizontal_axis(scales: _Scales, axis: str) -> list[Html]:
    drawn = [
        tag("text", f"{tick:g}", x=scales.x(tick), y=HEIGHT - BOTTOM + 18, text_anchor="middle")
        for tick in axis_ticks(scales.first, scales.last, whole=axis == "round")
        if scales.first <= tick <= scales.last
    ]
    title = tag("text", axis, x=(LEFT + WIDTH) / 2, y=HEIGHT - 4, text_anchor="middle")
    return [*drawn, title]


def _band(scales: _Scales, at: Sequence[float], band: Band) -> list[Html]:
    sides = zip(scales.runs(at, band.low), scales.runs(at, band.high), strict=True)
    return [
        tag("path", d=f"{_path(below + above[::-1])}Z", class_=band.style) for below, above in sides
    ]


def _mark(scales: _Scales, position: float, text: str) -> Html:
    place = scales.x(position)
    return tag(
        "line",
        tag("title", text),
        x1=place,
        x2=place,
        y1=TOP,
        y2=HEIGHT - BOTTOM,
        class_="mark",
    )


def _line(scales: _Scales, at: Sequence[float], line: Line) -> list[Html]:
    title, drawn = tag("title", line.name), []
    for run in scales.runs(at, line.values):
        if len(run) == 1:
            ((cx, cy),) = run
            drawn.append(tag("circle", title, cx=cx, cy=cy, r=3, class_=f"dot {line.style}"))
        else:
            drawn.append(tag("path", title, d=_path(run), class_=f"line {line.style}"))
    return drawn


def legend(entries: Sequence[tuple[str, str]]) -> Html:
    """The legend of a chart; each entry has a style class (for the colour) and a text."""
    return tag(
        "ul",
        [tag("li", tag("span", class_=f"key {s}"), name) for s, name in entries],
        class_="legend",
    )


def matrix(label: str, rounds: Sequence[int], rows: Sequence[tuple[str, Sequence[str]]]) -> Html:
    """Draws the decisions on clients (rows) in each round (columns).

    Equal decisions on a client in consecutive rounds share a rectangle.

    Args:
        label: a description of the matrix, for screen readers.
        rounds: the numbers of the rounds; each round is a column.
        rows: for each client, the name and the list of decisions, one per round; "" leaves a gap.
    """
    longest = max((len(name) for name, _ in rows), default=0)
    left = min(7.2 * min(longest, 24) + 12, 200)
    cell = (WIDTH - left - RIGHT) / max(len(rounds), 1)
    tall = 16.0 if len(rows) <= 60 else 9.0
    height = TOP + tall * len(rows) + BOTTOM
    drawn: list[Html] = []
    for number, (name, decisions) in enumerate(rows):
        top = TOP + number * tall
        short = name if len(name) <= 24 else f"{name[:23]}…"
        drawn.append(
            tag("text", short, x=left - 8, y=top + tall - 4, text_anchor="end", class_="row")
        )
        start = 0
        for decision, stretch in groupby(decisions):
            length = len(list(stretch))
            if decision:
                until = f" to {rounds[start + length - 1]}" if length > 1 else ""
                title = tag("title", f"{name}: {decision} in round {rounds[start]}{until}")
                drawn.append(
                    tag(
                        "rect",
                        title,
                        x=left + start * cell,
                        y=top,
                        width=cell * length,
                        height=tall - 1,
                        class_=f"cell {decision}",
                    )
                )
            start += length
    every = max(1, ceil_div(len(rounds), 20))
    for column in range(0, len(rounds), every):
        place = left + (column + 0.5) * cell
        drawn.append(
            tag("text", rounds[column], x=place, y=height - BOTTOM + 18, text_anchor="middle")
        )
    middle = (left + WIDTH) / 2
    drawn.append(tag("text", "round", x=middle, y=height - 4, text_anchor="middle"))
    return _svg(label, height, drawn)


def axis_ticks(low: float, high: float, whole: bool = False) -> list[float]:
    """Ticks of an axis at simple numbers such as 0.2 or 50, approximately from `low` to `high`.

    >>> axis_ticks(0.0, 0.97), axis_ticks(0, 39, whole=True)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 10.0, 20.0, 30.0, 40.0])
    """
    span = (high - low) or abs(high) or 1.0
    power = 10.0 ** floor(log10(span / 5))
    step = next(power * n for n in (1, 2, 5, 10) if span / (power * n) <= 5.5)
    step = max(step, 1.0) if whole else step
    start = floor(low / step)
    count = max(1, ceil((high - start * step) / step))
    return [round((start + n) * step, 12) for n in range(count + 1)]


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)


def _svg(label: str, height: float, drawn: Sequence[Html]) -> Html:
    box = f"0 0 {WIDTH:g} {height:g}"
    return tag("div", tag("svg", drawn, viewBox=box, role="img", aria_label=label), class_="wide")
