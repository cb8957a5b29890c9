"""A pipeline: pre-aggregators in order, then one rule.

Legend: N rows, D coordinates.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from rampart_fl.shared.errors import (
    ConfigurationError,
    PreconditionError,
    TooFewRows,
    UnknownMember,
)
from rampart_fl.shared.robust import linalg
from rampart_fl.shared.robust.base import Context, PreAggregator, Report, Rows, Rule, Stage, State
from rampart_fl.shared.robust.context import Need
from rampart_fl.shared.robust.preaggregators import preaggregators
from rampart_fl.shared.robust.rows import Updates
from rampart_fl.shared.robust.rules import rules
from rampart_fl.shared.robust.shards import Group

Spec = str | Mapping[str, Any] | Stage
"""A stage, given by its name, as a dictionary `{"name": ..., parameter: ...}`, or as an object."""


@dataclass(frozen=True)
class Pipeline:
    """Pre-aggregators in order, then a rule; `apply` is a pure function."""

    preaggregators: tuple[PreAggregator, ...]
    rule: Rule

    @staticmethod
    def of(stages: Spec | Sequence[Spec], **defaults: Any) -> "Pipeline":
        """Builds a pipeline; each stage gets the `defaults` that the stage accepts, such as f.

        >>> Pipeline.of("median", f=1).rule.f
        1
        """
        if not isinstance(stages, str | Mapping | Stage | Sequence):
            raise ConfigurationError(
                f"a pipeline must be a stage or a list of stages, not {stages!r}"
            )
        specs = [stages] if isinstance(stages, str | Mapping | Stage) else list(stages)
        if not specs:
            raise ConfigurationError("a pipeline needs a rule; known: " + ", ".join(rules.names()))
        *before, last = (_stage(spec, **defaults) for spec in specs)
        if not isinstance(last, Rule):
            raise ConfigurationError(f"a pipeline ends with a rule, not with {last.name!r}")
        wrong = [stage.name for stage in before if not isinstance(stage, PreAggregator)]
        if wrong:
            raise ConfigurationError(
                f"only the last stage may be a rule: {wrong[0]!r} is also a rule"
            )
        return Pipeline(tuple(s for s in before if isinstance(s, PreAggregator)), last)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All stages in order."""
        return (*self.preaggregators, self.rule)

    def needs(self) -> frozenset[Need]:
        """What the stages need from their context."""
        return frozenset[Need]().union(*(stage.needs() for stage in self.stages))

    def history_rows(self, clients: int) -> int:
        """Largest total size of the stages' histories, in rows of d coordinates."""
        return sum(stage.history_rows(clients) for stage in self.stages)

    def undivided(self) -> tuple[str, ...]:
        """Names of the stages that cannot be split across ranks."""
        return tuple(name for stage in self.stages for name in stage.undivided())

    def init(self, dim: int) -> State:
        """The state of every stage before the first round."""
        return join_states(
            {key: stage.init(dim) for key, stage in zip(self._keys(), self.stages, strict=True)}
        )

    def apply(
        self, rows: Rows, state: State, context: Context
    ) -> tuple[Tensor, State, tuple[Report, ...]]:
        """The aggregate (D,), the next state, and one report per stage."""
        if not len(rows):
            raise PreconditionError(
                f"nothing to aggregate: n=0 after leaving out {len(rows.dropped)}"
            )
        keys, states, reports, given = self._keys(), split_state(state), [], len(rows)
        for key, stage in zip(keys, self.preaggregators, strict=False):
            with _row_counts(len(rows), given), stage.own_errors():
                mixed, states[key], report = stage.apply(rows, states.get(key, State()), context)
            if not isinstance(mixed, Rows):
                raise ConfigurationError(f"pre-aggregator {stage.origin} must return `Rows`")
            rows = mixed
            reports.append(_checked(report, stage))
        last, rule = keys[-1], self.rule
        with _row_counts(len(rows), given), rule.own_errors():
            aggregate_D, states[last], report = rule.apply(rows, states.get(last, State()), context)
        if not isinstance(aggregate_D, Tensor):
            raise ConfigurationError(f"rule {rule.origin} must return a tensor as its aggregate")
        if (aggregate_D.shape, aggregate_D.dtype) != ((rows.dim,), rows.block_ND.dtype):
            raise ConfigurationError(
                f"rule {rule.origin} returned an aggregate of shape {tuple(aggregate_D.shape)} and "
                f"{aggregate_D.dtype} for {rows.block_ND.dtype} rows of {rows.dim} coordinates"
            )
        return aggregate_D, join_states(states), (*reports, _checked(report, rule))

    def _keys(self) -> list[str]:
        return [f"{position}-{stage.name}" for position, stage in enumerate(self.stages)]


@contextmanager
def _row_counts(left: int, given: int) -> Iterator[None]:
    """Appends to the message of a `TooFewRows` how many rows the earlier stages have made."""
    try:
        yield
    except TooFewRows as error:
        if left == given:
            raise
        raise TooFewRows(
            f"{error.detail}; the earlier stages turned {given} rows into {left}"
        ) from error


