"""Writes our values and the paper's values as a table (Markdown, JSON) and a plot (SVG, PNG)."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from rampart_fl.services.console.studies.plots import curves
from rampart_fl.services.console.studies.reproduction.cells import TableCell
from rampart_fl.services.console.studies.reproduction.definition import (
    ROUNDS,
    Definition,
    Figure,
    Scale,
)
from rampart_fl.services.console.studies.reproduction.runs import (
    Results,
    metric_value,
    runs_of,
    seconds,
)
from rampart_fl.shared.figures.client_metrics import KINDS
from rampart_fl.shared.runtime import durable

SMOKE = """\
The scale `smoke` shows only that a cell runs: the data, the network and the rounds are not the
paper's."""


@dataclass(frozen=True)
class CellResult:
    """A cell's metric, averaged over seeds, in the unit of the table.

    Args:
        cell: the cell.
        mean: mean over the seeds; None if no run has the metric.
        half: half-width of the mean's 95 % confidence interval; None if there is only one seed.
        missing: why the cell or one of its runs has no value; None if nothing is missing.
        runs: the results of the cell's runs.
    """

    cell: TableCell
    mean: float | None
    half: float | None
    missing: str | None
    runs: list[dict[str, Any]]

    @property
    def difference(self) -> float | None:
        """The mean minus the paper's value."""
        if self.mean is None or self.cell.value is None:
            return None
        return self.mean - self.cell.value

    def __str__(self) -> str:
        """The metric with its interval, and in brackets the paper's value and the difference."""
        places = 1 if _scale(self.cell.measure) == 100 else 3
        paper = "" if self.cell.value is None else f"{self.cell.value:.2f}"
        if self.mean is None:
            return f"- ({paper})" if paper else "-"
        spread = "" if self.half is None else f" ± {self.half:.{places}f}"
        beside = f" ({paper}, {self.difference:+.{places}f})" if paper else ""
        return f"{self.mean:.{places}f}{spread}{beside}"


def outcome(cell: TableCell, results: Results) -> CellResult:
    """The metric of a cell, averaged over the completed seeds."""
    runs = runs_of(cell, results)
    failed = [run["error"] for run in runs if isinstance(run.get("error"), str)]
    values = [value for run in runs if (value := _value(run, cell.measure)) is not None]
    mean = fmean(values) if values else None
    missing = cell.reason or (failed[0] if failed else None)
    if mean is None and missing is None:
        missing = f"no run has the metric {cell.measure}" if runs else "not run"
    return CellResult(cell, mean, interval(values), missing, runs)


def _value(run: dict[str, Any], measure: str) -> float | None:
    """A metric as tables show it: shares in percent, lists as lengths, other numbers unchanged."""
    value = None if isinstance(run.get("error"), str) else metric_value(run, measure)
    if value is None:
        return None
    if isinstance(value, list):
        return float(len(value))
    return float(value) * _scale(measure)


def _scale(measure: str) -> int:
    """The factor by which tables multiply a metric: 100 for shares, 1 for other metrics."""
    return (
        1 if measure.startswith(("error", "largest_gap", "rounds", "seconds", "evicted")) else 100
    )


def interval(values: Sequence[float]) -> float | None:
    """Half-width of a mean's 95 % confidence interval (Student's t); None for a single value.

    >>> interval([1.0, 2.0, 3.0])
    2.48...
    """
    from scipy.stats import t

    if len(values) < 2:
        return None
    return float(t.ppf(0.975, len(values) - 1)) * stdev(values) / sqrt(len(values))


def markdown(
    definition: Definition, scale: Scale, outcomes: Sequence[CellResult], command: str
) -> str:
    """The table as Markdown; states why cells are missing, and which command made the table."""
    runs = {file: run for one in outcomes for file, run in _files(one)}
    seeds = max((len(one.runs) for one in outcomes), default=0)
    about = [
        f"Scale `{scale}`, {seeds} {'seed' if seeds == 1 else 'seeds'}, figure "
        f"`{definition.measure}` ({definition.accuracy}).",
        "Each cell has the mean over the seeds with its 95 % interval; in brackets, the paper's "
        "value and the difference.",
    ]
    lines = [f"# {definition.title}", "", *about, *([SMOKE] if scale == "smoke" else [])]
    lines += ["", *_table(definition, outcomes), *_notes(definition.notes), *_missing(outcomes)]
    lines += ["", "## Made by", "", "```sh", command, "```", ""]
    lines += [f"{seconds(runs):.0f} seconds of simulation. {_versions(runs)}", ""]
    return "\n".join(lines)


def _files(one: CellResult) -> list[tuple[str, dict[str, Any]]]:
    return [(f"{run.get('experiment_digest')}", run) for run in one.runs]


def _table(definition: Definition, outcomes: Sequence[CellResult]) -> list[str]:
    *outer, last = definition.axes
    columns = list(dict.fromkeys(one.cell.at[last] for one in outcomes))
    heads = [*(outer or ["table"]), *(definition.label(last, column) for column in columns)]
    lines = ["| " + " | ".join(heads) + " |", "|---" * max(len(outer), 1) + "|---:" * len(columns)]
    lines[1] += "|"
    for _, row in groupby(outcomes, key=lambda one: [one.cell.at[axis] for axis in outer]):
        cells = list(row)
        names = [definition.label(axis, cells[0].cell.at[axis]) for axis in outer] or [""]
        shown = {one.cell.at[last]: str(one) for one in cells}
        lines.append("| " + " | ".join([*names, *(shown.get(c, "-") for c in columns)]) + " |")
    return lines


def _notes(notes: Sequence[str]) -> list[str]:
    return ["", "## Notes", "", *(f"- {note}" for note in notes)] if notes else []


