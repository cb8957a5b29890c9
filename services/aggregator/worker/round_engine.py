"""The round engine: the worker's computation on vectors, which runs on a separate thread.

Legend: D coordinates, L models, C coordinates of a chunk.
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from rampart_fl.services.aggregator.state.blobs import Blobs, BlobWriter
from rampart_fl.services.aggregator.state.snapshot import Snapshot
from rampart_fl.services.aggregator.worker.pools import Pool, Vectors
from rampart_fl.services.aggregator.worker.stage_state import load_state, store_state
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.eviction import Decision, Standing
from rampart_fl.shared.figures.records import decisions
from rampart_fl.shared.learning.server_resources import ServerResources
from rampart_fl.shared.learning.training.personalizers import personalizers
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.protocol.messages import Receipt, VerdictRecord
from rampart_fl.shared.protocol.traffic import model_bytes
from rampart_fl.shared.robust import statistics
from rampart_fl.shared.robust.base import Context
from rampart_fl.shared.robust.engine import run_round
from rampart_fl.shared.robust.models import Mixture, Models
from rampart_fl.shared.runtime.stopwatch import Stopwatch
from rampart_fl.shared.validation import build_plan


@dataclass(frozen=True)
class Decided:
    """The outcome of a round: the new snapshot, fields of the round's record, and timings."""

    snapshot: Snapshot
    fields: dict[str, Any]
    timings: dict[str, float]
    model_bytes: int
    """Size in bytes of one model as clients download it."""
    pool_bytes: int
    """Size in bytes of the blocks that held the rows."""

    @property
    def verdicts(self) -> list[VerdictRecord]:
        """The verdicts of the round, one per client."""
        verdicts: list[VerdictRecord] = self.fields["verdicts"]
        return verdicts

    def about(self, *decisions: Decision) -> dict[str, VerdictRecord]:
        """The verdicts with one of these decisions, by client, in the order of `verdicts`."""
        return {v.client: v for v in self.verdicts if v.decision in decisions}


def check_networked(experiment: Experiment) -> Experiment:
    """Returns the experiment unchanged if it can run over the network.

    Raises:
        ConfigurationError: the experiment can only be simulated, because its personalizer needs
            every client's gradient at each client's model.
    """
    if personalizers.parse(experiment.personalizer).simulated_only:
        raise ConfigurationError(
            f"personalizer {experiment.personalizer['name']!r} takes everyone's gradients at each "
            "client's model: it runs in simulation only (rampart simulate)"
        )
    return experiment