def _checked(report: Report, stage: Stage) -> Report:
    """Refuses a report whose columns do not have one number for each row."""
    for name, column in report.per_row.items():
        if not isinstance(column, Tensor) or column.shape != (len(report.ids),):
            raise ConfigurationError(
                f"column {name!r} in the report of {stage.origin} must be a tensor with one number "
                "per row"
            )
    return report


def _stage(spec: Spec, **defaults: Any) -> Stage:
    if isinstance(spec, Stage):
        return spec
    name = spec.get("name") if isinstance(spec, Mapping) else spec
    known = (*preaggregators.names(), *rules.names())
    if not isinstance(name, str):
        raise ConfigurationError(f"a stage needs a name, not {spec!r}; known: {', '.join(known)}")
    if name in rules.names():
        return rules.parse(spec, **defaults)
    if name in preaggregators.names():
        return preaggregators.parse(spec, **defaults)
    raise UnknownMember("stage", name, known)


def join_states(states: Mapping[str, State]) -> State:
    """Merges several states into one; the entry `name` of the state `key` becomes `key/name`."""
    return State(
        {f"{key}/{name}": t for key, state in states.items() for name, t in state.tensors.items()},
        {f"{key}/{name}": ids for key, state in states.items() for name, ids in state.ids.items()},
        frozenset(f"{key}/{name}" for key, state in states.items() for name in state.vectors),
        {
            f"{key}/{name}": file
            for key, state in states.items()
            for name, file in state.files.items()
        },
    )


def split_state(state: State) -> dict[str, State]:
    """The inverse of `join_states`."""
    keys = {name.partition("/")[0] for name in (*state.tensors, *state.ids)}
    return {key: substate(state, key) for key in keys}


def substate(state: State, key: str) -> State:
    """The part of a merged state (see `join_states`) that belongs to one key."""
    prefix = f"{key}/"
    return State(
        {k.removeprefix(prefix): t for k, t in state.tensors.items() if k.startswith(prefix)},
        {k.removeprefix(prefix): ids for k, ids in state.ids.items() if k.startswith(prefix)},
        frozenset(k.removeprefix(prefix) for k in state.vectors if k.startswith(prefix)),
        {k.removeprefix(prefix): file for k, file in state.files.items() if k.startswith(prefix)},
    )


def aggregate(
    updates_ND: Updates,
    stages: Spec | Sequence[Spec],
    *,
    f: int = 0,
    ids: Sequence[str] | None = None,
    weights: Sequence[float] | Tensor | None = None,
    metadata: Mapping[str, Sequence[float] | Tensor] | None = None,
    context: Context | None = None,
    group: Group | None = None,
) -> Tensor:
    """Applies pre-aggregators, if there are any, and then a rule to the updates.

    Args:
        updates_ND: a matrix with one update per row, or a sequence of vectors; NumPy arrays and
            lists are also accepted.
        stages: a rule, or a list of pre-aggregators that ends with a rule. Each stage is given by
            its name, as a dictionary `{"name": ..., parameter: ...}`, or as an object.
        f: declared bound on the number of hostile rows; every stage with a parameter f gets this
            bound.
        ids: distinct client ids; if they are given, the order of the rows does not change the
            result.
        weights: trusted weights, for rules that use them.
        metadata: numbers that clients claim, for rules that use such numbers; each name maps to one
            number per row.
        context: round, seed and server data, for rules that need them.
        group: the process group of torch.distributed whose ranks aggregate together. The group's
            backend must support CPU tensors. Every rank passes all rows, restricted to the
            coordinates that `shards.columns` assigns to the rank. The result has the same bits for
            every number of ranks.
    Returns:
        The aggregate (D,), in the updates' dtype (float32 for 16-bit dtypes). In a group, each rank
        gets only its own coordinates of the aggregate.
    Raises:
        UnknownMember, ConfigurationError: a stage does not exist, or a parameter is invalid.
        PreconditionError: there are too few rows for f; the message states n, f and the bound.

    >>> import torch
    >>> aggregate(torch.tensor([[1.0], [2.0], [9.0]]), "median")
    tensor([2.])
    """
    pipeline = Pipeline.of(stages, f=f)
    if group is not None:
        for name in pipeline.undivided():
            raise ConfigurationError(
                f"{name} works on whole rows, which cannot be split across ranks"
            )

    def result_of(rows: Rows) -> Tensor:
        return pipeline.apply(rows, pipeline.init(rows.dim), context or Context())[0]

    # Rows are nearly always finite, so there is no separate check before the passes. The passes
    # detect non-finite rows at no extra cost.
    rows = Rows.of(updates_ND, ids, weights, metadata, assume_finite=True, group=group)
    with suppress(linalg.NonFiniteRows, PreconditionError):
        result_D = result_of(rows)
        if linalg.all_finite(rows):
            return result_D
    return result_of(Rows.of(updates_ND, ids, weights, metadata, group=group))
