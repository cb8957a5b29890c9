"""The aggregator of a simulated federation, and its state between rounds.

Legend: K clients of a round, D parameters.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from rampart_fl.shared.assignment import GLOBAL
from rampart_fl.shared.errors import PreconditionError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.eviction import Standing
from rampart_fl.shared.figures.decision_record import DecisionRecord
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol.messages import ClientReport, RoundRecord
from rampart_fl.shared.protocol.traffic import model_bytes, upload_bytes
from rampart_fl.shared.robust.base import State
from rampart_fl.shared.robust.customizers import Customization
from rampart_fl.shared.round.calibration import offset
from rampart_fl.shared.round.pool import Claim, Pool
from rampart_fl.shared.round.rounds import Neighbours, RoundDecision, Rounds
from rampart_fl.shared.runtime.device import to_device
from rampart_fl.shared.simulation.clients import Uploads


@dataclass(eq=False)
class SimulatedServer:
    """The server's state, which `close` updates.

    Args:
        rounds: computes the result of each round of the experiment.
        global_D: the current global model.
        state: the state of the stages.
        neighbours: the accepted rows of the latest published round; None if there are none.
        customization: the customized models, and which client gets which model next.
        evicted: clients that are barred permanently.
        quarantined: clients that are barred for some rounds, each with the round in which it
            returns.
        absent: clients of the experiment that do not take part in this federation.
    """

    rounds: Rounds
    global_D: Tensor
    state: State = field(default_factory=State)
    neighbours: Neighbours | None = None
    customization: Customization = field(default_factory=Customization)
    evicted: frozenset[str] = frozenset()
    quarantined: dict[str, int] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()

    @staticmethod
    def of(experiment: Experiment, initial_D: Tensor, spec: ModelSpec) -> "SimulatedServer":
        """The server before round 0; every client starts from the initial global model."""
        return SimulatedServer(Rounds.of(experiment, spec, initial_D.device), initial_D)

    @property
    def experiment(self) -> Experiment:
        """The experiment that is run."""
        return self.rounds.experiment

    @property
    def probed_from(self) -> Tensor:
        """The model (D,) that probed clients train from; these clients have no model yet."""
        return self.global_D if self.neighbours is None else self.neighbours.reference_A

    def memory(self) -> dict[str, Any]:
        """The state that a checkpoint must hold; the experiment determines all other state."""
        # `fields` also returns fields that are added to the class later. A hand-written list could
        # omit such a field, and a resumed run would then lose the field's value.
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name != "rounds"}

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Restores the state that `memory` returned."""
        for name, value in memory.items():
            setattr(self, name, value)

    @property
    def standing(self) -> Standing:
        """The number of clients, and which clients are barred; all clients join before round 0."""
        clients = self.experiment.data.clients - len(self.absent)
        return Standing(clients, clients, self.evicted, frozenset(self.quarantined))

    def release(self, round_: int) -> None:
        """Readmits clients whose quarantine or proposed eviction has expired by this round."""
        self.quarantined = {c: until for c, until in self.quarantined.items() if until > round_}

    def clients_to_probe(self, names: Sequence[str]) -> list[str]:
        """The clients to probe; see `Rounds.to_probe`."""
        return self.rounds.to_probe(names, self.neighbours is not None, self.customization.known)

    def models(self, round_: int, names: Sequence[str], probes: Mapping[str, Tensor]) -> Tensor:
        """The models (K, D) that clients train from, as a new tensor.

        Args:
            round_: the number of the round.
            names: the clients.
            probes: the answers (D,) of the clients that were probed, keyed by client. A client that
                has no model and answered no probe gets the global model.
        """
        challenged = {name: self.challenged(name) for name in names}
        return torch.stack(
            [
                self._unchallenged(round_, name, probes.get(name)) if model_D is None else model_D
                for name, model_D in challenged.items()
            ]
        )

    def origins(self, names: Sequence[str]) -> dict[str, Tensor]:
        """For each challenged client among `names`, the model (D,) without the challenge."""
        return {name: self.own(name) for name in names if name in self.customization.challenged}

    def final_models(
        self, round_: int, names: Sequence[str], probes: Mapping[str, Tensor]
    ) -> Tensor:
        """The models (K, D) that clients evaluate at the end; none of them contains a challenge."""
        made = [self._unchallenged(round_, name, probes.get(name)) for name in names]
        return torch.stack(made)

    def next_models(self, names: Sequence[str]) -> dict[str, Tensor]:
        """The model (D,) that each client trains from next; evicted clients are left out."""
        return {name: self.own(name) for name in names if name not in self.evicted}

    def offers(self, names: Sequence[str]) -> Iterator[tuple[Tensor, Tensor]]:
        """Other clients' models that the server offers to each given client; see `Offers`."""
        models = self.customization.models
        peers = [self.customization.names_for(name)[1:] for name in names]
        for place in range(max(map(len, peers), default=0)):
            assert models is not None
            there = [k for k, own in enumerate(peers) if len(own) > place]
            block_KD = self.global_D.repeat(len(names), 1)
            at = to_device(there, block_KD.device, torch.long)
            block_KD[at] = models.block([peers[k][place] for k in there])
            there_K = torch.zeros(len(names), dtype=torch.float64, device=block_KD.device)
            yield block_KD, there_K.index_fill_(0, at, 1)

    def voters(self) -> list[Tensor]:
        """The models (D,) that vote when the federation has ended; empty if there is no vote."""
        models, voters = self.customization.models, self.customization.voters
        return list(models.block(voters)) if models is not None and voters else []

    def _unchallenged(self, round_: int, name: str, probe_D: Tensor | None) -> Tensor:
        if probe_D is not None and not self.customization.names_for(name):
            held_S = self.global_D[self.rounds.spec.trainable :]
            made_D = self.rounds.newcomer(round_, probe_D, self.neighbours, held_S)
            if made_D is not None:
                return made_D
        return self.own(name)

    # -- the models that clients received, as `round.calibration.ServedModels` --

    def reference(self) -> Tensor:
        """The global model (D,) of the round."""
        return self.global_D

    def own(self, client: str) -> Tensor:
        """The model (D,) from which a client trains if the client is not challenged."""
        names, models = self.customization.names_for(client), self.customization.models
        if names and names[0] != GLOBAL and models is not None:
            return models.model(names[0])
        return self.global_D.clone()

    def challenged(self, client: str) -> Tensor | None:
        """The client's challenged model (D,); None if the client is not challenged."""
        name, models = self.customization.challenged.get(client), self.customization.models
        return None if name is None or models is None else models.model(name)

    def same(self, one: Tensor, other: Tensor) -> bool:
        """Whether the two models are equal in every coordinate."""
        return torch.equal(one, other)

    # -- rounds --------------------------------------------------------------------------------

    def traffic(
        self, uploads: Uploads, probed: Sequence[str]
    ) -> tuple[dict[str, int], dict[str, int]]:
        """Bytes that each client downloads and uploads in a round; call this method before `close`.

        The answer to a probe is counted as if it were as large as the client's update. The real
        sizes of the answer and of the update may differ slightly, because the metrics in the two
        uploads may have different numbers of digits.
        """
        spec = self.rounds.spec
        model, down, up = model_bytes(spec), {}, {}
        for name, samples in zip(uploads.names, uploads.samples, strict=True):
            own = min(samples, self.experiment.server.sample_cap)
            given = len(set(self.customization.names_for(name))) or 1
            report = ClientReport.model_construct(samples=own, metrics=uploads.metrics[name])
            down[name] = model * (given + (name in probed))
            up[name] = upload_bytes(spec, report) * (1 + (name in probed))
        return down, up

    def close(
        self,
        round_: int,
        sent_KD: Tensor,
        uploads: Uploads,
        origins: Mapping[str, Tensor],
        lap: Callable[[str], None] = lambda step: None,
        staleness: Mapping[str, int] | None = None,
        seen: Collection[str] = (),
        selected: Collection[str] = (),
        examined: Collection[str] = (),
    ) -> RoundRecord:
        """Computes a round's result from the clients' uploads, and updates the server's state.

        Args:
            round_: the number of the round.
            sent_KD: the models from which the clients started.
            uploads: what the clients sent.
            origins: for each client that started from a challenged model, the same model (D,)
                without the challenge.
            lap: called with the name of each step of the round when the step ends.
            staleness: the age of each upload in rounds, keyed by client.
            seen: the clients whose rows an earlier round has already judged.
            selected: the clients that the server selected for the round.
            examined: those of them whose uploads the round judges, but does not aggregate.
        """
        names, ages = uploads.names, staleness or {}
        metrics = {name: uploads.metrics.get(name, {}) for name in names}
        claims = {
            name: Claim(samples, metrics[name], ages.get(name, 0), name not in seen)
            for name, samples in zip(names, uploads.samples, strict=True)
        }
        try:
            decision = self.rounds.decide(
                round_,
                self._pool(sent_KD, uploads, origins),
                claims,
                self.state,
                self.standing,
                self._customized_models,
                lap,
                selected,
                examined,
            )
        except PreconditionError as error:
            arrived = [name for name in names if name not in seen]
            return RoundRecord(
                round=round_,
                status="failed",
                reason=error.detail,
                participants=arrived,
                quarantined=sorted(self.quarantined),
                metrics={name: metrics[name] for name in arrived},
            )
        self._remember(decision, round_)
        facts = DecisionRecord.of(decision)
        lap("record")
        return RoundRecord(
            round=round_,
            status="published",
            participants=list(names),
            metrics=metrics,
            **vars(facts),
        )

    def _pool(self, sent_KD: Tensor, uploads: Uploads, origins: Mapping[str, Tensor]) -> Pool:
        isolates = self.rounds.plan.customizer.isolates
        pool = self.rounds.pool(self.global_D, uploads.names)
        for name, sent_D, update_D in zip(uploads.names, sent_KD, uploads.update_KD, strict=True):
            pool.row(name).copy_(update_D)
            start_K = pool.sketch(sent_D)
            models = offset(self, name, origins.get(name, sent_D), isolates)
            if models is not None:
                models = (models[0].clone(), models[1])
            pool.admit(name, start_K, models)
        return pool

    def _customized_models(self) -> dict[str, Tensor]:
        """The customized models (D,) of the previous round, by name."""
        made = self.customization.models
        return {} if made is None else dict(zip(made.names, made.block(made.names), strict=True))

    def _remember(self, decision: RoundDecision, round_: int) -> None:
        outcome, plan = decision.outcome, self.rounds.plan
        self.global_D, self.state = outcome.global_D, outcome.state
        self.neighbours, self.customization = decision.neighbours, outcome.customization
        self.evicted |= frozenset(decision.about("evicted"))
        self.quarantined |= {
            client: plan.eviction.until(verdict.decision, round_)
            for client, verdict in decision.about("quarantined", "proposed").items()
        }
