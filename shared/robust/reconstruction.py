"""Tests whether training can produce an update, by searching for suitable synthetic samples.

Legend: K clients, B synthetic samples of each client, C classes, D parameters.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

Predict = Callable[[Tensor, Tensor], Tensor]
"""Maps `models_KD` and `x_KB` to logits (K, B, C); must be twice differentiable."""

WORST = 1e6
"""Errors that are larger than this value, or not finite, are set to this value."""


@dataclass(frozen=True, eq=False)
class Synthetic:
    """Synthetic samples, soft labels and step sizes that clients might have trained with.

    Args:
        x_KB: samples (K, B, *shape).
        label_KBC: logits of the soft labels.
        rate_K: step sizes.
    """

    x_KB: Tensor
    label_KBC: Tensor
    rate_K: Tensor

    def tensors(self) -> Mapping[str, Tensor]:
        """The samples, labels and step sizes as tensors by name, with one row per client."""
        return {"samples": self.x_KB, "labels": self.label_KBC, "rates": self.rate_K}


@dataclass(frozen=True)
class SearchSettings:
    """Settings of the search for synthetic samples.

    Args:
        steps: number of gradient descent steps; together, these steps on the samples should produce
            the update.
        rates: the search's learning rates for the samples, the labels and the clients' step sizes.
        momentum: momentum of the search.
        enough: a client's search ends when the client's error is below this value.
    """

    steps: int
    rates: tuple[float, float, float]
    momentum: float
    enough: float


def movement(predict: Predict, start_D: Tensor, synthetic: Synthetic, steps: int) -> Tensor:
    """The movement θ_steps - θ_0 (K, D) of gradient descent on each client's synthetic samples.

    A step moves the parameters θ to θ - rate · ∇ CE(z(x; θ), softmax(label)). Here, CE is the cross
    entropy of the logits z and the soft labels. All clients start from θ_0 = `start_D`.
    """
    start_KD = start_D.expand(len(synthetic.rate_K), -1)
    moved_KD = torch.zeros_like(start_KD)
    target_KBC = synthetic.label_KBC.softmax(-1)
    for _ in range(steps):
        at_KD = start_KD + moved_KD
        if not at_KD.requires_grad:
            at_KD.requires_grad_()
        log_KBC = functional.log_softmax(predict(at_KD, synthetic.x_KB), dim=-1)
        loss = -(target_KBC * log_KBC).sum((0, 2)).mean()
        (gradient_KD,) = torch.autograd.grad(loss, at_KD, create_graph=True)
        moved_KD = moved_KD - synthetic.rate_K[:, None] * gradient_KD
    return moved_KD


@torch.enable_grad()
def search(
    predict: Predict,
    start_D: Tensor,
    update_KD: Tensor,
    synthetic: Synthetic,
    limits_K: Tensor,
    how: SearchSettings,
) -> tuple[Tensor, Synthetic]:
    """The final errors (K,) of the searches, and the corresponding synthetic samples.

    The search is gradient descent with momentum on |θ_steps - θ_0 - u|² / |u|², for all clients at
    the same time. Here, u is a client's update, and `movement` computes θ_steps - θ_0. A client's
    search stops if the client's error is below `how.enough` or reaches `WORST`. It also stops if
    the number of iterations reaches the client's entry of `limits_K`.

    Args:
        predict: the network.
        start_D: the model that the updates started from.
        update_KD: the updates u; no row may be the zero vector.
        synthetic: the starting point of the search.
        limits_K: largest number of iterations for each client.
        how: settings of the search.
    """
    scale_K = update_KD.abs().amax(1)
    unit_KD = update_KD / scale_K[:, None]
    length_K = torch.linalg.vector_norm(unit_KD, dim=1)
    unit_KD /= length_K[:, None]
    parts = [tensor.clone() for tensor in synthetic.tensors().values()]
    speed = [torch.zeros_like(part) for part in parts]
    error_K, open_K = torch.full_like(scale_K, WORST), torch.ones_like(scale_K, dtype=torch.bool)
    for iteration in range(int(limits_K.max()) + 1):
        at = open_K.nonzero().flatten()
        leaves = [part[at].requires_grad_() for part in parts]
        moved = movement(predict, start_D, Synthetic(*leaves), how.steps)
        gap = moved / scale_K[at, None] / length_K[at, None] - unit_KD[at]
        now = gap.square().sum(1)
        error_K[at] = now.detach().nan_to_num(WORST).clamp(max=WORST)
        open_K &= (error_K >= how.enough) & (error_K < WORST) & (iteration < limits_K)
        going = open_K[at]
        if not bool(going.any()):
            break
        slopes = torch.autograd.grad(now[going].sum(), leaves)
        at = at[going]
        for part, pace, slope, rate in zip(parts, speed, slopes, how.rates, strict=True):
            pace[at] = how.momentum * pace[at] + slope[going]
            part[at] -= rate * pace[at]
    return error_K, Synthetic(*parts)
