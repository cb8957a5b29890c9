"""One round on the server: screen, pre-aggregate, aggregate, step, audit, customize.

`run_round` is pure: for the same rows, state and context it returns the same outcome, bit for bit.

Legend: M rows of the round, D parameters, S running statistics, A = D + S.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError, MissingRow, PreconditionError
from rampart_fl.shared.experiment.eviction import BARRING, Eviction, Standing
from rampart_fl.shared.robust import statistics
from rampart_fl.shared.robust.base import (
    Context,
    Detector,
    Report,
    Rows,
    Stage,
    State,
    Verdict,
    with_tolerable_f,
)
from rampart_fl.shared.robust.context import Need
from rampart_fl.shared.robust.customizers import Customization, Customizer, customizers
from rampart_fl.shared.robust.detectors import detectors
from rampart_fl.shared.robust.eviction import apply_policy, worst
from rampart_fl.shared.robust.evidence.challenges import Challenger
from rampart_fl.shared.robust.linalg.finite import finite_rows
from rampart_fl.shared.robust.pipeline import Pipeline, Spec, join_states, split_state
from rampart_fl.shared.robust.server_step import ServerStep


@dataclass(frozen=True)
class Plan:
    """The server's part of an experiment: which stages a round runs."""

    pipeline: Pipeline
    detectors: tuple[Detector, ...]
    step: ServerStep
    customizer: Customizer
    calibrate: bool = True
    """Whether the detectors judge uploads relative to the global model. If not, the detectors judge
    raw uploads, and the customizer computes similarities from raw uploads."""
    eviction: Eviction = field(default_factory=Eviction)
    """What the server does if a detector asks for a client's eviction."""
    f: int | None = None
    """Declared bound on the number of hostile clients; None if no bound was declared."""

    @property
    def judges_models(self) -> bool:
        """Whether verdicts depend on the starting models that the server sent to the clients.

        If the detectors judge raw uploads, or if groups of clients are isolated, the verdicts do
        not depend on the clients' starting models.
        """
        return self.calibrate and not self.customizer.isolates

    @staticmethod
    def of(
        rule: Spec | Sequence[Spec],
        screens: Sequence[Any] = (),
        customizer: Any = "global_model",
        step: ServerStep | None = None,
        calibrate: bool = True,
        eviction: Eviction | None = None,
        f: int | None = None,
    ) -> "Plan":
        """Builds a plan from names or dictionaries; each stage with a parameter f gets the given
        f."""
        bound = f or 0
        return Plan(
            pipeline=Pipeline.of(rule, f=bound),
            detectors=tuple(detectors.parse(spec, f=bound) for spec in screens),
            step=step or ServerStep(),
            customizer=customizers.parse(customizer, f=bound),
            calibrate=calibrate,
            eviction=eviction or Eviction(),
            f=f,
        )

    @property
    def traces(self) -> int:
        """Size of the sketches that detectors ask for; 0 if no detector asks for sketches."""
        return max((detector.traces for detector in self.detectors), default=0)

    def check_statistics(self) -> None:
        """Refuses models with running statistics if groups of clients must be isolated."""
        if self.customizer.isolates:
            raise ConfigurationError(
                f"{self.customizer.name} isolates groups from each other, but running "
                "statistics are medians over all clients: use a model without batch normalization"
            )

    def check_rows(self, n: int) -> None:
        """Refuses stages that need more than n rows, or that cannot work together.

        The method applies the stages to n rows of zeros. If groups are isolated, the method skips
        the pipeline, because isolated groups may have few clients and do not use the pipeline's
        result. The method also skips stages that need something from the server, such as public
        samples.

        Raises:
            ConfigurationError: no round could succeed; the message states n, f and the bound.
        """
        rows = Rows.of(torch.zeros(n, 1), metadata={"loss_gap": [0.0] * n})
        nothing_D = torch.zeros(1)
        context = Context(reference_D=nothing_D, aggregate_D=nothing_D)
        self.customizer.check_rows(rows, context)
        try:
            if not self.customizer.isolates and not self.pipeline.needs():
                self.pipeline.apply(rows, self.pipeline.init(1), context)
            for stage in self.detectors:
                if not stage.needs():
                    stage.judge(rows, stage.init(1), context)
        except MissingRow:
            return  # A client without a row may still send one in this round.
        except PreconditionError as error:
            raise ConfigurationError(f"no round can succeed: {error}") from None

    def stages(self) -> dict[str, Stage]:
        """All detectors, keyed by their names in the state."""
        return {f"detector-{i}-{stage.name}": stage for i, stage in enumerate(self.detectors)}

    def needs(self) -> dict[Need, str]:
        """Maps each need (from the server) to the name of the first stage that has this need."""
        everything = (*self.pipeline.stages, *self.detectors, self.customizer)
        return {need: s.name for s in reversed(everything) for need in sorted(s.needs())}

    def unstreamed(self) -> Stage | None:
        """A stage that needs the whole pool in memory; None if there is no such stage.

        >>> Plan.of("median").unstreamed()
        >>> Plan.of("sdea").unstreamed().memory_reason
        "reads all rows in each step, and runs every client's model"
        """
        everything = (*self.pipeline.stages, *self.detectors, self.customizer)
        return next((inner for stage in everything for inner in stage.unstreamed()), None)

    def undivided(self) -> str | None:
        """Name of a stage that cannot be split across ranks; None if there is no such stage.

        >>> Plan.of("median").undivided(), Plan.of("sdea").undivided()
        (None, 'sdea')
        """
        everything = (*self.pipeline.stages, *self.detectors, self.customizer)
        return next((name for stage in everything for name in stage.undivided()), None)

    def init(self, dim: int) -> State:
        """The state before the first round, for models of `dim` parameters."""
        states = {key: stage.init(dim) for key, stage in self.stages().items()}
        states |= {"pipeline": self.pipeline.init(dim), "customizer": self.customizer.init(dim)}
        return join_states(states)


