"""The command line of `rampart simulate`."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rampart_fl.services.console.commands.parallel import Gpus, Jobs, Ray
from rampart_fl.services.console.commands.unused import refuse_unused
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.figures.run_result import AccuracySource

if TYPE_CHECKING:
    from rampart_fl.services.console.studies.pools import Pool
    from rampart_fl.shared.experiment import Experiment
    from rampart_fl.shared.experiment.sweep import Sweep


def simulate(
    context: typer.Context,
    experiment: Annotated[
        str, typer.Argument(help="An experiment file, or the name of a shipped experiment.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for records.jsonl, accuracy.png, result.json and checkpoints."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the interrupted run in OUT.")
    ] = False,
    rounds: Annotated[int | None, typer.Option(min=1, help="Number of rounds.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Random seed.")] = None,
    device: Annotated[
        str, typer.Option(envvar="RAMPART_DEVICE", help="Device: cpu, cuda, cuda:1.")
    ] = "cpu",
    threads: Annotated[
        int | None,
        typer.Option(
            min=1,
            envvar="RAMPART_THREADS",
            help="Number of threads; by default, 1 for a small model or a sweep. Runs with "
            "equal numbers of threads have bit-identical results.",
        ),
    ] = None,
    accuracy_of: Annotated[
        AccuracySource,
        typer.Option(
            help="The final accuracy is that of the last round (last), the mean of the last five "
            "rounds (mean5), or that of the best round (best). With end, it is the "
            "accuracy of the models that the last aggregation produced."
        ),
    ] = "last",
    checkpoint: Annotated[
        int, typer.Option(min=1, help="Number of rounds between checkpoints.")
    ] = 10,
    jobs: Jobs = 1,
    ray: Ray = None,
    gpus: Gpus = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON at the end.")] = False,
) -> None:
    """Simulates a federation in one process; trains, attacks and defends like the services.

    All clients of a round train simultaneously. Reports the same final metrics as `rampart up`. If
    the file has a sweep, runs every point with every seed.
    """
    from rampart_fl.services.console import downloads
    from rampart_fl.services.console.folder_lock import locked
    from rampart_fl.services.console.studies.pools import pool
    from rampart_fl.shared.experiment import Experiment
    from rampart_fl.shared.experiment.sweep import Sweep
    from rampart_fl.shared.validation import validate

    if resume and out is None:
        raise typer.BadParameter("--resume needs --out, the folder of the run to continue")
    if out is None:
        refuse_unused(context, "without --out, a run saves no checkpoints", "checkpoint")
    changes = {"rounds": rounds, "seed": seed}
    options = {name: value for name, value in changes.items() if value is not None}
    grid = Sweep.load(experiment, **options)
    where = pool(jobs, ray, cores=threads or 1, gpus=gpus, device=device)
    if grid is not None:
        refuse_unused(context, "a sweep keeps finished runs, not checkpoints", "checkpoint")
        with locked(out):
            if ray is None:
                downloads.fetch_all(point.runs[0] for point in grid.points(validate))
            _sweep(grid, device, accuracy_of, out, resume, threads or 1, as_json, where)
        return
    if where is not None:
        raise ConfigurationError(
            f"{experiment} has no [sweep], so it is a single run; omit --jobs and --ray"
        )
    chosen = Experiment.from_tables({**Experiment.load(experiment).tables(), **options})
    with locked(out):
        downloads.fetch_all([chosen])
        _single(chosen, device, accuracy_of, out, resume, threads, checkpoint, as_json)


def _single(
    experiment: "Experiment",
    device: str,
    accuracy_of: AccuracySource,
    out: Path | None,
    resume: bool,
    threads: int | None,
    every: int,
    as_json: bool,
) -> None:
    from rampart_fl.services.console.reports.result_table import result_table
    from rampart_fl.services.console.studies.simulated import SimulationFolder, run

    folder = None if out is None else SimulationFolder(out)
    result = run(
        experiment,
        device=device,
        folder=folder,
        resume=resume,
        every=every,
        accuracy_of=accuracy_of,
        threads=threads,
    )
    summary = result.summary()
    if folder is not None:
        _draw(lambda: folder.finish(result, summary))
    if as_json:
        sys.stdout.write(json.dumps(summary) + "\n")
    else:
        sys.stdout.write(result_table([summary], [out]) + "\n")


def _sweep(
    grid: "Sweep",
    device: str,
    accuracy_of: AccuracySource,
    out: Path | None,
    resume: bool,
    threads: int,
    as_json: bool,
    where: "Pool | None",
) -> None:
    from rampart_fl.services.console.studies.sweeps import sweep, table, write

    if out is not None and not resume and (out / "runs").exists():
        raise ConfigurationError(
            f"{out} holds runs: use --resume to continue, or choose another folder"
        )
    result = sweep(
        grid, device=device, accuracy_of=accuracy_of, folder=out, threads=threads, pool=where
    )
    if out is not None:
        _draw(lambda: write(result, out))
    sys.stdout.write((json.dumps(result) if as_json else table(result)) + "\n")


def _draw(draw: Callable[[], None]) -> None:
    """Draws a plot, or reports that matplotlib is missing."""
    from rampart_fl.services.console.studies.plots import MatplotlibMissing

    try:
        draw()
    except MatplotlibMissing as missing:
        sys.stderr.write(f"{missing}\n")
