"""The command line of `rampart matrix`."""

import json
import re
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from rampart_fl.services.console.commands.failures import exit_if_failed
from rampart_fl.services.console.commands.parallel import Gpus, Jobs, Ray
from rampart_fl.shared.errors import ConfigurationError

BY_DEFAULT = (
    "local_only,fine_tuned,weighted_mean,median,trimmed_mean,multi_krum,geometric_median,"
    "nnm+trimmed_mean,fedcap"
)


def names(text: str) -> list[str]:
    """Splits a list at its commas, except inside square brackets.

    >>> names('lie, schedule:attacks=["lie", "ipm"]')
    ['lie', 'schedule:attacks=["lie", "ipm"]']
    """
    parts = re.split(r",(?![^\[]*\])", text)
    return [part.strip() for part in parts if part.strip()]


def matrix(
    experiment: Annotated[
        str, typer.Argument(help="An experiment file, or the name of a shipped experiment.")
    ],
    attacks: Annotated[
        str,
        typer.Option(help="Attacks, separated by commas, such as none,ipm,lie:knows=full."),
    ] = "none,sign_flip,label_flip,lie,ipm,min_max",
    defences: Annotated[
        str,
        typer.Option(
            help="Defences, separated by commas: fedcap, fedcap-paper, local_only, fine_tuned, a "
            "rule, or a pipeline such as nnm+krum."
        ),
    ] = BY_DEFAULT,
    network: Annotated[
        bool, typer.Option("--network", help="Run the real services over HTTP, not the simulation.")
    ] = False,
    seeds: Annotated[
        int,
        typer.Option(
            min=1,
            help="Number of runs per cell; their seeds are consecutive, beginning with the "
            "experiment's seed.",
        ),
    ] = 5,
    rounds: Annotated[int | None, typer.Option(min=1, help="Number of rounds.")] = None,
    device: Annotated[
        str,
        typer.Option(
            envvar="RAMPART_DEVICE",
            help="Device: cpu, cuda, cuda:1. With --network, the aggregator's device.",
        ),
    ] = "cpu",
    jobs: Jobs = 1,
    ray: Ray = None,
    gpus: Gpus = None,
    out: Annotated[Path, typer.Option(help="Folder for the tables and for finished cells.")] = Path(
        "runs/matrix"
    ),
    heat_map: Annotated[
        Literal["local", "customized", "personalized"],
        typer.Option(
            help="The heat map shows the accuracy of this model: the locally trained model "
            "(local), the received model (customized), or the personal model (personalized)."
        ),
    ] = "local",
    as_json: Annotated[bool, typer.Option("--json", help="Print the matrix as JSON.")] = False,
) -> None:
    """Runs all attacks against all defences; reports accuracy, attack success, DAcc, FPR and FNR.

    Reports the accuracy of three models: the received model, the same model after local training,
    and the personal model. Every number is a mean over seeds with its standard deviation. Writes
    matrix.md, matrix.json and the heat map matrix.png. Reuses the finished runs in OUT/cells, so a
    repeated command continues an interrupted matrix.
    """
    from rampart_fl.services.console import downloads
    from rampart_fl.services.console.folder_lock import locked
    from rampart_fl.services.console.studies.matrix_cells import plan
    from rampart_fl.services.console.studies.matrix_figures import Matrix
    from rampart_fl.services.console.studies.matrix_report import markdown, write
    from rampart_fl.services.console.studies.matrix_runs import follow
    from rampart_fl.services.console.studies.plots import MatplotlibMissing
    from rampart_fl.services.console.studies.pools import pool
    from rampart_fl.shared.experiment import Experiment
    from rampart_fl.shared.runtime.device import device as usable

    if network and ray is not None:
        raise ConfigurationError("--network runs the real services on this machine, not on Ray")
    base = Experiment.load(experiment)
    rows, columns = names(attacks), names(defences)
    cells = plan(base, rows, columns, seeds, rounds, network)
    where = pool(jobs, ray, threads=network, gpus=gpus, device=device)
    if ray is None and not network:
        usable(device)
    result = Matrix(rows, columns)
    about = {
        "experiment": base.name,
        "clients": base.data.clients,
        "attackers": max(sum(g.count for g in cell.experiment.attackers) for cell in cells),
        "rounds": rounds or base.rounds,
        "seeds": seeds,
        "run": "over HTTP" if network else "simulated",
    }
    with locked(out):
        if ray is None:
            downloads.fetch_all(cell.experiment for cell in cells)
        follow(cells, out, where, result.add, device)
        try:
            write(result, out, about, heat_map)
        except MatplotlibMissing as missing:
            sys.stderr.write(f"{missing}\n")
    shown = json.dumps(result.tables(about)) + "\n" if as_json else markdown(result, about)
    sys.stdout.write(shown)
    exit_if_failed(len(result.failures()), len(cells))
