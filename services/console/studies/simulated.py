"""`rampart simulate`: runs one experiment in this process; can resume a run from its folder."""

import json
import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from pydantic import ValidationError

from rampart_fl.services.console.display.live_table import LiveTable
from rampart_fl.services.console.studies.plots import curves
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.toml import to_toml
from rampart_fl.shared.families.registry import explain
from rampart_fl.shared.figures.client_metrics import KINDS, accuracies, errors, newer, sides
from rampart_fl.shared.figures.run_result import AccuracySource, SimulationSummary
from rampart_fl.shared.protocol.messages import RoundRecord
from rampart_fl.shared.protocol.runs import RunStatus
from rampart_fl.shared.runtime import durable
from rampart_fl.shared.runtime.threads import use
from rampart_fl.shared.simulation import Simulation, SimulationResult, checkpoint


class SimulationFolder:
    """The folder of a simulation.

    The folder contains experiment.toml, checkpoint.safetensors and records.jsonl. Each line of
    records.jsonl is the record of a round, in the format of `/v1/runs/{run}/rounds`. At the end of
    the run, the folder also gets result.json and a plot (accuracy.png or error.png).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records = path / "records.jsonl"
        self.checkpoint = path / "checkpoint.safetensors"

    def take(self, simulation: Simulation, device: str, resume: bool) -> None:
        """Prepares the folder for a run; a resumed run continues from the last checkpoint.

        Rounds after the checkpoint are executed again, so their records are dropped.

        Raises:
            ConfigurationError: the folder's run cannot be continued, because `resume` is not set
                or the run belongs to another experiment. The error leaves the folder unchanged.
        """
        if not resume and self.records.exists():
            raise ConfigurationError(
                f"{self.path} already holds a run: continue with --resume, or choose another folder"
            )
        records: list[RoundRecord] = []
        tables = self.path / "experiment.toml"
        if self.checkpoint.exists():
            lines = self.records.read_text(encoding="utf-8").splitlines()
            memory = checkpoint.load(self.checkpoint, device)
            whole = lines[: memory["rounds"]]
            try:
                records = [RoundRecord.model_validate_json(line) for line in whole]
            except ValidationError as error:
                raise ConfigurationError(f"{self.records}: {explain(error)}") from None
            simulation.recall(memory, records)
        # A run that was interrupted before its first checkpoint begins again.
        elif self.records.exists() and (
            Experiment.load(tables).digest() != simulation.experiment.digest()
        ):
            raise ConfigurationError(
                f"the run in {self.path} is from another experiment: resume with that "
                "experiment's file, seed and rounds"
            )
        durable.make_folder(self.path)
        durable.replace_text(tables, to_toml(simulation.experiment.tables()))
        kept = (f"{record.model_dump_json()}\n".encode() for record in records)
        durable.replace(self.records, kept)

    def finish(self, result: SimulationResult, summary: SimulationSummary) -> None:
        """Writes the results and draws the curves."""
        durable.replace_text(self.path / "result.json", json.dumps(summary, indent=1) + "\n")
        rounds = [record.metrics for record in result.records]
        honest, _ = sides(result.experiment)
        wrong = [errors(newest, honest) for newest in newer(rounds)]
        metrics = {
            "accuracy": accuracies(result.experiment, rounds),
            "error": [{kind: one.get(kind) for kind in KINDS} for one in wrong],
        }
        for figure, known in metrics.items():
            lines: dict[str, list[float | None]] = {
                kind: [one[kind] for one in known] for kind in KINDS
            }
            shown = {kind: line for kind, line in lines.items() if any(v is not None for v in line)}
            if shown:
                title, at = f"{figure} of the honest clients", range(1, len(known) + 1)
                picture = self.path / f"{figure}.png"
                curves(picture, result.experiment.name, "round", at, {title: shown})


def run(
    experiment: Experiment,
    *,
    device: str = "cpu",
    folder: SimulationFolder | None = None,
    resume: bool = False,
    every: int = 10,
    accuracy_of: AccuracySource = "last",
    threads: int | None = None,
    live: bool = True,
) -> SimulationResult:
    """Simulates an experiment and shows the live table; stores the run in `folder`, if given.

    Args:
        experiment: the experiment to run.
        device: device of the models and data.
        folder: folder of the run.
        resume: whether to continue an interrupted run in the folder.
        every: number of rounds between checkpoints.
        accuracy_of: the source of the final accuracies; see `AccuracySource`.
        threads: number of compute threads; by default, the simulation chooses the number.
        live: whether to show the live table.
    """
    simulation = Simulation.of(experiment, device)
    _, hostile = sides(experiment)
    with ExitStack() as opened:
        file = None
        if folder is not None:
            folder.take(simulation, device, resume)
            file = opened.enter_context(folder.records.open("a", encoding="utf-8"))
        opened.enter_context(use(threads or simulation.threads))
        view = opened.enter_context(LiveTable(hostile)) if live else None
        if view is not None:
            view.show(run_status(simulation), simulation.records)
        while not simulation.ended:
            record = simulation.step()
            if view is not None:
                view.show(run_status(simulation), simulation.records)
            if file is not None and folder is not None:
                file.write(record.model_dump_json() + "\n")
                file.flush()
                if simulation.ended or len(simulation.records) % every == 0:
                    os.fsync(file.fileno())
                    checkpoint.save(folder.checkpoint, simulation.memory())
    return simulation.result(accuracy_of)


def run_status(simulation: Simulation) -> RunStatus:
    """The status of a simulation, in the format that the services use for a run's status."""
    experiment, records = simulation.experiment, simulation.records
    took_part: Sequence[str] = records[-1].participants if records else []
    return RunStatus(
        run="simulation",
        name=experiment.name,
        experiment=experiment.digest(),
        status="finished" if simulation.ended else "running",
        phase=records[-1].status if records else "collecting",
        round=max(len(records) - 1, 0),
        rounds=experiment.rounds,
        clients=len(simulation.clients.names),
        online=len(simulation.clients.names),
        mode=experiment.server.eviction.mode,
        evicted=sorted(simulation.server.evicted),
        quarantined=sorted(simulation.server.quarantined),
        selected=list(took_part),
        examined=records[-1].examined if records else [],
        received=list(took_part),
    )
