"""The loss to minimize and the score of a model, for classification and for estimation.

Legend: K clients, B samples in a batch, C outputs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

Scores = Callable[[Tensor, Tensor], Tensor]
"""Computes one number per sample (K, B) from outputs (K, B, C) and class numbers (K, B)."""


@dataclass(frozen=True)
class Scoring:
    """A task's loss, and the score that is summed over test samples.

    Args:
        counted: name of the summed score in a client's metrics (`correct` or `error`).
        losses: the loss of every sample.
        scores: the score of every sample.
    """

    counted: str
    losses: Scores
    scores: Scores


def cross_entropies(logits_KBC: Tensor, y_KB: Tensor) -> Tensor:
    """The cross entropy of every sample (K, B)."""
    return functional.cross_entropy(
        logits_KBC.flatten(0, 1), y_KB.flatten(), reduction="none"
    ).view_as(y_KB)


def hits(logits_KBC: Tensor, y_KB: Tensor) -> Tensor:
    """For each sample (K, B), whether the predicted class is the true class."""
    return logits_KBC.argmax(-1) == y_KB


def fooled(logits_KBC: Tensor, target_KB: Tensor) -> Tensor:
    """For each sample (K, B), whether the predicted class is the target of a backdoor.

    A sample with a NaN among its logits has no predicted class: `argmax` would return the NaN's
    position, and a diverged model would seem to follow a backdoor with the target 0.
    """
    return hits(logits_KBC, target_KB) & ~logits_KBC.isnan().any(-1)


def squared_norms(residual_KBC: Tensor, y_KB: Tensor) -> Tensor:
    """The squared norm |r|² (K, B) of each sample's residual r, which is the model's output."""
    del y_KB
    return residual_KBC.square().sum(-1)


def half_squared_norms(residual_KBC: Tensor, y_KB: Tensor) -> Tensor:
    """Half the squared norm, ½|r|² (K, B), of every sample's residual r."""
    return squared_norms(residual_KBC, y_KB) / 2


SCORINGS: Mapping[str, Scoring] = {
    "classification": Scoring("correct", cross_entropies, hits),
    "estimation": Scoring("error", half_squared_norms, squared_norms),
}
"""The scoring of each task; data sets and models name their task."""
