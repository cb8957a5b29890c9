"""`rampart simulate` with a [sweep] table: runs all points, and reports their metrics."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rampart_fl.services.console.display.formats import aligned
from rampart_fl.services.console.studies.batch import (
    Figures,
    follow,
    run_all,
    run_all_cached,
    run_simulation,
)
from rampart_fl.services.console.studies.plots import curves
from rampart_fl.services.console.studies.pools import Pool
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.sweep import GridPoint, Sweep, averaged
from rampart_fl.shared.figures.run_result import AccuracySource
from rampart_fl.shared.runtime import durable
from rampart_fl.shared.validation import validate

HEADLINES = ("error", "accuracy", "accuracy_customized", "accuracy_personalized", "attack_success")
"""Metrics that tables and curves show, if the points of the sweep have them."""


@dataclass(frozen=True)
class SweepRun:
    """One experiment of a sweep, with the index of its point."""

    point: int
    experiment: Experiment


def figures_of(run: SweepRun, device: str, accuracy_of: AccuracySource, threads: int) -> Figures:
    """Simulates one run; returns its results."""
    return run_simulation(run.experiment, device, accuracy_of, threads)


def sweep(
    grid: Sweep,
    *,
    device: str = "cpu",
    accuracy_of: AccuracySource = "last",
    folder: Path | None = None,
    threads: int = 1,
    pool: Pool | None = None,
) -> dict[str, Any]:
    """Runs all points of a sweep, shows a progress bar, and averages the runs of each point.

    Args:
        grid: the sweep to run.
        device: device of the models and data.
        accuracy_of: the source of the final accuracies; see `AccuracySource`.
        folder: folder in which the results of every run are cached.
        threads: number of compute threads of a run.
        pool: where to run the points; by default, one after another in this process.
    """
    points, results = grid.points(validate), defaultdict[int, dict[int, Figures]](dict)
    if folder is not None:
        durable.make_folder(folder)  # An unusable folder is reported before the first run.
    # Sort runs by seed, because runs with the same data and seed share cached data.
    by_seed = zip(*(point.runs for point in points), strict=True)
    runs = [SweepRun(i, run) for one in by_seed for i, run in enumerate(one)]

    def keep(run: SweepRun, figures: Figures) -> None:
        results[run.point][run.experiment.seed] = figures

    def named(run: SweepRun) -> str:
        return f"{describe(points[run.point])} seed={run.experiment.seed}"

    def path(run: SweepRun) -> Path:
        return (folder or Path()) / "runs" / f"{run.experiment.digest()}-{accuracy_of}.json"

    one = partial(figures_of, device=device, accuracy_of=accuracy_of, threads=threads)
    if folder is None:
        ended = run_all(one, runs, pool)
    else:
        ended = run_all_cached(one, runs, path, pool, lambda run: run.experiment)
    follow(grid.base.name, len(runs), ended, named, keep)
    rows = []
    for number, point in enumerate(points):
        figures = [results[number][run.seed] for run in point.runs]
        rows.append({**point.at, **averaged(figures), **point.at})
    return {
        "experiment": grid.base.name,
        "experiment_digest": grid.digest(),
        "axes": [axis.key for axis in grid.axes],
        "sweep": rows,
        "seconds": round(
            sum(one["seconds"] for runs in results.values() for one in runs.values()), 3
        ),
    }


def describe(point: GridPoint) -> str:
    """A point of the sweep as text: its value on each axis."""
    return " ".join(f"{key}={label(value)}" for key, value in point.at.items())


def label(value: Any) -> str:
    """A value of an axis as text; different numbers have different texts.

    >>> label(0.5), label(["nnm", {"name": "krum", "f": 2}])
    ('0.5', 'nnm+krum(f=2)')
    """
    if isinstance(value, list):
        return "+".join(map(label, value)) or "none"
    if isinstance(value, dict):
        inside = ", ".join(f"{k}={label(v)}" for k, v in value.items() if k != "name")
        return str(value.get("name", "")) + (f"({inside})" if inside else "")
    if isinstance(value, float):
        short = f"{value:g}"
        return short if float(short) == value else repr(value)
    return str(value)


def headlines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The metrics to show: the metrics in `HEADLINES` that at least one point has."""
    return [name for name in HEADLINES if any(row.get(name) is not None for row in rows)]


def table(result: dict[str, Any]) -> str:
    """The points as a table in plain text: means and standard deviations over runs."""
    rows, shown = result["sweep"], headlines(result["sweep"])
    lines = [[*result["axes"], "runs", *shown]]
    for row in rows:
        cells = [label(row[key]) for key in result["axes"]] + [str(row["runs"])]
        for name in shown:
            value, half = row.get(name), row["spread"].get(name)
            text = "-" if value is None else f"{value:.4g}"
            cells.append(text if half is None else f"{text} ± {half:.2g}")
        lines.append(cells)
    return aligned(lines)


def write(result: dict[str, Any], folder: Path) -> None:
    """Writes sweep.json and sweep.png; the plot's x-axis is the sweep's axis with the most values.

    Raises:
        MatplotlibMissing: matplotlib is not installed; sweep.json has been written.
    """
    durable.make_folder(folder)
    durable.replace_text(folder / "sweep.json", json.dumps(result, indent=1) + "\n")
    plots = panels(result)
    if plots.lines:
        picture, title = folder / "sweep.png", result["experiment"]
        curves(picture, title, plots.along, plots.at, plots.lines, plots.spread)


@dataclass(frozen=True)
class Panels:
    """The curves of a sweep: its metrics along the axis with the most values (the longest axis).

    Args:
        along: the key of the longest axis.
        at: the values on the longest axis. If one of them is not a number, all are given as text.
        lines: the curves, keyed by metric and then by name. A curve's name states the values on the
            other axes.
        spread: standard deviations over runs, keyed by metric and by name of the curve.
    """

    along: str
    at: list[Any]
    lines: dict[str, dict[str, list[float | None]]]
    spread: dict[tuple[str, str], list[float | None]]


def panels(result: Mapping[str, Any]) -> Panels:
    """Extracts the curves from the result of a sweep."""
    rows, axes = result["sweep"], result["axes"]
    different = {key: list(dict.fromkeys(label(row[key]) for row in rows)) for key in axes}
    along = max(axes, key=lambda key: len(different[key]))
    others = [key for key in axes if key != along]
    at = [next(r[along] for r in rows if label(r[along]) == text) for text in different[along]]
    if not all(isinstance(value, int | float) for value in at):
        at = different[along]
    lines: dict[str, dict[str, list[float | None]]] = {}
    spread: dict[tuple[str, str], list[float | None]] = {}
    for name in headlines(rows):
        for row in rows:
            line = " ".join(f"{key}={label(row[key])}" for key in others) or name
            lines.setdefault(name, {}).setdefault(line, []).append(row.get(name))
            spread.setdefault((name, line), []).append(row["spread"].get(name))
    return Panels(along, at, lines, spread)
