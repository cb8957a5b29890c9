"""Running statistics of normalization layers, kept apart from parameters on the server.

They are the last coordinates of a row (see `rampart_fl.shared.modelspec`). No norm, distance, rule,
detector or mix ever sees them: the stages are handed the parameters' columns, and the statistics
of the next model are the coordinate-wise median of what the accepted clients hold, within bounds.
A mean would hand them to one client.

Legend: M rows, K models, D parameters, S statistics, A = D + S, L models, C coordinates of a chunk.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rampart_fl.shared.robust import linalg
from rampart_fl.shared.robust.base import Context, Rows
from rampart_fl.shared.robust.models import Models

VARIANCE = "running_var"
"""Last part of the name of a variance, which is not negative."""


def parameters(rows: Rows, context: Context) -> Rows:
    """The rows over the parameters' coordinates, without a copy."""
    return rows.columns(slice(0, context.trainable)) if context.statistics else rows


def of_parameters(context: Context) -> Context:
    """The context as the stages see it: of models without statistics.

    A stage that applies the network does so with the reference's statistics.
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
    """The next statistics (S,): the reference plus the median of the rows, variances at least 0.

    A coordinate that is not finite, and all of them where no row was accepted, stay as they were.

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
    """Models (D,) that all have the same statistics (S,) behind their parameters."""

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