def _missing(outcomes: Sequence[CellResult]) -> list[str]:
    """The cells in which a value is missing, grouped by the reason."""
    reasons: dict[str, list[str]] = {}
    for one in outcomes:
        if one.missing is not None:
            reasons.setdefault(one.missing, []).append(" / ".join(one.cell.at.values()))
    if not reasons:
        return []
    lines = [f"- {reason}: {'; '.join(cells)}." for reason, cells in reasons.items()]
    return ["", "## Missing", "", *lines]


def _versions(results: Results) -> str:
    versions = {json.dumps(run["versions"]) for run in results.values() if "versions" in run}
    texts = [", ".join(f"{k} {v}" for k, v in json.loads(one).items()) for one in sorted(versions)]
    return f"Versions: {'; '.join(texts)}." if texts else ""


def plain(outcomes: Sequence[CellResult]) -> list[dict[str, Any]]:
    """All cells as plain JSON values."""
    return [
        {
            **one.cell.at,
            "measure": one.cell.measure,
            "mean": one.mean,
            "interval": one.half,
            "paper": one.cell.value,
            "difference": one.difference,
            "missing": one.missing,
            "digests": [run.digest() for run in one.cell.runs],
        }
        for one in outcomes
    ]


def write(
    folder: Path,
    name: str,
    definition: Definition,
    scale: Scale,
    outcomes: Sequence[CellResult],
    command: str,
) -> None:
    """Writes NAME-SCALE.md, .json, .svg and .png into the folder.

    Raises:
        MatplotlibMissing: matplotlib is not installed; the table has been written.
    """
    durable.make_folder(folder)
    base = f"{name}-{scale}"
    durable.replace_text(folder / f"{base}.md", markdown(definition, scale, outcomes, command))
    lines = ",\n".join(json.dumps(cell) for cell in plain(outcomes))
    head = json.dumps({"table": name, "scale": scale, "command": command})
    durable.replace_text(
        folder / f"{base}.json", f'{head.removesuffix("}")}, "cells": [\n{lines}\n]}}\n'
    )
    draw(folder / base, definition, outcomes)


def draw(base: Path, definition: Definition, outcomes: Sequence[CellResult]) -> None:
    """Draws the plot as SVG and PNG, if at least one cell has a mean.

    Raises:
        MatplotlibMissing: matplotlib is not installed.
    """
    if not any(one.mean is not None for one in outcomes):
        return
    drawn = definition.figure or Figure(along=definition.columns)
    at, panels, spread = lines_of(definition, drawn, outcomes)
    curves(base, base.name, drawn.along, at, panels, spread, kinds=("svg", "png"))


def lines_of(
    definition: Definition, drawn: Figure, outcomes: Sequence[CellResult]
) -> tuple[list[Any], dict[str, dict[str, list[float | None]]], dict[Any, list[float | None]]]:
    """The arguments of `plots.curves`: positions, panels with their lines, and intervals.

    The plot has a panel for every combination of a metric and a choice on the axis `drawn.panels`.
    If `drawn.together` is set, the metrics share a panel. Each panel has a line for every
    combination of choices on the axes other than `drawn.along` and `drawn.panels`.
    """
    panels: dict[str, dict[str, list[float | None]]] = {}
    spread: dict[Any, list[float | None]] = {}
    apart = {drawn.along, drawn.panels}
    choices = [] if drawn.along == ROUNDS else list(definition.axes[drawn.along])
    present = [c for c in choices if any(one.cell.at[drawn.along] == c for one in outcomes)]
    longest = max((len(_curve(one, "accuracy")) for one in outcomes), default=0)
    length = longest if drawn.along == ROUNDS else len(present)
    for measure in drawn.measures or [""]:
        for one in outcomes:
            of = one.cell.at
            panel = [definition.label(drawn.panels, of[drawn.panels])] if drawn.panels else []
            shown = measure or one.cell.measure.removesuffix(_kind(one))
            name = " ".join(definition.label(a, c) for a, c in of.items() if a not in apart)
            if drawn.together:
                title, name = " ".join(panel) or definition.title, f"{name} {shown}".strip()
            else:
                title = " ".join([*panel, shown])
            line = panels.setdefault(title, {}).setdefault(name or title, [None] * length)
            band = spread.setdefault((title, name or title), [None] * length)
            if drawn.along == ROUNDS:
                curve = _curve(one, measure or one.cell.measure)
                line[: len(curve)] = curve
            else:
                place = present.index(of[drawn.along])
                runs = [_value(run, measure or one.cell.measure) for run in one.runs]
                known = [value for value in runs if value is not None]
                line[place] = fmean(known) if known else None
                band[place] = interval(known)
    if drawn.along == ROUNDS:
        return list(range(1, length + 1)), panels, {}
    labels = [definition.label(drawn.along, choice) for choice in present]
    return _numbers(labels) or labels, panels, spread


def _kind(one: CellResult) -> str:
    """The part of a metric's name that states the kind of model, such as `_local`; "" if absent."""
    return next((f"_{kind}" for kind in KINDS if one.cell.measure.endswith(f"_{kind}")), "")


def _curve(one: CellResult, measure: str) -> list[float | None]:
    """The values of a metric in each round, averaged over the runs that have this metric."""
    lines = [run["curves"][measure] for run in one.runs if measure in run.get("curves", {})]
    means: list[float | None] = []
    for values in zip(*lines, strict=False):
        known = [value for value in values if value is not None]
        means.append(fmean(known) if known else None)
    return means


def _numbers(labels: Sequence[str]) -> list[float] | None:
    """The labels as numbers; None if a label is not a number."""
    try:
        return [float(label) for label in labels]
    except ValueError:
        return None
