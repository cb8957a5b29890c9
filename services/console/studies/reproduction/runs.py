"""Runs the cells of a table; results of finished runs are cached, and long runs have checkpoints.

The results of a run are stored in a small file named after the digest of its experiment. If two
tables contain the same experiment, both tables use the same file.
"""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rampart_fl.services.console.studies.batch import Figures, failed, follow, run_all_cached
from rampart_fl.services.console.studies.pools import Pool
from rampart_fl.services.console.studies.reproduction.cells import TableCell
from rampart_fl.services.console.studies.reproduction.curves import curves
from rampart_fl.services.console.studies.simulated import SimulationFolder
from rampart_fl.services.console.studies.simulated import run as simulated
from rampart_fl.services.console.studies.start_file import folder_of
from rampart_fl.services.console.studies.versions import versions
from rampart_fl.shared.errors import ConfigurationError, RampartError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.figures.client_metrics import KINDS
from rampart_fl.shared.runtime import durable
from rampart_fl.shared.simulation import SimulationResult

PARTS = ("accuracy", "attack_success", "error")
FIGURES = (
    *(name for part in PARTS for name in (part, *(f"{part}_{kind}" for kind in KINDS))),
    *(
        "accuracy_server",
        "largest_gap",
        "dacc",
        "fpr",
        "fnr",
        "evicted",
        "rounds",
        "failed_rounds",
        "seconds",
    ),
)
"""The metrics that are cached for each run, in addition to the run's curves."""


@dataclass(frozen=True)
class CellRun:
    """One cell with one seed."""

    cell: TableCell
    experiment: Experiment

    @property
    def file(self) -> str:
        """Name of the file with the results."""
        return f"{self.experiment.digest()}-{self.cell.accuracy}.json"

    def label(self) -> str:
        """The cell's choices and the run's seed, as text."""
        return f"{' / '.join(self.cell.at.values())} seed={self.experiment.seed}"


Results = dict[str, Figures]
"""The results of runs, keyed by file."""


def run(
    cells: Sequence[TableCell],
    folder: Path,
    *,
    title: str,
    resume: bool = False,
    pool: Pool | None = None,
    device: str = "cpu",
) -> Results:
    """Runs all cells and shows the progress; the result of a failed run is its error message.

    Args:
        cells: the cells; a cell with a `reason` is not run.
        folder: folder for cached results and checkpoints.
        title: title of the progress bar.
        resume: whether to use the results and checkpoints that an interrupted execution left in
            the folder.
        pool: where to run; by default, one run after another in this process.
        device: device of the models and data.
    Raises:
        ConfigurationError: the folder contains runs, but `resume` is not set.
    """
    if not resume and (folder / "cells").exists():
        raise ConfigurationError(
            f"{folder} holds runs: use --resume to continue, or choose another folder"
        )
    alike = {one.file: one for one in plan(cells)}
    results: Results = {}
    follow(
        title,
        len(alike),
        _run(list(alike.values()), folder, pool, device),
        CellRun.label,
        lambda one, figures: results.update({one.file: figures}),
        figure="shown",
    )
    return results


def plan(cells: Sequence[TableCell]) -> list[CellRun]:
    """All runs of the cells, sorted by seed, because runs with the same seed share cached data."""
    seeds = max((len(cell.runs) for cell in cells), default=0)
    return [CellRun(cell, cell.runs[seed]) for seed in range(seeds) for cell in cells if cell.runs]


def _run(
    runs: Sequence[CellRun], folder: Path, pool: Pool | None, device: str
) -> Iterator[tuple[CellRun, Figures]]:
    """Yields the runs with their results; runs with cached results come first."""
    durable.make_folder(folder)
    one = partial(figures_of, folder=folder.absolute(), device=device)
    cached = run_all_cached(
        one, runs, lambda run: folder / "cells" / run.file, pool, lambda run: run.experiment
    )
    for ended, figures in cached:
        if failed(figures):
            yield ended, figures
            continue
        # The checkpoint of a finished run is no longer needed.
        shutil.rmtree(folder / "runs" / folder_of(ended.experiment), ignore_errors=True)
        yield ended, {**figures, "shown": metric_value(figures, ended.cell.measure)}


def figures_of(one: CellRun, folder: Path, device: str) -> Figures:
    """Simulates a run; returns its results, or its error if it fails.

    An interrupted run continues from its last checkpoint. If the folder does not exist on this
    machine, for example on a node of a Ray cluster, the run has no checkpoints.
    """
    try:
        place = folder / "runs" / folder_of(one.experiment)
        result = simulated(
            one.experiment,
            device=device,
            folder=SimulationFolder(place) if folder.is_dir() else None,
            resume=True,
            accuracy_of=one.cell.accuracy,
            threads=1,
            live=False,
        )
    except RampartError as error:
        return {"error": str(error)}
    return {**small(result), "device": device, "versions": versions()}


def metric_value(figures: Figures, measure: str) -> Any:
    """Looks up a metric of a run by name; a suffix after a dot selects one of several values.

    >>> metric_value({"rounds_to_accuracy": {"0.8": 9}}, "rounds_to_accuracy.0.8")
    9
    """
    name, _, part = measure.partition(".")
    value = figures.get(name)
    return value.get(part) if part and isinstance(value, dict) else value


def small(result: SimulationResult) -> Figures:
    """The cached results of a run: the metrics in `FIGURES`, and the curves over rounds."""
    summary = result.summary()
    by_name: Mapping[str, Any] = summary
    return {
        "experiment": summary["experiment"],
        "experiment_digest": summary["experiment_digest"],
        "seed": result.experiment.seed,
        **{name: by_name[name] for name in FIGURES if by_name.get(name) is not None},
        "rounds_to_accuracy": summary["rounds_to_accuracy"],
        "curves": curves(result),
    }


def seconds(results: Results) -> float:
    """Total duration of all runs in seconds; a cached run counts with its original duration."""
    return sum(float(figures.get("seconds", 0.0)) for figures in results.values())


def runs_of(cell: TableCell, results: Results) -> list[dict[str, Any]]:
    """The results of a cell's runs, in the order of seeds; a failed run has only an `error`."""
    return [results[one.file] for one in plan([cell]) if one.file in results]
