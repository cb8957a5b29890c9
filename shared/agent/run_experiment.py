"""The part of a run's experiment that clients know, and the folder for a client's state."""

from pathlib import Path

from rampart_fl.shared.agent.client import AggregatorClient
from rampart_fl.shared.agent.learning_client import INITIAL, client_experiment
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.runtime import durable


def run_folder(folder: Path, run: str) -> Path:
    """The folder in which a client stores its state for one run."""
    return folder / "runs" / run


async def run_experiment(
    connection: AggregatorClient, run: str, folder: Path
) -> tuple[Experiment, int]:
    """A run's experiment as clients see it, and the largest sample count that a client may claim.

    If the run's first model is not initialized from the seed, the client stores the model in its
    folder for the run. The returned experiment then starts from the stored model.
    """
    part = await connection.experiment(run)
    experiment = client_experiment(part)
    if "initial" in part:
        file = folder / INITIAL
        _keep(file, await connection.model(run, part["initial"]))
        experiment = experiment.started_from(file)
    return experiment, part["sample_cap"]


def _keep(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    durable.replace(file, [content])
