"""Computes the results of an experiment's rounds from claims and rows; mixes newcomers' models.

Legend: D parameters, S running statistics, A = D + S, M rows.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from rampart_fl.shared.built_experiment import build_plan
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.eviction import Decision, Mode, Standing
from rampart_fl.shared.learning.network.heads import last_layer
from rampart_fl.shared.learning.network.vector import outline
from rampart_fl.shared.learning.server_resources import ServerResources
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.robust import statistics
from rampart_fl.shared.robust.base import Context, Rows, State, Verdict
from rampart_fl.shared.robust.engine import Plan, RoundOutcome, run_round
from rampart_fl.shared.robust.pool_statistics import PoolStatistics
from rampart_fl.shared.robust.shards import Part
from rampart_fl.shared.round.pool import Claim, Pool
from rampart_fl.shared.runtime.disk_block import Block, BlockStorage


@dataclass(frozen=True, eq=False)
class Neighbours:
    """The accepted rows of the latest published round, from which newcomers' models are mixed.

    The rows have no weights, claims or sketches, because newcomers' models do not depend on them. A
    worker that loads the rows again after a restart therefore makes the same models.

    Args:
        reference_A: the model that the rows are relative to.
        rows: the calibrated rows, without running statistics.
        similar: one row for each client in `rows`; from these rows, the customizer computes
            similarities between clients. If calibration is off, `similar` holds the raw uploads;
            otherwise, it is equal to `rows`.
    """

    reference_A: Tensor
    rows: Rows
    similar: Rows


@dataclass(frozen=True, eq=False)
class RoundDecision:
    """The result of a round.

    Args:
        outcome: the result of `engine.run_round`.
        rows: the calibrated rows, whether accepted or not, without running statistics.
        neighbours: the accepted rows; None if no row was accepted.
        quarantined: sorted ids of the clients that were in quarantine before this round.
        mode: the eviction mode that was in force in this round.
        tested: metrics of the new global model on the server's test samples.
    """

    outcome: RoundOutcome
    rows: Rows
    neighbours: Neighbours | None
    quarantined: tuple[str, ...]
    mode: Mode
    tested: dict[str, float]

    def about(self, *decisions: Decision) -> dict[str, Verdict]:
        """The verdicts whose decision is one of `decisions`, keyed by client."""
        return {v.client: v for v in self.outcome.verdicts if v.decision in decisions}


@dataclass(frozen=True, eq=False)
class Rounds:
    """Computes the results of an experiment's rounds; the caller keeps the state between rounds.

    Args:
        experiment: the experiment that is run.
        plan: the stages of a round.
        resources: the server's own neural network and samples, which the stages may need.
        spec: the layout of the model.
        seed: the seed of the stages' random draws.
        part: the coordinates that this rank holds; None if it holds all coordinates.
    """

    experiment: Experiment
    plan: Plan
    resources: ServerResources
    spec: ModelSpec
    seed: int
    part: Part | None = None

    @staticmethod
    def of(
        experiment: Experiment,
        spec: ModelSpec,
        device: torch.device,
        part: Part | None = None,
        seed: int | None = None,
    ) -> "Rounds":
        """The `Rounds` of an experiment, with vectors on `device`.

        Args:
            experiment, spec: the experiment, and the layout of its model.
            device: the device that holds the vectors.
            part: the coordinates that this rank holds; None if it holds all coordinates.
            seed: the seed of the stages' random draws; by default, the experiment's seed.
        Raises:
            ConfigurationError: a stage needs samples that the experiment does not name, or the
                experiment's vectors cannot be divided among ranks.
        """
        plan = build_plan(experiment)
        if part is not None:
            check_divides(plan, spec)
        resources = ServerResources.of(experiment, plan, device)
        seed = experiment.seed if seed is None else seed
        return Rounds(experiment, plan, resources, spec, seed, part)

    def pool(
        self,
        reference_A: Tensor,
        clients: Iterable[str],
        storage: BlockStorage | None = None,
        spare: Block | None = None,
    ) -> Pool:
        """An empty pool of rows relative to a model; see `Pool`."""
        trainable = self.spec.trainable
        part, seed = self.part, self.seed
        return Pool(self.plan, trainable, reference_A, clients, storage, spare, part, seed)

    def context(
        self,
        round_: int,
        reference_A: Tensor,
        standing: Standing | None = None,
        selected: Iterable[str] = (),
        examined: Iterable[str] = (),
    ) -> Context:
        """The context of a round's stages, without the server's resources."""
        buffered = self.experiment.policy == "buffered"
        return Context(
            round=round_,
            seed=self.seed,
            reference_D=reference_A,
            layout=self.spec.parameters,
            head=self._head,
            statistics=self.spec.statistics,
            buffered=buffered,
            selected=frozenset(() if buffered else selected),
            examined=frozenset(examined),
            standing=standing,
        )

    @cached_property
    def _head(self) -> str:
        """Name of the model's last layer; empty if no stage needs it, or if it is the only one."""
        compares = self.plan.customizer.compares_heads
        return last_layer(outline(self.experiment)) if compares else ""

    def rows(self, pool: Pool, claims: Mapping[str, Claim]) -> Rows:
        """The calibrated rows of the clients in `claims`, weighted by capped sample counts."""
        return pool.rows(claims, self.experiment.server.sample_cap)

    def decide(
        self,
        round_: int,
        pool: Pool,
        claims: Mapping[str, Claim],
        state: State,
        standing: Standing,
        models: Callable[[], Mapping[str, Tensor]],
        ended: Callable[[str], None] = lambda step: None,
        selected: Iterable[str] = (),
        examined: Iterable[str] = (),
    ) -> RoundDecision:
        """Computes the result of a round; the rows of `pool` are relative to `pool.reference_D`.

        Args:
            round_: number of the round.
            pool: the rows of the uploads, with one row for every claim.
            claims: what is known about each upload, by client.
            state: the state of the stages; if it is empty, the stages begin with their initial
                states.
            standing: the barred clients, and the numbers that determine how many clients may be
                barred.
            models: callback that returns the customized models (A,) of the previous round, keyed
                by name. `models` is called only if the customizer continues from these models.
            ended: callback that gets the name of each step when the step ends.
            selected: the clients that the server selected for the round. Under the buffered policy,
                clients may upload without being selected, so `selected` is ignored.
            examined: the selected clients whose uploads the round judges, but does not aggregate.
        Raises:
            PreconditionError: there are too few rows for a stage.
        """
        rows = self.rows(pool, claims)
        if not state.tensors and not state.ids:
            state = self.plan.init(self.spec.trainable)
        context = self.context(round_, pool.reference_D, standing, selected, examined)
        context = self._with_resources(context)
        if self.plan.customizer.continues:
            context = replace(context, models=models())
        ended("calibrate")
        raw = pool.judged(rows)
        outcome = run_round(self.plan, rows, state, context, raw, ended)
        return RoundDecision(
            outcome=outcome,
            rows=self._parameters(rows),
            neighbours=self._neighbours(pool.reference_D, outcome.survivors, raw),
            quarantined=tuple(sorted(standing.quarantined)),
            mode=standing.mode or self.plan.eviction.mode,
            tested=self._tested(outcome.global_D),
        )

    def neighbours(self, pool: Pool, claims: Mapping[str, Claim]) -> Neighbours | None:
        """Makes `Neighbours` from a restored pool; `claims` must contain only accepted clients."""
        rows = self.rows(pool, claims)
        return self._neighbours(pool.reference_D, self._parameters(rows), pool.judged(rows))

    def to_probe(
        self, clients: Iterable[str], customized: bool, known: Callable[[str], bool]
    ) -> list[str]:
        """The clients that must answer a probe before they train; used in simulation and services.

        Args:
            clients: the clients that take part in the open round.
            customized: whether the latest published round made customized models.
            known: callback that says whether a client has its own model, a group's model, or a
                challenge.
        """
        if not customized or not self.plan.customizer.probes:
            return []
        return [client for client in clients if not known(client)]

    def newcomer(
        self, round_: int, probe_A: Tensor | None, neighbours: Neighbours | None, held_S: Tensor
    ) -> Tensor | None:
        """The first model (A,) of a client that answered a probe.

        Args:
            round_: number of the open round.
            probe_A: the client's upload after training from `neighbours.reference_A`; None if the
                training has diverged.
            neighbours: the accepted rows of the latest published round; None if there are none.
            held_S: the running statistics of the global model.
        Returns:
            The model, or None if the client gets the global model. The client gets the global model
            if no row was accepted or the probe is not finite.
        """
        if neighbours is None or probe_A is None:
            return None
        if not neighbours.rows.place.every(bool(probe_A.isfinite().all())):
            return None
        end, reference_A = self.spec.trainable, neighbours.reference_A
        context = statistics.of_parameters(self.context(round_, reference_A))
        weights_M = self.plan.customizer.customize_newcomer(
            probe_A[:end], neighbours.similar, context
        )
        mixed_D = reference_A[:end] + neighbours.rows.combine(weights_M)
        return torch.cat([mixed_D, held_S])

    def _with_resources(self, context: Context) -> Context:
        """The context with all resources that the stages need, for this rank's coordinates."""
        if self.part is None or not self.plan.needs():
            return self.resources.attach_to(context)
        assert context.reference_D is not None
        own_D = context.reference_D
        whole_D = self.part.whole(own_D).to(own_D.device)
        context = self.resources.attach_to(replace(context, reference_D=whole_D))
        update_D = context.server_update_D
        held_D = None if update_D is None else update_D[self.part.here].clone()
        return replace(context, reference_D=own_D, server_update_D=held_D)

    def _tested(self, global_A: Tensor) -> dict[str, float]:
        if self.part is not None and self.resources.test is not None:
            global_A = self.part.whole(global_A).to(global_A.device)
        return self.resources.tested(global_A)

    def _parameters(self, rows: Rows) -> Rows:
        """The rows without running statistics."""
        return rows.columns(slice(0, self.spec.trainable)) if self.spec.statistics else rows

    def _neighbours(self, reference_A: Tensor, kept: Rows, raw: Rows | None) -> Neighbours | None:
        """Makes `Neighbours` of the accepted rows; takes `similar` from `raw` if `raw` is given."""
        if not len(kept):
            return None
        rows = replace(kept, weights_M=None, metadata={}, dropped=(), traces=None)
        if raw is None:
            return Neighbours(reference_A, rows, rows)
        uploads = self._parameters(raw)
        known = PoolStatistics(squares_N=uploads.pool_statistics.squares_N)
        similar = replace(rows, block_ND=uploads.block_ND, file=uploads.file, pool_statistics=known)
        return Neighbours(reference_A, rows, similar)


def check_divides(plan: Plan, spec: ModelSpec) -> None:
    """Refuses models that cannot be divided among ranks, and stages that need whole rows.

    Raises:
        ConfigurationError: the model has running statistics, or a stage needs whole rows; the
            message names the stage.
    """
    if spec.statistics:
        raise ConfigurationError(
            "ranks cannot divide a model with running statistics: use a model without batch "
            "normalization, or start the worker as one process"
        )
    if name := plan.undivided():
        raise ConfigurationError(
            f"{name!r} works on whole rows, so ranks cannot divide them: start the worker as one "
            "process"
        )
