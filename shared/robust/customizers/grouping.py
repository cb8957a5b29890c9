"""Groups of clients; a rule updates each group's model from the group's rows.

Legend: L models, D coordinates.
"""

from abc import abstractmethod
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError, PreconditionError
from rampart_fl.shared.robust.base import Context, Rows, Stage, State
from rampart_fl.shared.robust.context import Need
from rampart_fl.shared.robust.customizers import Customizer
from rampart_fl.shared.robust.pipeline import Pipeline
from rampart_fl.shared.robust.pool_statistics import PoolStatistics


def _listed(stages: Any) -> Any:
    """Converts one or several stages (names or dictionaries) to a list of dictionaries."""
    several = stages if isinstance(stages, list) else [stages]
    return [{"name": stage} if isinstance(stage, str) else stage for stage in several]


class GroupedCustomizer(Customizer):
    """A customizer with several models; a base rule updates each model from its group's rows."""

    rule: Annotated[list[dict[str, Any]], BeforeValidator(_listed)] = Field(
        default=[{"name": "weighted_mean"}]
    )
    """The base rule, which updates every group's model; pre-aggregators may precede it. The base
    rule does not get the experiment's `f`, so it needs its own parameter `f`."""

    def model_post_init(self, context: Any, /) -> None:
        """Builds the base rule once, so that an invalid rule is refused at startup."""
        for stage in self.pipeline().stages:
            if "server_update" in stage.needs():
                raise ConfigurationError(
                    f"{self.name} cannot be combined with {stage.name}, which needs the server's "
                    "own update: the server trains from the global model, not from a group's model"
                )

    @property
    def continues(self) -> bool:
        return True

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """The groups' names."""

    def models_of(self, clients: int) -> int:
        return len(self.names)

    def pipeline(self) -> Pipeline:
        """The base rule."""
        return Pipeline.of(self.rule)

    def needs(self) -> frozenset[Need]:
        return self.pipeline().needs()

    def history_rows(self, clients: int) -> int:
        pipeline, groups = self.pipeline(), len(self.names)
        # If clients can move between groups, each group's rule may keep a history of every client.
        rules = pipeline.history_rows(clients) * (1 if self.isolates else groups)
        vectors = sum(stage.kept_vectors for stage in pipeline.stages)
        return rules + 2 * groups * (1 + vectors)

    def unstreamed(self) -> tuple[Stage, ...]:
        return tuple(one for stage in self.pipeline().stages for one in stage.unstreamed())

    def undivided(self) -> tuple[str, ...]:
        return self.pipeline().undivided()

    def check_rows(self, rows: Rows, context: Context) -> None:
        pipeline = self.pipeline()
        if not pipeline.needs():
            # A group with too few rows for the base rule is no error: the group keeps its model.
            with suppress(PreconditionError):
                pipeline.apply(rows, pipeline.init(rows.dim), context)


def numbered_names(kind: str, count: int) -> tuple[str, ...]:
    """Names with ascending numbers; a name contains a colon, so it is not a client's id.

    >>> numbered_names("group", 11)[:2]
    ('group:00', 'group:01')
    """
    width = len(str(count - 1))
    return tuple(f"{kind}:{number:0{width}d}" for number in range(count))


def previous_models(names: Sequence[str], state: State, context: Context) -> Tensor:
    """A new block (L, D) of the previous round's models; in round 0, copies of the reference."""
    assert context.reference_D is not None
    if not state.tensors:
        return context.reference_D.repeat(len(names), 1)
    return torch.stack([context.models[name] for name in names])


def update_group(
    pipeline: Pipeline, rows: Rows, base_D: Tensor, state: State, context: Context
) -> tuple[Tensor | None, State]:
    """The model (D,) of a group after the base rule has updated it, and the rule's next state.

    Args:
        pipeline: the base rule.
        rows: rows of the group's clients, relative to `base_D`.
        base_D: the model to which the rule's aggregate is added.
        state: the state of the rule.
        context: the context of the round.
    Returns:
        The updated model and the next state. If the group is empty or too small for its rule, the
        model is None and the state is unchanged.
    """
    if not len(rows):
        return None, state
    own = replace(context, reference_D=base_D, aggregate_D=None)
    try:
        aggregate_D, state, _ = pipeline.apply(rows, state, own)
    except PreconditionError:
        return None, state
    return base_D + aggregate_D, state


def members(rows: Rows, group: Collection[str]) -> Rows:
    """The rows of the clients in `group`; the field `dropped` also keeps only these clients."""
    places = [place for place, client in enumerate(rows.ids) if client in group]
    dropped = tuple(client for client in rows.dropped if client in group)
    # The pool statistics of `rows` are not kept, because they may depend on the rows of other
    # groups.
    return replace(rows.keep(places), dropped=dropped, pool_statistics=PoolStatistics())
