"""`rampart matrix`: runs the cells of a matrix, in this process or over HTTP.

The results of a cell are stored in a file named after the digest of its experiment, so that no
experiment is run twice.
"""

import shutil
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rampart_fl.services.console.studies.batch import (
    failed,
    read,
    run_all_cached,
    run_simulation,
)
from rampart_fl.services.console.studies.batch import follow as show
from rampart_fl.services.console.studies.matrix_cells import LOCAL_ONLY, NOBODY, MatrixCell
from rampart_fl.services.console.studies.network_run import run_or_continue
from rampart_fl.services.console.studies.pools import Pool
from rampart_fl.services.console.studies.start_file import folder_of, start_digest
from rampart_fl.shared.errors import RampartError
from rampart_fl.shared.runtime import durable


def figures_of(cell: MatrixCell, folder: Path, device: str = "cpu") -> dict[str, Any]:
    """Runs a cell; returns its results, or its error if it fails.

    Args:
        cell: the cell to run.
        folder: folder for the services' files while a cell runs over HTTP.
        device: device of the simulation, or of the aggregator if the cell runs over HTTP.
    """
    try:
        if not cell.network:
            return run_simulation(cell.experiment, device)
        runs = folder / "runs" / f"network-{folder_of(cell.experiment)}"
        figures = run_or_continue(cell.experiment, runs, device)
        shutil.rmtree(runs)  # The clients' models and updates are no longer needed.
        return figures
    except RampartError as error:
        return {"error": f"{type(error).__name__}: {error}"}


def _place(cell: MatrixCell, folder: Path) -> Path:
    return folder / "cells" / cell.file


def adjust_metrics(cell: MatrixCell, figures: dict[str, Any]) -> dict[str, Any]:
    """Adjusts a run's metrics if its cell has no attack, or has the defence `local_only`.

    In the row without an attack, every client is honest. So `fpr` becomes the evicted fraction of
    all clients, and `dacc` and `fnr` become None. Under `local_only`, a client receives no model,
    so the metrics of the received model become None. The client trains its personal model locally,
    so the metrics of the personal model replace those of the model `local`.
    """
    if failed(figures):
        return figures
    row = dict(figures)
    if cell.attack == NOBODY:
        wronged = len(row["evicted"]) / cell.experiment.data.clients
        row |= {"dacc": None, "fnr": None, "fpr": wronged}
    if cell.defence == LOCAL_ONLY:
        for figure in ("accuracy", "attack_success"):
            own = row.get(f"{figure}_personalized")
            row |= {f"{figure}_customized": None, f"{figure}_local": own}
    return row


def run(
    cells: Sequence[MatrixCell], folder: Path, pool: Pool | None = None, device: str = "cpu"
) -> Iterator[tuple[MatrixCell, dict[str, Any]]]:
    """Runs cells in a pool; yields each cell with its results, cached cells first.

    Cells with the same experiment share one run.
    """
    alike = defaultdict[str, list[MatrixCell]](list)
    for cell in cells:
        alike[cell.file].append(cell)
    firsts = [same[0] for same in alike.values()]
    one = partial(figures_of, folder=folder, device=device)
    cached = run_all_cached(
        one, firsts, lambda cell: _place(cell, folder), pool, lambda cell: cell.experiment
    )
    for first, figures in cached:
        for cell in alike[first.file]:
            yield cell, adjust_metrics(cell, figures)


def follow(
    cells: Sequence[MatrixCell],
    folder: Path,
    pool: Pool | None,
    on_result: Callable[[MatrixCell, dict[str, Any]], None],
    device: str = "cpu",
) -> None:
    """Runs cells and shows a progress bar on standard error; cached cells come first."""
    durable.make_folder(folder)  # An unusable folder is reported before the first run.
    before, ahead = list[MatrixCell](), list[MatrixCell]()
    for cell in cells:
        stored = read(_place(cell, folder), start_digest(cell.experiment))
        (ahead if stored is None else before).append(cell)
    for cell, figures in run(before, folder):
        on_result(cell, figures)
    if before:
        sys.stderr.write(f"{len(before)} of {len(cells)} runs are already in {folder / 'cells'}\n")
    show(
        "matrix",
        len(ahead),
        run(ahead, folder, pool, device),
        lambda cell: f"{cell.attack} / {cell.defence} seed={cell.experiment.seed}",
        on_result,
        figure="accuracy_local",
    )