@dataclass(frozen=True, eq=False)
class RoundOutcome:
    """The models, verdicts and states that result from a round.

    Args:
        global_D: the next global model.
        survivors: the calibrated rows of the accepted clients; these rows contain no running
            statistics. The customized models are combinations of the survivors.
        customization: the models besides the global model, and which client gets which model.
        verdicts: the final verdict on each client whose row was received, even if the row was
            dropped as non-finite; ordered by client id.
        state: what the stages keep for the next round.
        reports: one report per stage of the pipeline.
    """

    global_D: Tensor
    survivors: Rows
    customization: Customization
    verdicts: tuple[Verdict, ...]
    state: State
    reports: tuple[Report, ...]


def run_round(
    plan: Plan,
    rows: Rows,
    state: State,
    context: Context,
    similar: Rows | None = None,
    ended: Callable[[str], None] = lambda step: None,
) -> RoundOutcome:
    """Runs one round on calibrated rows.

    If models have running statistics, the stages work on the parameters alone. After the stages,
    every model of the outcome gets the median of the accepted clients' statistics
    (`rampart_fl.shared.robust.statistics`).

    Args:
        plan: the stages.
        rows: one update per client, relative to `context.reference_D`.
        state: the state from `plan.init` or from the previous round's outcome.
        context: the round, the seed and the reference model.
        similar: the raw uploads, given only if calibration is off. The detectors then judge these
            uploads in place of `rows`, and the customizer computes similarities from them.
        ended: callback, such as a `Stopwatch`, that gets the name of each step when the step ends.
    """
    if not context.statistics:
        return _decide(plan, rows, state, context, similar, ended)
    plan.check_statistics()
    judged = None if similar is None else statistics.parameters(similar, context)
    own = statistics.of_parameters(context)
    outcome = _decide(plan, statistics.parameters(rows, context), state, own, judged, ended)
    kept = set(outcome.survivors.ids)
    accepted = rows.keep([i for i, client in enumerate(rows.ids) if client in kept])
    held_S = statistics.aggregate(accepted, context)
    ended("statistics")
    custom = outcome.customization
    if custom.models is not None:
        custom = replace(
            custom, models=statistics.WithStatistics(custom.models.names, custom.models, held_S)
        )
    global_A = torch.cat([outcome.global_D, held_S])
    return replace(outcome, global_D=global_A, customization=custom)


