"""Executes many runs, optionally in parallel; results of finished runs are cached and reused."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import as_completed
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from rampart_fl.services.console.display.progress import Progress
from rampart_fl.services.console.studies.pools import Pool
from rampart_fl.services.console.studies.start_file import START, start_digest
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.figures.run_result import AccuracySource
from rampart_fl.shared.runtime import durable

T = TypeVar("T")
R = TypeVar("R")
Figures = dict[str, Any]
VERSION = "rampart_version"
"""Files with results store the version of Rampart under this key. The version is only for people
who read the file: the results remain valid for other versions."""


def run_simulation(
    experiment: Experiment,
    device: str = "cpu",
    accuracy_of: AccuracySource = "last",
    threads: int = 1,
) -> Figures:
    """Simulates an experiment in this process; returns the results."""
    from rampart_fl.shared.runtime.threads import use
    from rampart_fl.shared.simulation import simulate

    with use(threads):
        return dict(simulate(experiment, device=device, accuracy_of=accuracy_of).summary())


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
    experiment: Callable[[T], Experiment] | None = None,
) -> Iterator[tuple[T, Figures]]:
    """Like `run_all`, but reads stored results from files, and writes new results to files.

    Only this process reads and writes the files. The results of failed runs are not written. Stored
    results are ignored if the model file from which the run started has changed since then.

    Args:
        run: function that runs one item.
        items: the items; items with stored results are yielded first.
        path: returns the file for an item's results; the file's name contains the experiment's
            digest.
        pool: where to run the items.
        experiment: returns an item's experiment; needed only if an item starts from a model file.
    """
    left, starts = [], dict[Path, str | None]()
    for item in items:
        file = path(item)
        starts[file] = None if experiment is None else start_digest(experiment(item))
        stored = read(file, starts[file])
        if stored is None:
            left.append(item)
        else:
            yield item, stored
    for item, figures in run_all(run, left, pool):
        if not failed(figures):
            write(path(item), figures, starts[path(item)])
        yield item, figures


def read(path: Path, start: str | None = None) -> Figures | None:
    """The results in a file.

    Args:
        path: the file.
        start: SHA-256 of the model file from which the run starts; None if there is none.
    Returns:
        None if the file is missing or damaged, or if the run started from another model file.
    """
    with suppress(FileNotFoundError, ValueError):  # A power cut can leave an empty file.
        stored: Figures = json.loads(path.read_text(encoding="utf-8"))
        return _without_origin(stored) if stored.get(START) == start else None
    return None


def write(path: Path, figures: Figures, start: str | None = None) -> None:
    """Writes results to a file atomically; if writing fails, the file does not change.

    The file also records the version of Rampart.

    Args:
        path: the file.
        figures: the results.
        start: SHA-256 of the model file from which the run starts; None if there is none. The file
            also records this hash.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    stored = {
        **figures,
        VERSION: version("rampart-fl"),
        **({} if start is None else {START: start}),
    }
    lines = ",\n".join(f" {json.dumps(key)}: {json.dumps(stored[key])}" for key in stored)
    durable.replace(path, [f"{{\n{lines}\n}}\n".encode()])


def _without_origin(stored: Figures) -> Figures:
    """The results without the version of Rampart and the hash of the model file."""
    return {key: value for key, value in stored.items() if key not in (START, VERSION)}


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
