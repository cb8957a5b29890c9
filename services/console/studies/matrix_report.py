"""The matrix of attacks and defences as Markdown, JSON and a heat map."""

import json
from collections.abc import Sequence
from itertools import compress
from math import nan
from pathlib import Path
from typing import Any

from rampart_fl.services.console.studies import plots
from rampart_fl.services.console.studies.matrix_cells import LOCAL_ONLY, NOBODY
from rampart_fl.services.console.studies.matrix_figures import (
    ACCURACIES,
    COSTLY,
    FIGURES,
    JUDGED,
    Grid,
    Matrix,
    SeedMean,
)
from rampart_fl.shared.runtime import durable

REFERENCES = f"""\
`{LOCAL_ONLY}` trains every client by itself: clients receive nothing, so no attack affects them.
`fine_tuned` is plain averaging after which each client keeps its locally trained model."""

HEAD = 2
"""Number of lines of a Markdown table above its first row."""


def markdown(matrix: Matrix, about: dict[str, Any]) -> str:
    """The matrix as Markdown: a summary by defence, then one table per metric.

    After each table of accuracies, a second table shows how much accuracy each attack costs.
    """
    facts = ", ".join(f"{name} {value}" for name, value in about.items() if name != "experiment")
    lines = [
        f"# Attacks and defences: {about['experiment']}",
        "",
        f"{facts}. All in percent, over the honest clients: mean ± standard deviation over seeds; "
        "a dash means that there is no value.",
        "",
        *REFERENCES.splitlines(),
        *_summary(matrix),
    ]
    for figure in matrix.metrics():
        lines += ["", f"## {FIGURES[figure]}", "", *_table(matrix, matrix.grid(figure))]
        if figure.startswith("accuracy") and NOBODY in matrix.attacks:
            lost = _table(matrix, matrix.losses(figure), without=NOBODY)
            if len(lost) > HEAD:  # If no loss is known, the table has no rows.
                lines += ["", f"### {FIGURES[figure]}: lost to the attack", "", *lost]
    failed = [
        f"- {attack} / {defence}, seed {run['seed']}: {run['error']}"
        for attack, defence, run in matrix.failures()
    ]
    if failed:
        lines += ["", "## Failed", "", *failed]
    return "\n".join(lines) + "\n"


def _summary(matrix: Matrix) -> list[str]:
    def format_means(values: Sequence[SeedMean | int | None]) -> str:
        return " / ".join(
            f"{100 * one.value:.1f}"
            if isinstance(one, SeedMean)
            else "-"
            if one is None
            else str(one)
            for one in values
        )

    figures = [f"accuracy_{kind}" for kind in ACCURACIES]
    rows = []
    for defence in matrix.defences:
        calm = format_means([matrix.mean(NOBODY, defence, figure) for figure in figures])
        worst = format_means([matrix.worst(defence, figure) for figure in figures])
        costly = format_means([matrix.costly(defence, figure) for figure in figures])
        rows.append(f"| {defence} | {calm} | {worst} | {costly} |")
    return [
        "",
        "## Summary",
        "",
        f"Accuracy {' / '.join(ACCURACIES.values())}; "
        "the worst attack may differ from model to model.",
        "",
        f"| defence | nobody attacks | worst attack | attacks costing {100 * COSTLY:g} or more |",
        "|---|---:|---:|---:|",
        *rows,
    ]


def _table(matrix: Matrix, grid: Grid, without: str = "") -> list[str]:
    """A table of attacks (rows) and defences (columns), without empty rows and columns."""
    lines = [
        (attack, row)
        for attack, row in zip(matrix.attacks, grid, strict=True)
        if any(row) and attack != without
    ]
    filled = _columns([row for _, row in lines])
    return [
        "| attack | " + " | ".join(compress(matrix.defences, filled)) + " |",
        "|---|" + "---:|" * sum(filled),
        *(
            f"| {attack} | " + " | ".join(str(mean or "-") for mean in compress(row, filled)) + " |"
            for attack, row in lines
        ),
    ]


def _columns(grid: Grid) -> list[bool]:
    """For each defence, whether its column of the grid contains any value."""
    return [any(column) for column in zip(*grid, strict=True)]


def heat_map(matrix: Matrix, path: Path, about: dict[str, Any], accuracy: str) -> None:
    """Draws one model's mean accuracy and mean attack success, and the mean DAcc, FPR and FNR.

    Args:
        matrix: the metrics.
        path: path of the PNG file.
        about: facts about the run for the title, such as the experiment's name.
        accuracy: name of the model whose accuracy is shown; a key of `ACCURACIES`.
    Raises:
        MatplotlibMissing: matplotlib is not installed.
    """
    shown = {f"accuracy_{accuracy}", f"attack_success_{accuracy}", *JUDGED}
    grids = {figure: matrix.grid(figure) for figure in matrix.metrics() if figure in shown}
    widths = [sum(_columns(grid)) + 1 for grid in grids.values()] or [1]
    size = (0.62 * sum(widths) + 3, 0.3 * len(matrix.attacks) + 2.2)
    picture = plots.figure(*size, "heat map")
    picture.suptitle(
        f"{about['experiment']}: accuracy {ACCURACIES[accuracy]}, "
        f"mean over seeds ({about['seeds']}), percent"
    )
    axes = picture.subplots(1, len(widths), sharey=True, squeeze=False, width_ratios=widths)[0]
    for axis, (figure, grid) in zip(axes, grids.items(), strict=False):
        filled = _columns(grid)
        values = [[100 * m.value if m else nan for m in compress(row, filled)] for row in grid]
        better = "RdYlGn" if figure.startswith(("accuracy", "dacc")) else "RdYlGn_r"
        axis.imshow(values, cmap=better, vmin=0, vmax=100, aspect="auto")
        title = FIGURES[figure].removesuffix(f" {ACCURACIES[accuracy]}")
        axis.set_title(title)
        columns = list(compress(matrix.defences, filled))
        axis.set_xticks(range(len(columns)), columns, rotation=60, ha="right")
        axis.set_yticks(range(len(matrix.attacks)), matrix.attacks)
        for i, row in enumerate(grid):
            for j, mean in enumerate(compress(row, filled)):
                text = f"{100 * mean.value:.0f}" if mean else ""
                axis.text(j, i, text, ha="center", va="center", fontsize=7)
    picture.savefig(path, dpi=72)


def write(matrix: Matrix, folder: Path, about: dict[str, Any], accuracy: str) -> None:
    """Writes matrix.md, matrix.json and matrix.png into a folder.

    Args:
        matrix: the metrics.
        folder: folder for the files; created if missing.
        about: facts about the run for the heading of the tables, such as the experiment's name.
        accuracy: name of the model whose accuracy the heat map shows; a key of `ACCURACIES`.
    Raises:
        MatplotlibMissing: matplotlib is not installed; matrix.md and matrix.json have been written.
    """
    durable.make_folder(folder)
    durable.replace_text(folder / "matrix.md", markdown(matrix, about))
    tables = matrix.tables(about)
    cells = ",\n".join(json.dumps(cell) for cell in tables.pop("cells"))
    head = json.dumps(tables).removesuffix("}")
    durable.replace_text(folder / "matrix.json", f'{head}, "cells": [\n{cells}\n]}}\n')
    heat_map(matrix, folder / "matrix.png", about, accuracy)
