"""Norms of a network's Jacobian with respect to its parameters, and the gradients of these norms.

The Jacobian J of the logits z with respect to the parameters θ is never formed. For the
sample with index a, let q_a be a random direction on the unit sphere of R^C. The cross terms of
different samples then have mean 0, which implies the identity

    E C/|B| |∂_θ Σ_a q_a·z_a|² = 1/|B| Σ_a |J_a|_F².

E is the mean over the random directions, and |B| is the number of samples. For given
directions q_a, one backward pass gives an estimate of the right-hand side, and a second backward
pass gives the gradient of the estimate. The norms exclude derivatives with respect to running
statistics, which are not parameters.

Legend: K models, B samples each (padded), N training samples, C classes, D parameters,
M projections.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from rampart_fl.shared.learning.network.stacked import Stacked
from rampart_fl.shared.runtime.device import to_device

MEASURED = 4096
"""Largest number of samples, summed over models, in one pass of a measurement."""


def directions(samples: int, classes: int, draws: torch.Generator) -> Tensor:
    """Uniformly distributed unit vectors of R^C (B, C), one per sample, float64.

    >>> directions(5, 3, torch.Generator().manual_seed(1)).norm(dim=1)
    tensor([1., 1., 1., 1., 1.], dtype=torch.float64)
    """
    q_BC = torch.randn(samples, classes, generator=draws, dtype=torch.float64)
    return functional.normalize(q_BC)


def stacked_directions(
    sizes: Sequence[int], width: int, classes: int, draws: Sequence[torch.Generator]
) -> Tensor:
    """Directions (K, B, C) for the samples of K models, zero-padded to B = width.

    A model's directions depend only on its generator, its number of samples and C.
    """
    own = [directions(n, classes, one) for n, one in zip(sizes, draws, strict=True)]
    padded_KBC = pad_sequence([*own, torch.zeros(width, classes).double()], batch_first=True)
    return padded_KBC[:-1]


def squared_norm(
    network: Stacked,
    models_KD: Tensor,
    x_KB: Tensor,
    sizes: Sequence[int],
    along: Callable[[int], Sequence[Tensor]],
) -> tuple[Tensor, Tensor]:
    """The mean squared norm (K,) of each model's Jacobians at its samples, and its gradient (K, D).

    The mean is estimated as C/(M |B|) Σ_m |∂_θ Σ_a q_ma·z_a|² from M random projections m, with the
    symbols of the module's docstring. The gradient is with respect to the parameters θ.

    Args:
        network: applies the models.
        models_KD: parameters.
        x_KB: samples.
        sizes: number of samples of each model; the norm of a model without samples is 0.
        along: a function that takes the number of classes C, and returns M tensors of directions
            (K, B, C). Padded samples have direction 0.
    """
    leaf_KD = models_KD.detach().requires_grad_()
    logits_KBC = network.logits(leaf_KD, x_KB)
    counts_K = to_device([max(size, 1) for size in sizes], leaf_KD.device, leaf_KD.dtype)
    classes = logits_KBC.shape[-1]
    projections = along(classes)
    scale_K = classes / (len(projections) * counts_K)
    norm_K, gradient_KD = torch.zeros_like(scale_K), torch.zeros_like(models_KD)
    for q_KBC in projections:
        projected = (logits_KBC * to_device(q_KBC, logits_KBC.device, logits_KBC.dtype)).sum()
        (slope_KD,) = torch.autograd.grad(projected, leaf_KD, create_graph=True)
        one_K = scale_K * slope_KD[:, : network.spec.trainable].square().sum(1)
        norm_K += one_K.detach()
        if one_K.requires_grad:  # The Jacobian of a linear model is constant.
            (one_KD,) = torch.autograd.grad(one_K.sum(), leaf_KD, retain_graph=True)
            gradient_KD += one_KD
    return norm_K, gradient_KD


def measured_norm(
    network: Stacked,
    models_KD: Tensor,
    x_KN: Tensor,
    sizes: Sequence[int],
    draws: Sequence[torch.Generator],
) -> Tensor:
    """The estimated mean squared norm (K,) of each model's Jacobians at its samples, in float64.

    Args:
        network: applies the models.
        models_KD: parameters.
        x_KN: samples, padded.
        sizes: for each model, its number of samples in x_KN.
        draws: for each model, the generator that draws its directions.
    """
    leaf_KD = models_KD.detach().requires_grad_()
    slope_KD, classes, q_KNC = torch.zeros_like(models_KD, dtype=torch.float64), 0, None
    for start in range(0, x_KN.shape[1], width := max(1, MEASURED // len(models_KD))):
        logits_KBC = network.logits(leaf_KD, x_KN[:, start : start + width])
        if q_KNC is None:
            classes = logits_KBC.shape[-1]
            q_KNC = stacked_directions(sizes, x_KN.shape[1], classes, draws)
            q_KNC = to_device(q_KNC, logits_KBC.device, logits_KBC.dtype)
        projected = (logits_KBC * q_KNC[:, start : start + width]).sum()
        slope_KD += torch.autograd.grad(projected, leaf_KD)[0]
    counts_K = to_device([max(size, 1) for size in sizes], slope_KD.device, slope_KD.dtype)
    return classes / counts_K * slope_KD[:, : network.spec.trainable].square().sum(1)
