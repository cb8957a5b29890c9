"""Executes many runs, optionally in parallel; results of finished runs are cached and reused."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from rampart_fl.services.console.progress import Progress
from rampart_fl.services.console.studies.pools import Pool
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.figures.final import Final
from rampart_fl.shared.runtime import durable

T = TypeVar("T")
R = TypeVar("R")
Figures = dict[str, Any]


def run_simulation(
    experiment: Experiment, device: str = "cpu", accuracy: Final = "last", threads: int = 1
) -> Figures:
    """Simulates an experiment in this process; returns the results."""
    from rampart_fl.shared.runtime.threads import use
    from rampart_fl.shared.simulation import simulate

    with use(threads):
        return simulate(experiment, device=device, accuracy=accuracy).summary()


def run_all(
    run: Callable[[T], R], items: Sequence[T], pool: Pool | None = None
) -> Iterator[tuple[T, R]]:
    """Calls `run` for each item; yields the item and its result as soon as the call ends.

    Args:
        run: function that runs one item; must be picklable if another process calls it.
        items: the items to run.
        pool: where to run the items; by default, one after another in this process.
    """
    if pool is None:
        yield from ((item, run(item)) for item in items)
    elif items:
        with pool() as executor:
            running = {executor.submit(run, item): item for item in items}
            for done in as_completed(running):
                yield running[done], done.result()


def run_all_cached(
    run: Callable[[T], Figures],
    items: Sequence[T],
    path: Callable[[T], Path],
    pool: Pool | None = None,
) -> Iterator[tuple[T, Figures]]:
    """Like `run_all`, but reads stored results from files, and writes new results to files.

    Only this process reads and writes the files. The results of failed runs are not written.

    Args:
        run: function that runs one item.
        items: the items; items with stored results are yielded first.
        path: returns the file for an item's results; the file's name contains the experiment's
            digest.
        pool: where to run the items.
    """
    left = []
    for item in items:
        from_file = read(path(item))
        if from_file is None:
            left.append(item)
        else:
            yield item, from_file
    for item, figures in run_all(run, left, pool):
        if not failed(figures):
            write(path(item), figures)
        yield item, figures


def read(path: Path) -> Figures | None:
    """The results in a file; None if the file is missing or damaged."""
    with suppress(FileNotFoundError, ValueError):  # The file may be empty after a power cut.
        figures: Figures = json.loads(path.read_text(encoding="utf-8"))
        return figures
    return None


def write(path: Path, figures: Figures) -> None:
    """Writes results to a file atomically; if writing fails, the file does not change."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(figures[key])}" for key in figures)
    durable.replace(path, [f"{{\n{lines}\n}}\n".encode()])


def failed(figures: Figures) -> bool:
    """Whether the run failed; a failed run has no metrics, only the reason for the failure.

    >>> failed({"error": "too few rows"}), failed({"error": 0.25})
    (True, False)
    """
    return isinstance(figures.get("error"), str)


def follow(
    title: str,
    total: int,
    runs: Iterator[tuple[T, Figures]],
    label: Callable[[T], str],
    on_result: Callable[[T, Figures], None],
    figure: str = "accuracy",
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Waits for all runs to end, and shows a progress bar on standard error.

    If standard error is not a terminal, prints one line per run instead. Both the progress bar and
    the printed lines show the time left.

    Args:
        title: title of the progress bar.
        total: number of runs.
        runs: pairs of a run and its results, as yielded by `run_all`.
        label: returns the name of a run.
        on_result: called with each run and its results.
        figure: name of the metric that is shown for each run.
        clock: function that returns the time in seconds.
    """
    with Progress(title, total, every=0.0, clock=clock) as progress:
        for number, (item, figures) in enumerate(runs, 1):
            on_result(item, figures)
            line = f"{label(item)}: {headline(figures, figure)}"
            progress.show(number, label=label(item), line=line)


def headline(figures: Figures, figure: str = "accuracy") -> str:
    """A run's result in a few words: the failure, the estimation error, or the metric `figure`."""
    error = figures.get("error")
    if error is not None:
        return error if isinstance(error, str) else f"error {error:.4g}"
    return f"{figure} {figures[figure]}"
