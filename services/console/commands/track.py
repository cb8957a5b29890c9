"""The command line of `rampart track`."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rampart_fl.services.console.commands.connection import PATIENCE, Ca, Token, Url, connect
from rampart_fl.services.console.commands.monitoring import wait_for_start
from rampart_fl.services.console.commands.unused import refuse_unused
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment.start import RUN_ID

if TYPE_CHECKING:
    from rampart_fl.services.console.tracking.tracker import Tracker


def track(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="Folder of a finished run, or the id of a run in a federation."
        ),
    ],
    destination: Annotated[
        str,
        typer.Argument(help="MLflow's tracking URI, such as sqlite:///mlflow.db, or a folder."),
    ],
    to: Annotated[Literal["mlflow", "tensorboard"], typer.Option(help="The tracker.")],
    name: Annotated[
        str | None,
        typer.Option(help="The run's name; by default, the folder's name or the run's id."),
    ] = None,
    url: Url = None,
    token: Token = None,
    ca: Ca = None,
) -> None:
    """Copies a run to MLflow or TensorBoard.

    Copies the experiment's parameters, the metrics of every round, evictions with their reasons,
    the final metrics, and the final models with their provenance. A run in progress is followed to
    its end.
    """
    from rampart_fl.services.console.stored_run import read_run
    from rampart_fl.services.console.tracking.mlflow import MlflowTracker
    from rampart_fl.services.console.tracking.tensorboard import TensorBoardTracker
    from rampart_fl.services.console.tracking.track import track as copy

    def opened(experiment: str, called: str) -> "Tracker":
        if to == "mlflow":
            return MlflowTracker(destination, experiment, called)
        return TensorBoardTracker(Path(destination), called)

    if Path(source).exists():
        refuse_unused(context, "a folder is read without an aggregator", "url", "token", "ca")
        run, called = read_run(Path(source)), name or Path(source).resolve().name
        copy(run, opened(run.experiment.name, called))
    else:
        from rampart_fl.services.console.reports.run_reader import RunReader
        from rampart_fl.services.console.tracking.live import track_live

        if not re.fullmatch(RUN_ID, source):
            raise ConfigurationError(f"{source} is neither a folder nor the id of a run")
        tracked, called = connect(url, token, ca, PATIENCE).run(source), name or source
        wait_for_start(tracked)
        reader = RunReader.of(tracked)
        run = track_live(reader, opened(reader.experiment.name, called))
    sys.stdout.write(f"{called}: {len(run.records)} rounds, {len(run.models)} models\n")
