"""`rampart up`: a whole federation on this machine."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from rampart_fl.services.console.commands.connection import RUNS, Json, emit
from rampart_fl.shared.errors import RampartError


def up(
    experiment: Annotated[
        str, typer.Argument(help="An experiment file, or the name of a shipped experiment.")
    ],
    beside: Annotated[
        list[str] | None,
        typer.Option(help="Also run this experiment, and compare the runs side by side."),
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Number of rounds.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Random seed.")] = None,
    folder: Annotated[Path, typer.Option(help="Folder for runs.")] = RUNS,
    per_process: Annotated[
        int, typer.Option(min=1, help="Maximum number of clients per process.")
    ] = 10,
    open_page: Annotated[
        bool,
        typer.Option(
            "--open",
            help="Open the operators' page in a browser; the page works until you press Ctrl-C.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Runs a federation on this machine: Redis, aggregator, clients and attackers over HTTP.

    Prints the address of the operators' page. At the end, shows accuracy, DAcc, FPR and FNR, and
    stops all processes that it started. Exits with code 1 if a run fails or is cancelled; the runs
    of --beside are executed nevertheless.
    """
    if open_page and beside:
        raise typer.BadParameter(
            "--open and --beside cannot be combined: --open shows only one run"
        )
    from rampart_fl.services.console import downloads
    from rampart_fl.services.console.launcher.up import run_folder
    from rampart_fl.services.console.launcher.up import up as run
    from rampart_fl.services.console.reports.result_table import result_table
    from rampart_fl.shared.experiment import Experiment
    from rampart_fl.shared.validation import validate

    changes = {"rounds": rounds, "seed": seed}
    options = {name: value for name, value in changes.items() if value is not None}
    loaded = [Experiment.load(source) for source in [experiment, *(beside or [])]]
    chosen = [Experiment.from_tables({**one.tables(), **options}) for one in loaded]
    # Check all experiments before the first run, which may take hours.
    for one in chosen:
        validate(one)
    downloads.fetch_all(chosen)
    outcomes, failures = [], list[RampartError]()
    for one in chosen:
        try:
            outcomes.append(run(one, run_folder(one, folder), per_process, open_page))
        except RampartError as error:
            failures.append(error)
    summaries = [outcome.summary for outcome in outcomes]
    if as_json:
        for summary in [*summaries[1:], *summaries[:1]]:
            emit(summary)
    elif summaries:
        sys.stdout.write(result_table(summaries, [one.folder for one in outcomes]) + "\n")
    sys.stdout.flush()
    for failure in failures:
        sys.stderr.write(f"error: {failure}\n")
    if failures:
        raise typer.Exit(1)
