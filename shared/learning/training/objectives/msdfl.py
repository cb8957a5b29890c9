"""MSDFL: makes the confidence in the true class depend little on the model's parameters."""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from rampart_fl.shared.learning.training.objectives import Objective, Point, objectives

AT_ONCE = 2**22
"""The per-sample gradients in memory, of all clients together, have at most this many elements. A
processor's cache holds about this many elements."""


@objectives.register("msdfl")
class MSDFL(Objective):
    """Penalizes the gradient of the true class's probability.

    The term is λ/|B| Σ_a |∂_θ p_a| for the samples a of a batch B and the parameters θ. Here, p_a
    is the softmax probability of the true class of sample a.

    With the form `batch_sum`, the term is instead λ/(2|B|) |Σ_a ∂_θ p_a|², which includes products
    of the gradients of different samples. With `batch_sum`, a step takes one additional backward
    pass. With `per_sample`, a step takes as long as training a separate copy of the model on each
    sample.
    """

    paper = "MSDFL, section V-B, equations 7 to 10, algorithm 1"
    lambda_: float = Field(default=1e-3, ge=0, alias="lambda")
    """Weight λ of the norm."""
    form: Literal["per_sample", "batch_sum"] = "per_sample"
    """`per_sample` takes the norm of each sample's gradient, and `batch_sum` takes the norm of the
    sum of these gradients."""

    @property
    def weight(self) -> float:
        return self.lambda_

    def gradient(self, point: Point) -> Tensor:
        if self.form == "batch_sum":
            return self.lambda_ * _summed(point)
        step = max(1, AT_ONCE // point.models_KD.numel())
        parts = [
            _sample_by_sample(point, slice(start, start + step))
            for start in range(0, point.batch.x_KB.shape[1], step)
        ]
        return self.lambda_ * torch.stack(parts).sum(0)


def _summed(point: Point) -> Tensor:
    """The gradient (K, D) of MSDFL's term in the form `batch_sum`, without the factor λ."""
    batch = point.batch
    leaf_KD = point.models_KD.detach().requires_grad_()
    true_KB = _confidence(point.network.logits(leaf_KD, batch.x_KB), batch.y_KB)
    (slope_KD,) = torch.autograd.grad(
        (true_KB * (batch.weight_KB > 0)).sum(), leaf_KD, create_graph=True
    )
    squares_K = slope_KD[:, : point.network.spec.trainable].square().sum(1)
    half_K = 0.5 * batch.weight_KB.amax(1) * squares_K
    (gradient_KD,) = torch.autograd.grad(half_K.sum(), leaf_KD)
    return gradient_KD


def _sample_by_sample(point: Point, part: slice) -> Tensor:
    """The gradient (K, D) of the `per_sample` term for some samples, without the factor λ.

    The computation runs one copy of the model per sample.
    """
    x_KB, y_KB = point.batch.x_KB[:, part], point.batch.y_KB[:, part]
    samples = x_KB.shape[1]
    leaf_ED = point.models_KD.detach().repeat_interleave(samples, 0).requires_grad_()
    logits_E1C = point.network.logits(leaf_ED, x_KB.flatten(0, 1).unsqueeze(1))
    true_E1 = _confidence(logits_E1C, y_KB.reshape(-1, 1))
    (slope_ED,) = torch.autograd.grad(true_E1.sum(), leaf_ED, create_graph=True)
    norms_E = torch.linalg.vector_norm(slope_ED[:, : point.network.spec.trainable], dim=1)
    weighted = (norms_E * point.batch.weight_KB[:, part].flatten()).sum()
    (gradient_ED,) = torch.autograd.grad(weighted, leaf_ED)
    return gradient_ED.view(-1, samples, gradient_ED.shape[1]).sum(1)


def _confidence(logits: Tensor, y: Tensor) -> Tensor:
    """The softmax probability of the true class."""
    return logits.softmax(-1).gather(-1, y.unsqueeze(-1)).squeeze(-1)