class RoundEngine:
    """Holds the vectors of one federation and computes on them.

    Args:
        experiment: the experiment that is run.
        spec: the model's tensors.
        blobs: the store of models and updates.
        device: the torch device that holds the vectors.
    """

    def __init__(
        self, experiment: Experiment, spec: ModelSpec, blobs: Blobs, device: torch.device
    ) -> None:
        self.experiment = experiment
        self.plan = build_plan(experiment)
        self._resources = ServerResources.of(experiment, self.plan, device)
        self.spec = spec
        self.device = device
        self._blobs = blobs
        self._disk = ThreadPoolExecutor(8, thread_name_prefix="models")
        self._vectors = Vectors(blobs, spec, device)
        self.snapshot: Snapshot | None = None
        self.pool: Pool | None = None
        """Rows of the last published round, from which newcomers' models are customized."""
        self.arrivals: Pool | None = None
        """Rows that arrived in the open round; no model uses them before they were screened."""
        self._spare_ND: Tensor | None = None

    @property
    def probes(self) -> bool:
        """Whether clients that have no customized model yet are probed."""
        return self.plan.customizer.probes

    @property
    def keeps_pool(self) -> bool:
        """Whether rows are needed after their round.

        They are if newcomers are probed, or if the policy is buffered, because each client's
        latest row then counts in later rounds, too.
        """
        return self.probes or self.experiment.policy == "buffered"

    @staticmethod
    def first_model(experiment: Experiment, blobs: Blobs) -> tuple[ModelSpec, Snapshot]:
        """Stores a new federation's first model; returns its spec and the first snapshot."""
        from rampart_fl.shared.learning.network.vector import initial_model

        spec, model_D = initial_model(experiment)
        digest = blobs.put(wire.encode(spec, model_D.numpy()))
        return spec, Snapshot(global_model=digest, reference=digest)

    def restore(self, snapshot: Snapshot) -> None:
        """Restores the state after a published round, and rebuilds the pool from blobs."""
        self.snapshot, self.pool, self.arrivals = snapshot, None, None
        if self.probes and snapshot.pool:
            self.pool = self._pool(snapshot.reference, [r.client for r in snapshot.pool])
            for receipt in snapshot.pool:
                self.pool.load(receipt)

    def open_round(self, clients: Iterable[str]) -> None:
        """Allocates the rows of a new round."""
        assert self.snapshot is not None
        self.arrivals = self._pool(self.snapshot.global_model, clients)

    def _pool(self, reference: str, clients: Iterable[str]) -> Pool:
        spare_ND, self._spare_ND = self._spare_ND, None
        calibrate = self.experiment.server.calibrate
        customizer, base = self.plan.customizer, None
        if customizer.isolates:
            assert self.snapshot is not None
            base = self.snapshot.own
        claims = customizer.claims
        assert self.snapshot is not None
        return Pool(
            self._vectors,
            reference,
            clients,
            calibrate,
            spare_ND,
            claims,
            base,
            self.plan.traces,
            self.snapshot.unchanged(),
        )

    def load(self, receipts: Iterable[Receipt]) -> None:
        """Loads updates that have arrived into the rows of the open round."""
        assert self.arrivals is not None
        for receipt in receipts:
            self.arrivals.load(receipt)

    def close_round(
        self,
        round_: int,
        receipts: Mapping[str, Receipt],
        position: str,
        pulls: tuple[str, ...],
        standing: Standing,
    ) -> Decided:
        """Decides a round over these updates, and stores every resulting model.

        Args:
            round_: number of the round.
            receipts: the updates to aggregate, by client.
            position: position of the last event that the round accounts for.
            pulls: clients that wait for a ticket (buffered policy).
            standing: who is barred, and the numbers that bound further evictions.
        """
        assert self.snapshot is not None
        assert self.arrivals is not None
        ended, before = Stopwatch(), self.snapshot
        self.arrivals.keep(receipts)
        for client, receipt in receipts.items():
            if client not in self.arrivals:
                self.arrivals.load(receipt)
        ended("load")

        self.pool = None  # Frees its memory for the computation below.
        weights = {c: self._weight(r, round_) for c, r in receipts.items()}
        stale = {r.client for r in before.pool if receipts.get(r.client) == r}
        rows = self.arrivals.rows(weights, stale)
        state = load_state(self._blobs, before.state, self.device)
        if round_ == 0 or before.state is None:
            state = self.plan.init(self.spec.trainable)
        context = self._resources.attach_to(self._context(round_, self.arrivals))
        context = replace(context, standing=standing)
        if self.plan.customizer.continues:
            made = before.customized.items()
            context = replace(context, models={n: self._vectors.read(d) for n, d in made})
        ended("calibrate")
        judged = self.arrivals.judged(rows)
        outcome = run_round(self.plan, rows, state, context, judged, ended)

        global_model = self._store(outcome.global_D)
        customization = outcome.customization
        customized = self._store_models(customization.models)
        state_digest = store_state(self._blobs, outcome.state)
        ended("store")

        survivors = outcome.survivors.ids
        self.arrivals.keep(survivors)
        snapshot = Snapshot(
            global_model=global_model,
            reference=before.global_model,
            state=state_digest,
            pool=tuple(receipts[c] for c in survivors) if self.keeps_pool else (),
            customized=customized,
            assignment={c: n for c, n in customization.assignment.items() if n != (c,)},
            groups=customization.groups,
            voters=customization.voters,
            challenged=dict(customization.challenged),
            position=position,
            pulls=pulls,
        )
        fields = decisions(statistics.parameters(rows, context), outcome)
        fields["quarantined"] = sorted(standing.quarantined)
        fields["mode"] = standing.mode or self.plan.eviction.mode
        decided = Decided(
            snapshot, fields, ended.seconds, model_bytes(self.spec), self.arrivals.bytes
        )
        self.snapshot = snapshot
        if self.probes:
            self.pool = self.arrivals
        else:
            self._spare_ND = self.arrivals.block_ND
        self.arrivals = None
        return decided

    def customize_newcomer(self, receipt: Receipt, round_: int) -> str:
        """Makes the customized model of a client that answered a probe; returns its digest."""
        assert self.snapshot is not None
        if receipt.diverged or self.pool is None or not len(self.pool):
            return self.snapshot.start(receipt.client)
        context, end = self._context(round_, self.pool), self.spec.trainable
        own = statistics.of_parameters(context)
        rows = self.pool.rows(dict.fromkeys(self.pool.receipts, 1.0))
        judged = self.pool.judged(rows)
        rows = statistics.parameters(rows, context)
        similar = rows if judged is None else statistics.parameters(judged, context)
        probe_D = self._vectors.read(receipt.digest)[:end]
        mix_LM = self.plan.customizer.customize_newcomer(probe_D, similar, own).unsqueeze(0)
        models: Models = Mixture((receipt.client,), self.pool.reference_D[:end], rows, mix_LM)
        if self.spec.statistics:
            held_S = self._vectors.read(self.snapshot.global_model)[end:]
            models = statistics.WithStatistics(models.names, models, held_S)
        return self._store_models(models)[receipt.client]

    def _weight(self, receipt: Receipt, round_: int) -> float:
        staleness = max(0, round_ - receipt.round)
        return float(receipt.samples / (1 + staleness) ** 0.5)

    def _context(self, round_: int, pool: Pool) -> Context:
        return Context(
            round=round_,
            seed=self.experiment.seed,
            reference_D=pool.reference_D,
            layout=self.spec.parameters,
            statistics=self.spec.statistics,
        )

    def _store(self, model_D: Tensor) -> str:
        with self._blobs.writer() as writer:
            writer.write(wire.header(self.spec))
            writer.write(model_D.detach().cpu().numpy().data)
            return writer.commit()

    def _store_models(self, models: Models | None) -> dict[str, str]:
        """Writes several models at the same time, in one pass over the pool; digests by name."""
        if models is None:
            return {}
        with ExitStack() as stack:
            writers = [stack.enter_context(self._blobs.writer()) for _ in models.names]
            for writer in writers:
                writer.write(wire.header(self.spec))
            for _, _, chunk_LC in models.chunks():
                host_LC = chunk_LC.cpu().contiguous().numpy()
                for writer, models_C in zip(writers, host_LC, strict=True):
                    writer.write(models_C.data)
            digests = self._disk.map(BlobWriter.commit, writers)
            return dict(zip(models.names, digests, strict=True))