def _decide(
    plan: Plan,
    rows: Rows,
    state: State,
    context: Context,
    similar: Rows | None,
    ended: Callable[[str], None],
) -> RoundOutcome:
    """Runs one round on rows that hold parameters only."""
    states, judged = split_state(state), rows if similar is None else similar
    present = len(rows) + len(rows.dropped)
    standing = context.standing or Standing(present, present)
    standing = replace(standing, mode=standing.mode or plan.eviction.mode)
    context = replace(context, standing=standing)
    _forget(plan, standing.reinstated, states)

    counted = _aggregated(rows, context)
    screened = _judge(plan, "screen", judged, states, context)
    accepted = counted if context.observes else _accepted(counted, screened)
    ended("screen")
    global_D: Tensor | None = None
    reports: tuple[Report, ...] = ()
    left_out = sorted({*counted.ids, *standing.barred} - {*accepted.ids})
    try:
        if len(accepted):
            global_D, context, reports = with_tolerable_f(
                lambda kept: _aggregate(plan, kept, states, context), accepted, left_out
            )
    except PreconditionError:
        # The round continues without a new global model if groups are isolated, or if detectors
        # left out clients. If groups are isolated, an error would let a client of one group stop
        # the round for all groups. If detectors left out clients, an error would lose the
        # detectors' verdicts, and nobody would ever be evicted.
        if not plan.customizer.isolates and len(accepted) == len(counted):
            raise
    if global_D is None:
        assert context.reference_D is not None
        global_D = context.reference_D.clone()
    ended("aggregate")

    asked = worst(rows, screened + _judge(plan, "audit", judged, states, context))
    verdicts = apply_policy(asked, rows.dropped, standing, plan.eviction, plan.f)
    _forget(plan, standing.evicted | {v.client for v in verdicts if v.decision in BARRING}, states)
    survivors = _accepted(counted, verdicts)
    ended("audit")
    context = replace(context, aggregate_D=None)  # Frees the memory of the aggregate.
    customization, states["customizer"] = plan.customizer.apply(
        survivors,
        _accepted(_aggregated(judged, context), verdicts),
        states.get("customizer", State()),
        context,
    )
    for key, stage in [] if context.observes else _challengers(plan):
        customization, states[key] = stage.challenge(
            survivors, customization, global_D, states.get(key, State()), context
        )
    ended("customize")
    return RoundOutcome(global_D, survivors, customization, verdicts, join_states(states), reports)


def _aggregate(
    plan: Plan, accepted: Rows, states: dict[str, State], context: Context
) -> tuple[Tensor, Context, tuple[Report, ...]]:
    """The next global model, the context with the aggregate, and reports; updates `states`.

    Raises:
        PreconditionError: there are too few rows, or the next model would not be finite.
    """
    assert context.reference_D is not None
    aggregate_D, carried, reports = plan.pipeline.apply(
        accepted, states.get("pipeline", State()), context
    )
    global_D, moved = plan.step.apply(context.reference_D, aggregate_D, states.get("step", State()))
    if not accepted.place.every(all(finite_rows(global_D.unsqueeze(0)))):
        raise PreconditionError("the next global model would not be finite")
    states |= {"pipeline": carried, "step": moved}
    return global_D, replace(context, aggregate_D=aggregate_D), reports


def _challengers(plan: Plan) -> list[tuple[str, Challenger]]:
    """The detectors that challenge clients, beginning with those that need their own challenges."""
    stages = [(key, one) for key, one in plan.stages().items() if isinstance(one, Challenger)]
    return sorted(stages, key=lambda pair: not pair[1].own)


def _judge(
    plan: Plan, when: str, rows: Rows, states: dict[str, State], context: Context
) -> tuple[Verdict, ...]:
    verdicts: tuple[Verdict, ...] = ()
    counted = _aggregated(rows, context)
    for key, stage in plan.stages().items():
        assert isinstance(stage, Detector)
        # Detectors that challenge no clients must not compare rows with examined rows.
        compared = rows if isinstance(stage, Challenger) else counted
        # If no row is finite, a detector that compares rows has nothing to compare.
        judges = len(compared) or (compared.dropped and stage.alone)
        if stage.when == when and judges:
            assert context.standing is not None
            judge = partial(stage.judge, state=states.get(key, State()), context=context)
            own, states[key] = with_tolerable_f(judge, compared, sorted(context.standing.barred))
            verdicts += own
    return verdicts


def _forget(plan: Plan, clients: Collection[str], states: dict[str, State]) -> None:
    for key, stage in plan.stages().items():
        if clients and key in states:
            assert isinstance(stage, Detector)
            states[key] = stage.forget(states[key], clients)


def _aggregated(rows: Rows, context: Context) -> Rows:
    """The rows without those that are only examined."""
    if not context.examined:
        return rows
    kept = [i for i, client in enumerate(rows.ids) if client not in context.examined]
    dropped = tuple(client for client in rows.dropped if client not in context.examined)
    return replace(rows.keep(kept), dropped=dropped)


def _accepted(rows: Rows, verdicts: Sequence[Verdict]) -> Rows:
    out = {verdict.client for verdict in verdicts if verdict.decision != "accepted"}
    if not out.intersection(rows.ids):
        return rows
    return rows.keep([i for i, client in enumerate(rows.ids) if client not in out])
