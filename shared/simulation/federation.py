"""A federation in one process, with the services' own code for rounds, training and attacks.

All clients of a round train together. Every random draw is seeded by the experiment, the client and
the round. The networked services therefore compute the same models if the server also draws from
the experiment's seed (`RAMPART_PREDICTABLE_DRAWS`).

Legend: K clients of a round, F attackers among them, B honest clients, D parameters.
"""

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.figures.client_metrics import sides
from rampart_fl.shared.figures.final import costs, decisions, final_figures
from rampart_fl.shared.figures.run_result import AccuracySource, FinalFigures, SimulationSummary
from rampart_fl.shared.figures.votes import vote_figures
from rampart_fl.shared.protocol.messages import RoundRecord
from rampart_fl.shared.runtime.device import device as usable
from rampart_fl.shared.runtime.stopwatch import Stopwatch
from rampart_fl.shared.runtime.threads import training_threads
from rampart_fl.shared.simulation import interpolation
from rampart_fl.shared.simulation.buffered import Buffered
from rampart_fl.shared.simulation.clients import SimulatedClients
from rampart_fl.shared.simulation.server import SimulatedServer
from rampart_fl.shared.validation import validate


@dataclass(frozen=True, eq=False)
class SimulationResult:
    """The result of a simulated federation.

    Args:
        experiment: the experiment that was run.
        records: one record per round, in the form in which the services keep records.
        figures: the final figures; see `rampart_fl.shared.figures.final.final_figures`.
        global_D: the last global model.
        models: the model that each client would train from next, keyed by client.
        personal: the personal tensors of each client, keyed by client.
        votes: the results of the majority vote on each client's test samples, keyed by client; see
            `rampart_fl.shared.learning.network.votes`.
        seconds: wall time.
    """

    experiment: Experiment
    records: tuple[RoundRecord, ...]
    figures: FinalFigures
    global_D: Tensor
    models: dict[str, Tensor]
    personal: dict[str, dict[str, Tensor]]
    votes: dict[str, dict[str, float]]
    seconds: float

    def summary(self) -> SimulationSummary:
        """The result as a JSON object, which `rampart simulate --json` prints."""
        return {
            "experiment": self.experiment.name,
            "experiment_digest": self.experiment.digest(),
            "models_digest": models_digest(self.global_D, self.models),
            "rounds": len(self.records),
            **self.figures,
            **decisions(self.experiment, self.records),
            **vote_figures(self.votes, sides(self.experiment)[0]),
            "failed_rounds": sum(record.status == "failed" for record in self.records),
            **costs(self.records),
            "seconds": round(self.seconds, 3),
        }


def models_digest(global_D: Tensor, models: Mapping[str, Tensor]) -> str:
    """SHA-256 over the global model and then every client's model, in the order of client ids."""
    total = hashlib.sha256()
    for name, model_D in [("", global_D), *sorted(models.items())]:
        total.update(name.encode() + b"\0" + model_D.cpu().numpy().tobytes())
    return total.hexdigest()


