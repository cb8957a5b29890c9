"""The report of a sweep."""

from collections.abc import Mapping
from typing import Any

from rampart_fl.services.console.html_report.charts import Band, Line, legend, line_chart
from rampart_fl.services.console.html_report.markup import Html, section, table
from rampart_fl.services.console.html_report.page import code, facts, page
from rampart_fl.services.console.studies.sweeps import Panels, headlines, label, panels

STYLES = ("one", "two", "three", "four", "five", "six")


def sweep_report(content: Mapping[str, Any], digests: Mapping[str, str]) -> str:
    """The report of a sweep as an HTML file.

    Args:
        content: the content of `sweep.json`.
        digests: SHA-256 of the files that were read.
    """
    rows, axes = content["sweep"], content["axes"]
    about = "Every point of the sweep: means over its runs, with the standard deviation over seeds."
    names = {
        "Axes": ", ".join(axes),
        "Points": len(rows),
        "Runs": sum(row["runs"] for row in rows),
        "Digest of the sweep": code(content["experiment_digest"]),
    }
    files = [[code(name), code(digest)] for name, digest in digests.items()]
    return page(
        "Sweep",
        content["experiment"],
        about,
        [
            section("What ran", facts(names), table(["File of this report", "SHA-256"], files)),
            *_charts(panels(content)),
            _points(content),
        ],
    )


def _charts(plots: Panels) -> list[Html]:
    if not all(isinstance(value, int | float) for value in plots.at):
        # A chart needs numbers on its horizontal axis, but this axis of the sweep has names. The
        # report then has no charts, but still the table of all points.
        return []
    order = sorted(range(len(plots.at)), key=lambda n: float(plots.at[n]))
    at = [float(plots.at[n]) for n in order]
    made = []
    for figure, named in plots.lines.items():
        lines, bands = [], []
        for number, (name, values) in enumerate(named.items()):
            style = STYLES[number % len(STYLES)]
            known = [values[n] for n in order]
            lines.append(Line(name, known, style))
            half = [plots.spread[figure, name][n] or 0.0 for n in order]
            pairs = list(zip(known, half, strict=True))
            low = [None if value is None else value - width for value, width in pairs]
            high = [None if value is None else value + width for value, width in pairs]
            bands.append(Band(low, high, f"band {style}"))
        share = figure.startswith(("accuracy", "attack_success"))
        chart = line_chart(
            f"{figure} over {plots.along}",
            at,
            lines,
            axis=plots.along,
            bands=bands,
            bounds=(0.0, 1.0) if share else None,
            percent=share,
        )
        keys = legend([(line.style, line.name) for line in lines])
        made.append(section(_title(figure), chart, keys))
    return made


def _points(content: Mapping[str, Any]) -> Html:
    axes, rows = content["axes"], content["sweep"]
    shown = headlines(rows)
    cells = []
    for row in rows:
        line: list[Any] = [label(row[key]) for key in axes] + [row["runs"]]
        for name in shown:
            value, half = row.get(name), row["spread"].get(name)
            text = "-" if value is None else f"{value:.4g}"
            line.append(text if half is None else f"{text} ± {half:.2g}")
        cells.append(line)
    head = [*axes, "Runs", *map(_title, shown)]
    return section("Points", table(head, cells, range(len(axes), len(head))))


def _title(figure: str) -> str:
    return figure.replace("_", " ").capitalize()
