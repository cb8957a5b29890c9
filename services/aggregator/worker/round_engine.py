"""The round engine: the worker's computations on vectors, which run on a separate thread.

Legend: D coordinates, L models, C coordinates of a chunk.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import torch

from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.state.snapshot import Snapshot
from rampart_fl.services.aggregator.worker.arrivals import Arrivals, ServedDigests, claims
from rampart_fl.services.aggregator.worker.disk.needs import DiskNeeds, models_of
from rampart_fl.services.aggregator.worker.memory_limit import memory_for_blocks
from rampart_fl.services.aggregator.worker.model_store import ModelStore
from rampart_fl.services.aggregator.worker.ranked_blobs import RankedBlobs
from rampart_fl.services.aggregator.worker.ranks import Ranks, on_every_rank
from rampart_fl.services.aggregator.worker.stage_state import load_state, store_state
from rampart_fl.services.aggregator.worker.vectors import Vectors
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.eviction import Decision, Standing
from rampart_fl.shared.figures.decision_record import DecisionRecord
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.protocol.messages import Receipt, VerdictRecord
from rampart_fl.shared.protocol.traffic import model_bytes
from rampart_fl.shared.robust.base import State
from rampart_fl.shared.robust.histories import stored_rows
from rampart_fl.shared.robust.shards import Part
from rampart_fl.shared.round.pool import Claim
from rampart_fl.shared.round.rounds import Neighbours, RoundDecision, Rounds
from rampart_fl.shared.runtime.disk_block import Block, BlockStorage
from rampart_fl.shared.runtime.stopwatch import Stopwatch


@dataclass(frozen=True)
class RoundResult:
    """The outcome of a round: the new snapshot, the content of the record, and timings."""

    snapshot: Snapshot
    record: DecisionRecord
    timings: dict[str, float]
    model_bytes: int
    """Size in bytes of one model as clients download it."""
    pool_bytes: int
    """Size in bytes of the blocks that held the rows."""

    @property
    def verdicts(self) -> list[VerdictRecord]:
        """The verdicts of the round, one per client."""
        return self.record.verdicts

    def about(self, *decisions: Decision) -> dict[str, VerdictRecord]:
        """The verdicts with any of these decisions, keyed by client, in the order of `verdicts`."""
        return {v.client: v for v in self.verdicts if v.decision in decisions}


class RoundEngine:
    """Holds the vectors of one run and computes on them.

    Args:
        experiment: the experiment that is run.
        spec: the model's tensors.
        blobs: the store of models and updates.
        device: the torch device that holds the vectors.
        pool_memory: memory limit in bytes for all blocks of rows, including the rows that stages
            keep from earlier rounds. On the CPU, blocks that exceed the limit are in files. On
            another device, all blocks must fit into the limit.
        ranks: the processes across which the coordinates of vectors are split.
        seed: the seed of the stages' random draws; by default, the experiment's seed.
    Raises:
        ConfigurationError: a stage cannot work with these arguments; the message says why.
    """

    def __init__(
        self,
        experiment: Experiment,
        spec: ModelSpec,
        blobs: Blobs,
        device: torch.device,
        pool_memory: int | None = None,
        ranks: Ranks | None = None,
        seed: int | None = None,
    ) -> None:
        self.ranks = ranks or Ranks()
        self.experiment = experiment
        self.rounds = Rounds.of(experiment, spec, device, self.ranks.part(spec.dim), seed)
        self.spec = spec
        self.device = device
        self._here = (self.rounds.part or Part(spec.dim, 0, spec.dim)).here
        self._row_bytes: int = 4 * (self._here.stop - self._here.start)
        self._blobs = blobs
        self._models = ModelStore(blobs, spec, self.ranks)
        self._ranked_blobs = RankedBlobs(blobs, self.ranks)
        self._vectors = Vectors(self._ranked_blobs, spec, device, self.rounds.part)
        self.snapshot: Snapshot | None = None
        self.neighbours: Neighbours | None = None
        """Accepted rows of the newest published round, from which newcomers' models are mixed."""
        self.arrivals: Arrivals | None = None
        """The rows of the open round, with the updates loaded so far; None between rounds."""
        self._storage = BlockStorage(self._block_memory(pool_memory), blobs.unfinished)
        self._spare: Block | None = None
        self._last_state: tuple[str | None, State] = None, State()
        """The digest of the stages' state after the previous round, and this state itself."""

    def _block_memory(self, pool_memory: int | None) -> int | None:
        """This process's memory limit for blocks of rows, in bytes; None if there is no limit."""
        if pool_memory is None:
            return None
        plan, dim, most = self.rounds.plan, self.spec.dim, 4 * self.ranks.most(self.spec.dim)
        files = self.device.type == "cpu"
        memory = memory_for_blocks(self.experiment, plan, dim, most, pool_memory, files)
        # A rank's limit is proportional to its row size, so all ranks put the same blocks into
        # files.
        return memory * self._row_bytes // most

    def disk_shortage(self, clients: int, counted: int | None = None) -> str:
        """Why a round has to wait for disk space; empty if its pool and models fit on the disk.

        Args:
            clients: number of clients that get a row (see `clients_with_rows`).
            counted: number of these clients whose rows are aggregated; all by default.
        Raises:
            Unavailable: the disk does not answer.
        """
        plan, spare, size = self.rounds.plan, self._spare, self._row_bytes
        blocks, freed = 1 if plan.calibrate else 2, 0
        if spare is not None and len(spare) == clients:
            blocks -= 1
        elif spare is not None and spare.file is None:
            freed = spare.bytes
        kept = stored_rows(plan, self.experiment.most_clients)
        filed = clients * self._storage.filed(blocks, clients, size, self.device, freed)
        pool = size * (blocks * clients - filed) - freed
        if kept and self._storage.maps(kept, size, self.device, pool):
            filed += kept
        needs = DiskNeeds(
            vector_bytes=4 * self.spec.dim,
            clients=clients,
            models=models_of(
                plan,
                clients,
                clients if counted is None else counted,
                self.experiment.most_clients,
            ),
            kept=kept,
            filed=filed,
        )
        return needs.shortage(self._blobs)

    @property
    def probes(self) -> bool:
        """Whether the server probes clients that have no customized model yet."""
        return self.rounds.plan.customizer.probes

    @property
    def keeps_pool(self) -> bool:
        """Whether the rows of a round are needed after the round.

        If the server probes newcomers, it mixes their models from these rows. Under the buffered
        policy, later rounds include each client's newest row.
        """
        return self.probes or self.experiment.policy == "buffered"

    @staticmethod
    def first_model(experiment: Experiment, blobs: Blobs) -> tuple[ModelSpec, Snapshot]:
        """Stores a run's first model; returns its spec and the first snapshot."""
        from rampart_fl.shared.learning.network.vector import initial_model

        spec, model_D = initial_model(experiment)
        digest = blobs.put(wire.encode(spec, model_D.numpy()))
        initial = None if experiment.start is None else digest
        return spec, Snapshot(global_model=digest, reference=digest, initial=initial)

    def close(self) -> None:
        """Stops the threads at the end of the run."""
        self._models.close()

    @on_every_rank
    def restore(self, snapshot: Snapshot) -> None:
        """Restores the state after a published round; if newcomers are probed, reloads the pool."""
        self.snapshot, self.neighbours, self.arrivals = snapshot, None, None
        if self.probes and snapshot.pool:
            clients = [receipt.client for receipt in snapshot.pool]
            again = self._arrivals(ServedDigests(snapshot, snapshot.reference), clients)
            for receipt in snapshot.pool:
                again.load(receipt)
            claims = {r.client: Claim(r.samples, r.metrics) for r in snapshot.pool}
            self.neighbours = self.rounds.neighbours(again.pool, claims)

    def clients_with_rows(self, selected: Iterable[str]) -> frozenset[str]:
        """The clients that get a row in the next round.

        Under the buffered policy, a client that is not selected also gets a row if the pool has an
        update of this client.
        """
        assert self.snapshot is not None
        pool = self.snapshot.pool if self.experiment.policy == "buffered" else ()
        return frozenset(selected).union(receipt.client for receipt in pool)

    @on_every_rank
    def open_round(self, selected: Iterable[str]) -> None:
        """Allocates the rows of a new round."""
        assert self.snapshot is not None
        served = ServedDigests(self.snapshot, self.snapshot.global_model)
        self.arrivals = self._arrivals(served, self.clients_with_rows(selected))

    def _arrivals(self, served: ServedDigests, clients: Iterable[str]) -> Arrivals:
        rows = frozenset(clients)
        spare, self._spare = self._spare, None
        if spare is not None and len(spare) != len(rows):
            spare = None  # Frees the spare block's memory for the new block.
        reference_D = self._vectors.read(served.reference())
        pool = self.rounds.pool(reference_D, rows, self._storage, spare)
        return Arrivals(self.rounds, self._vectors, served, pool)

    @on_every_rank
    def abandon_round(self, snapshot: Snapshot) -> None:
        """Ends the open round without an outcome; its rows are no longer needed."""
        self.snapshot = snapshot
        if self.arrivals is not None:
            self._spare, self.arrivals = self.arrivals.pool.block, None

    @on_every_rank
    def load(self, receipts: Collection[Receipt]) -> None:
        """Loads arrived updates into the rows of the open round."""
        assert self.arrivals is not None
        for receipt in receipts:
            self.arrivals.load(receipt)

    @on_every_rank
    def close_round(
        self,
        round_: int,
        receipts: Mapping[str, Receipt],
        position: str,
        pulls: tuple[str, ...],
        standing: Standing,
        selected: frozenset[str] = frozenset(),
        examined: frozenset[str] = frozenset(),
        in_use: Collection[str] = (),
    ) -> RoundResult:
        """Computes the outcome of a round, and stores every resulting model.

        Args:
            round_: number of the round.
            receipts: the updates to judge and to aggregate, by client.
            position: position of the last event that was handled for the round.
            pulls: clients that wait for a ticket (buffered policy).
            standing: the barred clients, the number of clients, and the operator's eviction mode.
            selected: the clients that the server selected for the round.
            examined: the selected clients whose uploads the round does not aggregate.
            in_use: digests of models from which clients may still train (buffered policy).
        """
        assert self.snapshot is not None
        assert self.arrivals is not None
        lap, before, pool = Stopwatch(), self.snapshot, self.arrivals.pool
        for client, receipt in receipts.items():
            if client not in pool:
                self.arrivals.load(receipt)
        lap("load")

        self.neighbours = None  # Frees memory for the computation below.
        self.arrivals.release_start()
        decision = self.rounds.decide(
            round_,
            pool,
            claims(round_, receipts, before.pool),
            self._state_of(before),
            standing,
            lambda: {name: self._vectors.read(d) for name, d in before.customized.items()},
            lap,
            selected,
            examined,
        )
        kept = [receipts[c] for c in decision.outcome.survivors.ids] if self.keeps_pool else []
        waits = self.experiment.phases.collecting.count.max is None
        moved = {
            "pool": tuple(kept),
            "origins": before.origins_in_use(kept, in_use),
            "position": position,
            "pulls": pulls,
            # A round that does not wait for all its clients is not delayed by silent clients.
            "silent": before.silent_after(selected, receipts) if waits else (),
        }
        self.snapshot = self._store(decision, before).model_copy(update=moved)
        lap("store")

        if self.probes:
            self.neighbours = decision.neighbours
        else:
            self._spare = pool.block
        self.arrivals = None
        record, size = DecisionRecord.of(decision), model_bytes(self.spec)
        lap("record")
        return RoundResult(self.snapshot, record, lap.seconds, size, pool.bytes)

    def _store(self, decision: RoundDecision, before: Snapshot) -> Snapshot:
        """Stores the models and the stages' state after a round; returns a snapshot of them.

        Args:
            decision: the result of the round.
            before: the snapshot before the round.
        """
        outcome, customization = decision.outcome, decision.outcome.customization
        global_model = self._models.put(outcome.global_D)
        customized = self._models.put_all(customization.models)
        state_digest = store_state(self._blobs, outcome.state, self.rounds.part, self.ranks)
        self._last_state = state_digest, outcome.state
        return Snapshot(
            global_model=global_model,
            reference=before.global_model,
            state=state_digest,
            customized=customized,
            assignment={c: n for c, n in customization.assignment.items() if n != (c,)},
            groups=customization.groups,
            voters=customization.voters,
            challenged=dict(customization.challenged),
            awaited=tuple(sorted(customization.awaited)),
            initial=before.initial,
        )

    def _state_of(self, snapshot: Snapshot) -> State:
        """The stages' state in a snapshot; a worker reads the state's blob only after a restart."""
        digest, state = self._last_state
        if digest != snapshot.state:
            blobs, storage = self._ranked_blobs, self._storage
            self._last_state = None, State()  # Frees the old state's memory.
            state = load_state(blobs, snapshot.state, self.device, self._here, storage)
        return state

    @on_every_rank
    def customize_newcomer(self, name: str, probe: str | None, round_: int) -> str:
        """Makes a customized model from the answer to a probe; returns the model's digest.

        Args:
            name: the id of the client that answered the probe. If an operator sent the answer, a
                reserved id.
            probe: digest of the answer; None if the client's training diverged.
            round_: the current round.
        """
        assert self.snapshot is not None
        probe_D, held_S = None, torch.empty(0, device=self.device)
        if probe is not None and self.neighbours is not None:
            probe_D = self._vectors.read(probe)
            if self.spec.statistics:
                held_S = self._vectors.read(self.snapshot.global_model)[self.spec.trainable :]
        made_D = self.rounds.newcomer(round_, probe_D, self.neighbours, held_S)
        return self.snapshot.own(name) if made_D is None else self._models.put(made_D)