@dataclass(eq=False)
class Simulation:
    """A federation in one process, which runs round by round.

    Args:
        experiment: the experiment that the federation runs.
        clients, server: the two sides of the federation, each with its state.
        initial_model: SHA-256 of the global model before round 0.
        flow: pending work and arrivals under the buffered policy; None under other policies.
        records: the records of the rounds that have ended.
        seconds: wall time so far.
    """

    experiment: Experiment
    clients: SimulatedClients
    server: SimulatedServer
    initial_model: str
    flow: Buffered | None = None
    records: list[RoundRecord] = field(default_factory=list)
    seconds: float = 0.0

    @staticmethod
    def of(experiment: Experiment, device: str = "cpu") -> "Simulation":
        """A federation in its state before round 0.

        Args:
            experiment: the experiment to run.
            device: the device that holds models and data.
        Raises:
            ConfigurationError: a part of the experiment cannot be built, the parts do not fit
                together, or the device does not exist.
        """
        began = time.perf_counter()
        experiment = validate(experiment)
        usable(device)
        clients = SimulatedClients.of(experiment, device)
        initial_D = clients.learner.initial_model()
        server = SimulatedServer.of(experiment, initial_D.to(device), clients.learner.spec)
        clients.server_update = server.rounds.resources.update
        flow = Buffered(clients, server) if experiment.policy == "buffered" else None
        seconds = time.perf_counter() - began
        initial = models_digest(initial_D, {})
        return Simulation(experiment, clients, server, initial, flow, seconds=seconds)

    @property
    def candidates(self) -> set[str]:
        """The clients that can be selected for the next round."""
        return self.members - self.server.quarantined.keys()

    @property
    def members(self) -> set[str]:
        """The clients of this federation that are not evicted."""
        return set(self.clients.names) - self.server.absent - self.server.evicted

    @property
    def ended(self) -> bool:
        """Whether all rounds are finished, or every client is evicted."""
        return len(self.records) >= self.experiment.rounds or not self.members

    @property
    def threads(self) -> int:
        """The number of threads with which the federation trains fastest."""
        clients = len(self.clients.names) * self.experiment.fraction
        batch = self.experiment.training.batch_size
        return training_threads(self.clients.learner.spec.dim, round(clients * batch))

    def step(self) -> RoundRecord:
        """Runs the next round, and returns its record."""
        lap, round_ = Stopwatch(), len(self.records)
        self.server.release(round_)
        if not self.candidates:
            record = RoundRecord(
                round=round_,
                status="failed",
                reason="every client is quarantined",
                quarantined=sorted(self.server.quarantined),
            )
        elif self.clients.learner.personalizer.simulated_only:
            record = interpolation.run_round(self.clients, self.server, round_)
            lap("train")
        elif self.flow is not None:
            record = self.flow.run(round_, self.candidates, lap)
        else:
            record = self._round(round_, lap)
        self.records.append(record.model_copy(update={"timings": lap.seconds}))
        self.seconds += sum(lap.seconds.values())
        return self.records[-1]

    def _round(self, round_: int, lap: Callable[[str], None]) -> RoundRecord:
        """Runs a round under the sync policy, in which all selected clients take part."""
        experiment, clients, server = self.experiment, self.clients, self.server
        awaited, secret = server.customization.awaited, server.rounds.seed
        selection = experiment.select(round_, self.candidates, awaited, secret)
        names, examined = selection.clients, selection.examined
        probed = server.clients_to_probe(names)
        probes = clients.probe(probed, server.probed_from, round_)
        lap("probe")
        sent_KD, origins = server.models(round_, names, probes), server.origins(names)
        lap("models")
        offers = server.offers(names)
        uploads = clients.train(
            names, sent_KD, server.global_D, round_, offers, examined=len(examined)
        )
        lap("train")
        down, up = server.traffic(uploads, probed)
        record = server.close(round_, sent_KD, uploads, origins, lap, None, (), names, examined)
        facts = {"examined": list(examined), "probed": list(probed)}
        return record.model_copy(update={**facts, "bytes_down": down, "bytes_up": up})

    def evaluate(self) -> dict[str, dict[str, float]]:
        """For each client that is not evicted, metrics of the model that it would train from next.

        A client without a model is probed, as if it were selected for the next round.
        """
        clients, server, round_ = self.clients, self.server, len(self.records)
        names = sorted(self.members)
        if not names:
            return {}
        probed = server.clients_to_probe(names)
        probes = clients.probe(probed, server.probed_from, round_)
        return clients.measure(names, server.final_models(round_, names, probes))

    def memory(self) -> dict[str, Any]:
        """The state that the next round depends on, for `checkpoint.save`."""
        return {
            "digest": self.experiment.digest(),
            "initial_model": self.initial_model,
            "rounds": len(self.records),
            "seconds": self.seconds,
            "server": self.server.memory(),
            "personal": self.clients.personal,
            "flow": None if self.flow is None else self.flow.memory(),
        }

    def recall(self, memory: Mapping[str, Any], records: Sequence[RoundRecord]) -> None:
        """Restores the state of an earlier run, so that `step` continues that run.

        Args:
            memory: the state that `memory` returned.
            records: records of the earlier run. The records must include every round that ended
                before the state was saved.
        Raises:
            ConfigurationError: the state is from another experiment or began with another model, or
                records are missing.
        """
        if memory["digest"] != self.experiment.digest():
            raise ConfigurationError(
                "the checkpoint is from another experiment: resume with that experiment's file, "
                "seed and rounds"
            )
        # Checkpoints of earlier versions do not name the initial model.
        if memory.get("initial_model", self.initial_model) != self.initial_model:
            raise ConfigurationError(
                "the checkpoint is from a run that began with another model: resume with the "
                "model file (`model.start`) of that run"
            )
        if len(records) < memory["rounds"]:
            raise ConfigurationError(
                f"the checkpoint was saved after {memory['rounds']} rounds, but the records have "
                f"{len(records)}"
            )
        self.records = list(records[: memory["rounds"]])
        self.seconds = memory["seconds"]
        self.server.recall(memory["server"])
        self.clients.personal = dict(memory["personal"])
        if self.flow is not None:
            self.flow.recall(memory["flow"])

    def result(self, accuracy_of: AccuracySource = "last") -> "SimulationResult":
        """The result so far; see `final_figures` for the argument."""
        rounds = [record.metrics for record in self.records]
        voters = self.server.voters()
        evaluations = self.evaluate() if accuracy_of == "end" else {}
        return SimulationResult(
            experiment=self.experiment,
            records=tuple(self.records),
            figures=final_figures(
                self.experiment,
                rounds,
                self.server.evicted,
                accuracy_of=accuracy_of,
                evaluations=evaluations,
                tested=[record.tested for record in self.records],
            ),
            global_D=self.server.global_D,
            models=self.server.next_models(self.clients.names),
            personal=self.clients.personal_by_name(),
            votes=self.clients.vote(voters) if voters else {},
            seconds=self.seconds,
        )


def simulate(
    experiment: Experiment,
    *,
    device: str = "cpu",
    accuracy_of: AccuracySource = "last",
    on_round: Callable[[RoundRecord], None] | None = None,
) -> SimulationResult:
    """Runs an experiment from its first round to its last.

    Args:
        experiment: the experiment to run.
        device: the device that holds models and data.
        accuracy_of: the source of the final accuracies, such as the last or the best round; see
            `rampart_fl.shared.figures.run_result.AccuracySource`.
        on_round: called with the record of each round when the round ends.
    Raises:
        ConfigurationError: a part of the experiment cannot be built, the parts do not fit together,
            or the device does not exist.
    """
    simulation = Simulation.of(experiment, device)
    while not simulation.ended:
        record = simulation.step()
        if on_round is not None:
            on_round(record)
    return simulation.result(accuracy_of)
