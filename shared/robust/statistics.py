"""Running statistics of normalization layers, which the server aggregates separately.

Running statistics are the last coordinates of a row (see `rampart_fl.shared.modelspec`). Stages get
only the columns that hold parameters, so no norm, distance, rule, detector or mix uses the
statistics. The statistics of the next model are the coordinate-wise median of the accepted clients'
statistics, and negative variances become 0. If the server used the mean instead of the median, a
single client could set the statistics to any value.

Legend: M rows, K models that are evaluated, D parameters, S statistics, A = D + S, L models of a
collection, C coordinates of a chunk.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rampart_fl.shared.robust import linalg
from rampart_fl.shared.robust.base import Context, Rows
from rampart_fl.shared.robust.models import Models

VARIANCE = "running_var"
"""A running statistic is a variance if its name ends with this suffix. The server sets negative
variances to 0."""


def parameters(rows: Rows, context: Context) -> Rows:
    """The rows restricted to the parameters' coordinates, without a copy."""
    return rows.columns(slice(0, context.trainable)) if context.statistics else rows


def of_parameters(context: Context) -> Context:
    """The context for the stages, with the running statistics removed from all models.

    If a stage applies the network, the statistics of the reference model are used.
    """
    if not context.statistics:
        return context
    assert context.reference_D is not None
    end, predict = context.trainable, context.predict
    reference_D, held_S = context.reference_D[:end], context.reference_D[end:]
    update_D = context.server_update_D

    def whole(models_KD: Tensor, x_KB: Tensor) -> Tensor:
        assert predict is not None
        held_KS = held_S.to(models_KD).expand(len(models_KD), -1)
        return predict(torch.cat([models_KD, held_KS], 1), x_KB)

    return replace(
        context,
        reference_D=reference_D,
        server_update_D=None if update_D is None else update_D[:end],
        models={name: model_D[:end] for name, model_D in context.models.items()},
        predict=None if predict is None else whole,
        statistics=(),
    )


def aggregate(rows: Rows, context: Context) -> Tensor:
    """The next statistics (S,): the reference's statistics, plus the clients' median change.

    Variances are kept >= 0. A coordinate whose new value would not be finite keeps its old value.
    If no row was accepted, all coordinates keep their old values.

    >>> context = Context(
    ...     reference_D=torch.tensor([5.0, 1.0]),
    ...     statistics=(("~norm.running_var", 1, 2),),
    ... )
    >>> aggregate(Rows.of(torch.tensor([[0.0, 0.5], [0.0, 0.7], [0.0, 1e30]])), context)
    tensor([1.7000])
    """
    assert context.reference_D is not None
    end = context.trainable
    held_S = context.reference_D[end:]
    if not len(rows):
        return held_S.clone()
    next_S = held_S + linalg.median(rows.columns(slice(end, None)))
    next_S = torch.where(next_S.isfinite(), next_S, held_S)
    for name, start, stop in context.statistics:
        if name.endswith(VARIANCE):
            next_S[start - end : stop - end].clamp_(min=0)
    return next_S


@dataclass(frozen=True, eq=False)
class WithStatistics(Models):
    """Models (D,), each with the same statistics (S,) appended."""

    names: tuple[str, ...]
    models: Models
    held_S: Tensor

    @property
    def like(self) -> Tensor:
        length = self.models.like.shape[-1] + len(self.held_S)
        return self.held_S.new_empty(1).expand(length)

    def chunks(self) -> Iterator[tuple[int, int, Tensor]]:
        yield from self.models.chunks()
        start = self.models.like.shape[-1]
        yield start, start + len(self.held_S), self.held_S.expand(len(self.names), -1)

    def pick(self, names: Sequence[str]) -> "WithStatistics":
        return replace(self, names=tuple(names), models=self.models.pick(names))
