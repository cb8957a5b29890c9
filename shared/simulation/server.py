"""The aggregator of a simulated federation, and its state between rounds.

Legend: K clients of a round, M rows of the pool, D parameters.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

from rampart_fl.shared.assignment import GLOBAL
from rampart_fl.shared.errors import PreconditionError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.eviction import Standing
from rampart_fl.shared.figures.records import decisions
from rampart_fl.shared.learning.server_resources import ServerResources
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol.messages import Report, RoundRecord
from rampart_fl.shared.protocol.traffic import model_bytes, upload_bytes
from rampart_fl.shared.robust import statistics
from rampart_fl.shared.robust.base import Context, Rows, State
from rampart_fl.shared.robust.customizers import Customization
from rampart_fl.shared.robust.engine import Plan, RoundOutcome, run_round
from rampart_fl.shared.robust.sketch import Traces, sketch
from rampart_fl.shared.runtime.device import to_device
from rampart_fl.shared.simulation.clients import Uploads
from rampart_fl.shared.validation import build_plan


@dataclass(eq=False)
class Server:
    """The server's state, which `close` updates.

    Args:
        experiment: the experiment that is run.
        plan: the stages of a round.
        resources: what the stages are given in addition to the rows.
        spec: the layout of the model.
        global_D: the current global model.
        reference_D: the global model that the pool is calibrated against.
        state: the state of the stages.
        pool: the surviving rows of the last round, over the parameters; None if there are none.
        similar: the rows of the same clients by which similarity is judged.
        customization: which client gets which model next.
        evicted: clients that are barred for good.
        quarantined: clients that are barred for a while, with the first round that each is back in.
        absent: clients of the experiment that do not take part in this federation.
    """

    experiment: Experiment
    plan: Plan
    resources: ServerResources
    spec: ModelSpec
    global_D: Tensor
    reference_D: Tensor
    state: State
    pool: Rows | None = None
    similar: Rows | None = None
    customization: Customization = field(default_factory=Customization)
    evicted: frozenset[str] = frozenset()
    quarantined: dict[str, int] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()

    @staticmethod
    def of(experiment: Experiment, initial_D: Tensor, spec: ModelSpec) -> "Server":
        """The server before round 0; every client starts from the initial global model."""
        plan = build_plan(experiment)
        resources = ServerResources.of(experiment, plan, initial_D.device)
        state = plan.init(spec.trainable)
        return Server(experiment, plan, resources, spec, initial_D, initial_D, state)

    def memory(self) -> dict[str, Any]:
        """The state that does not follow from the experiment, for a checkpoint."""
        fixed = {"experiment", "plan", "resources", "spec"}
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in fixed}

    def recall(self, memory: Mapping[str, Any]) -> None:
        """Restores the state that `memory` returned."""
        for name, value in memory.items():
            setattr(self, name, value)

    @property
    def standing(self) -> Standing:
        """Which clients are in the federation, all of them from the start, and which are barred."""
        clients = self.experiment.data.clients - len(self.absent)
        return Standing(clients, clients, self.evicted, frozenset(self.quarantined))

    def release(self, round_: int) -> None:
        """Readmits the clients whose quarantine is over, or whose proposed eviction has lapsed."""
        self.quarantined = {c: until for c, until in self.quarantined.items() if until > round_}

    def clients_to_probe(self, names: Sequence[str]) -> list[str]:
        """The clients to probe: those without a model yet, if the customizer asks for probes."""
        if self.pool is None or not self.plan.customizer.probes:
            return []
        custom = self.customization
        return [n for n in names if not custom.names_for(n) and n not in custom.challenged]

    def models(self, names: Sequence[str], probes: Mapping[str, Tensor]) -> Tensor:
        """The models (K, D) that clients train from, as a new tensor.

        Args:
            names: the clients.
            probes: the answers (D,) of the clients that were probed, keyed by client. A client
                that has neither a model nor a probe gets the global model.
        """
        return torch.stack([self._model(name, probes.get(name)) for name in names])

    def next_models(self, names: Sequence[str]) -> dict[str, Tensor]:
        """The model (D,) that each client trains from next, except clients that are evicted."""
        return {name: self._own(name, None) for name in names if name not in self.evicted}

    def offers(self, names: Sequence[str]) -> Iterator[tuple[Tensor, Tensor]]:
        """The other clients' models that these clients get; see `Offers` for the form."""
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
        """The models (D,) that vote at the end of the federation; empty if there is no vote."""
        models, voters = self.customization.models, self.customization.voters
        return list(models.block(voters)) if models is not None and voters else []

    def _model(self, name: str, probe_D: Tensor | None) -> Tensor:
        challenged, models = self.customization.challenged, self.customization.models
        if name in challenged and models is not None:
            return models.model(challenged[name])
        return self._own(name, probe_D)

    def _own(self, name: str, probe_D: Tensor | None) -> Tensor:
        assigned, models = self.customization.names_for(name), self.customization.models
        if assigned and assigned[0] != GLOBAL and models is not None:
            return models.model(assigned[0])
        if probe_D is not None and self.pool is not None and bool(probe_D.isfinite().all()):
            assert self.similar is not None
            end, own = self.spec.trainable, statistics.of_parameters(self.context(0))
            weights_M = self.plan.customizer.customize_newcomer(probe_D[:end], self.similar, own)
            welcomed_D = self.reference_D[:end] + self.pool.combine(weights_M)
            return torch.cat([welcomed_D, self.global_D[end:]])
        return self.global_D.clone()

    def context(self, round_: int, reference_D: Tensor | None = None) -> Context:
        return Context(
            round=round_,
            seed=self.experiment.seed,
            reference_D=self.reference_D if reference_D is None else reference_D,
            layout=self.spec.parameters,
            statistics=self.spec.statistics,
            standing=self.standing,
        )

    def traffic(
        self, uploads: Uploads, probed: Sequence[str]
    ) -> tuple[dict[str, int], dict[str, int]]:
        """The bytes that each client downloads and uploads in a round; call it before `close`.

        The answer to a probe counts as many bytes as the update; the two differ only in the digits
        of their metrics.
        """
        model, down, up = model_bytes(self.spec), {}, {}
        for name, samples in zip(uploads.names, uploads.samples, strict=True):
            own = min(samples, self.experiment.server.sample_cap)
            given = len(set(self.customization.names_for(name))) or 1
            report = Report.model_construct(samples=own, metrics=uploads.metrics[name])
            down[name] = model * (given + (name in probed))
            up[name] = upload_bytes(self.spec, report) * (1 + (name in probed))
        return down, up

    def close(
        self,
        round_: int,
        sent_KD: Tensor,
        uploads: Uploads,
        ended: Callable[[str], None] = lambda step: None,
        staleness: Mapping[str, int] | None = None,
        seen: Collection[str] = (),
    ) -> RoundRecord:
        """Runs the engine on a round's uploads, and updates the server's state by its decisions.

        A row is calibrated against the current global model: (sent + upload) - global. If the
        customizer isolates groups, the model of the client's group takes the global model's place.

        Args:
            round_: the number of the round.
            sent_KD: the models that the clients began with.
            uploads: what the clients sent.
            ended: called after every step of the round.
            staleness: the age of each upload in rounds, keyed by client; the weight of an upload is
                multiplied by 1/sqrt(1 + staleness).
            seen: the clients whose rows were already judged in an earlier round.
        """
        server, names, ages = self.experiment.server, uploads.names, staleness or {}
        moved_KD = uploads.update_KD[:, : self.spec.trainable]
        claims: dict[str, Any] = {
            "ids": names,
            "weights": [
                min(samples, server.sample_cap) / (1 + ages.get(name, 0)) ** 0.5
                for name, samples in zip(names, uploads.samples, strict=True)
            ],
            "metadata": {
                **{
                    claim: [uploads.metrics.get(name, {}).get(claim, 0.0) for name in names]
                    for claim in self.plan.customizer.claims
                },
                "loss_gap": uploads.loss_gaps,
                "fresh": [float(name not in seen) for name in names],
                "moved": torch.linalg.vector_norm(moved_KD, dim=1, dtype=torch.float64),
            },
        }
        isolates = self.plan.customizer.isolates
        base_KD = self.models(names, {}) if isolates else self.global_D
        if self.plan.traces:
            claims["traces"] = self._traces(sent_KD, moved_KD)
        start_KD = self._unchanged(names, sent_KD)
        rows = Rows.of((start_KD - base_KD) + uploads.update_KD, **claims)
        similar = None if server.calibrate else Rows.of(uploads.update_KD, **claims)
        context = self.resources.attach_to(self.context(round_, self.global_D))
        made = self.customization.models
        if made is not None and self.plan.customizer.continues:
            models = dict(zip(made.names, made.block(made.names), strict=True))
            context = replace(context, models=models)
        ended("calibrate")
        quarantined = sorted(self.quarantined)
        try:
            outcome = run_round(self.plan, rows, self.state, context, similar, ended)
        except PreconditionError as error:
            return RoundRecord(
                round=round_,
                status="failed",
                reason=error.detail,
                participants=list(names),
                metrics=uploads.metrics,
            )
        judged = None if similar is None else statistics.parameters(similar, context)
        self._remember(outcome, judged, round_)
        return RoundRecord(
            round=round_,
            status="published",
            participants=list(names),
            quarantined=quarantined,
            mode=self.plan.eviction.mode,
            metrics=uploads.metrics,
            **decisions(statistics.parameters(rows, context), outcome),
        )

    def _unchanged(self, names: Sequence[str], sent_KD: Tensor) -> Tensor:
        """The models that the clients would have begun with if none had been challenged."""
        start_KD = sent_KD.clone() if self.customization.challenged else sent_KD
        for place, name in enumerate(names):
            challenged = name in self.customization.challenged
            if challenged and torch.equal(sent_KD[place], self._model(name, None)):
                start_KD[place] = self._own(name, None)
        return start_KD

    def _traces(self, sent_KD: Tensor, moved_KD: Tensor) -> Traces:
        size, end = self.plan.traces, self.spec.trainable
        return Traces(
            torch.stack([sketch(moved_D, size) for moved_D in moved_KD]),
            torch.stack([sketch(sent_D[:end], size) for sent_D in sent_KD]),
        )

    def _remember(self, outcome: RoundOutcome, similar: Rows | None, round_: int) -> None:
        kept = outcome.survivors
        if len(kept):
            self.reference_D, self.pool = self.global_D, kept
            at = None if similar is None else [similar.ids.index(name) for name in kept.ids]
            self.similar = kept if similar is None or at is None else similar.keep(at)
        else:
            self.pool = self.similar = None
        self.global_D, self.state = outcome.global_D, outcome.state
        self.customization = outcome.customization
        self.evicted |= {v.client for v in outcome.verdicts if v.decision == "evicted"}
        self.quarantined |= {
            v.client: self.plan.eviction.until(v.decision, round_)
            for v in outcome.verdicts
            if v.decision in ("quarantined", "proposed")
        }
