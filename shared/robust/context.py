"""What a stage may need in addition to rows and state: the round and the server's own data.

Legend: K models, B samples of each model's batch, P public samples, C classes, D coordinates.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError, PreconditionError
from rampart_fl.shared.experiment.eviction import Standing
from rampart_fl.shared.modelspec import Layout
from rampart_fl.shared.robust.shards import Part
from rampart_fl.shared.seeding import generator

Need = Literal["predict", "public", "labels", "server_update"]
"""What a stage may need from the server: network, public samples, their labels, server update.

The network (`predict`) is always available. `public` and `labels` require the experiment's setting
`server.public`, and `server_update` requires the setting `server.root`."""


@dataclass(frozen=True, eq=False)
class PublicData:
    """Samples on which the server evaluates models.

    Args:
        x_P: samples in the model's input format.
        y_P: the samples' classes. y_P is None if the samples' data set and the task have different
            numbers of classes. The labels would then have no meaning for the task.
        augment: function that takes a batch and a generator, and returns a random variation of the
            batch.
    """

    x_P: Tensor
    y_P: Tensor | None = None
    augment: Callable[[Tensor, torch.Generator], Tensor] | None = None


@dataclass(frozen=True, eq=False)
class Context:
    """Everything that a stage may need in addition to rows and its state.

    Args:
        round: the round's number, counted from 0.
        seed: the seed from which `generator(name)` derives named random draws. In a federation,
            clients do not know this seed, so they cannot predict the draws.
        reference_D: the global model; calibrated rows are relative to this model.
        server_update_D: the server's own update in this round, trained on its root data (FLTrust).
        models: the models (D,) that the customizer made in the previous round, keyed by name; empty
            if the customizer does not start from these models (`Customizer.continues`).
        aggregate_D: the rule's result, for `audit` detectors, which run after the rule; None if
            the rule has no result.
        predict: function (models_KD, x_KB) -> logits (K, B, C) of every model on its own batch, in
            inference mode; gradients flow through the function.
        shape: shape of one sample in the network's input.
        public: the server's public samples.
        layout: for each parameter of the model, its name and its position in a row.
        head: name of the model's last layer. The layout does not show which layer is the last,
            because parameters are ordered by name.
        statistics: for each running statistic, its name and its position in a row; running
            statistics come after all parameters. The engine removes the running statistics from the
            rows and from the reference before any stage runs.
        buffered: whether clients may upload updates that they trained from models of earlier
            rounds.
        selected: the clients that the server selected for this round. Under the buffered policy,
            this set is empty, because clients may then upload without being selected.
        examined: the selected clients whose rows the round judges, but does not aggregate.
        standing: which clients are in the federation and which are barred. By default, the clients
            of the round are in the federation, and no client is barred.
    """

    round: int = 0
    seed: int = 0
    reference_D: Tensor | None = None
    server_update_D: Tensor | None = None
    models: Mapping[str, Tensor] = field(default_factory=dict)
    aggregate_D: Tensor | None = None
    predict: Callable[[Tensor, Tensor], Tensor] | None = None
    shape: tuple[int, ...] = ()
    public: PublicData | None = None
    layout: Layout = ()
    head: str = ""
    statistics: Layout = ()
    buffered: bool = False
    selected: frozenset[str] = frozenset()
    examined: frozenset[str] = frozenset()
    standing: Standing | None = None

    @property
    def observes(self) -> bool:
        """Whether verdicts are only recorded; if so, the detectors challenge no client."""
        return self.standing is not None and self.standing.mode == "observe"

    @property
    def trainable(self) -> int:
        """The model's number of parameters; only for models that have running statistics."""
        return self.statistics[0][1]

    def last_layer(self) -> slice:
        """The coordinates of the last layer; all coordinates if the model is a single layer.

        >>> layout = (("fc.bias", 0, 2), ("fc.weight", 2, 8), ("layer1.weight", 8, 20))
        >>> Context(layout=layout, head="fc").last_layer()
        slice(0, 8, None)
        """
        if not self.layout:
            raise ConfigurationError("the last layer is not known: the context has no layout")
        prefix = self.head and f"{self.head}."
        places = [(start, stop) for name, start, stop in self.layout if name.startswith(prefix)]
        return slice(places[0][0], places[-1][1])

    def own_update(self, stage: str, place: Part) -> Tensor:
        """Returns the server's own update (D,), which must be finite and cover the part `place`.

        Error messages begin with `stage`, the name of the stage.

        Raises:
            ConfigurationError: the server has no update of its own, or the update has a wrong
                number of coordinates.
            PreconditionError: the update is not finite, for example because training diverged.
        """
        own_D = self.server_update_D
        if own_D is None:
            raise ConfigurationError(f"{stage} needs the server's own update: no root data is set")
        dim = place.stop - place.start
        if own_D.shape != (dim,):
            raise ConfigurationError(
                f"{stage}: the server's own update has shape {tuple(own_D.shape)}, "
                f"but each row has {dim} coordinates"
            )
        if not place.every(bool(own_D.isfinite().all())):
            raise PreconditionError(f"{stage}: the server's own update is not finite")
        return own_D

    def generator(self, name: str, *path: str) -> torch.Generator:
        """A new random generator for one named draw of this round.

        All numbers of a generator follow from 32 bits of its seed. A client that sees some of the
        numbers could find these bits, and then compute all other numbers. Secret numbers therefore
        need a separate generator.
        """
        return generator(self.seed, "robust", name, self.round, *path)
