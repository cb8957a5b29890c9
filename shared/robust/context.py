"""What a stage may need besides rows and its state: where the round stands, what the server holds.

Legend: K models, B samples each, P public samples, C classes, D coordinates.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError, PreconditionError
from rampart_fl.shared.experiment.eviction import Standing
from rampart_fl.shared.modelspec import Layout
from rampart_fl.shared.seeding import generator

Need = Literal["predict", "public", "labels", "server_update"]
"""What a stage may ask of the server: its network, public samples, labelled ones, its own update.

The first is always there; the others come from the experiment's `server.public` (`public` and
`labels`) and `server.root` (`server_update`)."""


@dataclass(frozen=True, eq=False)
class Public:
    """Samples that the server judges models on.

    Args:
        x_P: samples as the model takes them.
        y_P: their classes, where they are samples of the task.
        augment: a batch and a generator -> the batch, varied.
    """

    x_P: Tensor
    y_P: Tensor | None = None
    augment: Callable[[Tensor, torch.Generator], Tensor] | None = None


@dataclass(frozen=True, eq=False)
class Context:
    """All that a stage may need besides rows and its state.

    Args:
        round: the round's number, from 0.
        seed: the experiment's seed; `generator(name)` derives named draws from it.
        reference_D: the global model that the rows were calibrated against.
        server_update_D: the server's own update of the round, from its root data (FLTrust).
        models: what the customizer made in the last round, (D,) by name, where it goes on from it.
        aggregate_D: the rule's result, for detectors that audit after it.
        predict: (models_KD, x_KB) -> logits (K, B, C) of every model on its own batch, as they
            are at inference; gradients flow through it.
        shape: of a sample, as the network takes it.
        public: the server's public samples.
        layout: where each parameter of the model lies in a row.
        statistics: where running statistics lie in a row, behind all parameters; the engine takes
            them out before any stage sees rows and reference.
        standing: who is in the federation and who is barred; the round's own clients by default.
    """

    round: int = 0
    seed: int = 0
    reference_D: Tensor | None = None
    server_update_D: Tensor | None = None
    models: Mapping[str, Tensor] = field(default_factory=dict)
    aggregate_D: Tensor | None = None
    predict: Callable[[Tensor, Tensor], Tensor] | None = None
    shape: tuple[int, ...] = ()
    public: Public | None = None
    layout: Layout = ()
    statistics: Layout = ()
    standing: Standing | None = None

    @property
    def trainable(self) -> int:
        """Number of parameters, where there are statistics behind them."""
        return self.statistics[0][1]

    def last_layer(self) -> slice:
        """The coordinates of the model's last layer: the last parameters of one common prefix.

        >>> Context(layout=(("conv.weight", 0, 8), ("fc.weight", 8, 12), ("fc.bias", 12, 14))
        ...     ).last_layer()
        slice(8, 14, None)
        """
        if not self.layout:
            raise ConfigurationError("the last layer is not known: the context has no layout")
        owners = [name.rpartition(".")[0] for name, _, _ in self.layout]
        first = len(owners)
        while first and owners[first - 1] == owners[-1]:
            first -= 1
        return slice(self.layout[first][1], self.layout[-1][2])

    def own_update(self, stage: str, dim: int) -> Tensor:
        """The server's own update (D,), for the stage of that name on rows of D coordinates.

        Raises:
            ConfigurationError: there is none, or it is of another length.
            PreconditionError: it is not finite, as after a training that diverged.
        """
        own_D = self.server_update_D
        if own_D is None:
            raise ConfigurationError(f"{stage} needs the server's own update: no root data is set")
        if own_D.shape != (dim,):
            raise ConfigurationError(
                f"{stage}: the server's own update has shape {tuple(own_D.shape)}, "
                f"the rows have {dim} coordinates"
            )
        if not bool(own_D.isfinite().all()):
            raise PreconditionError(f"{stage}: the server's own update is not finite")
        return own_D

    def generator(self, name: str) -> torch.Generator:
        """A fresh generator for one named draw of this round."""
        return generator(self.seed, "robust", name, self.round)
