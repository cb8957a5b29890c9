"""Evaluates clients' models by their predictions on the server's public samples.

Legend: M rows, K models of one pass, P public samples, B public samples of one pass, C classes, D
parameters.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.robust.base import Context, Rows

PASS = 4096
"""Largest number of samples in one forward pass; a sample counts once for each model."""
MODELS = 8
"""Largest number of models in one forward pass."""
NUMBERS = 1 << 22
"""Largest total number of parameters in a forward pass of several models. The pass copies its
models; in float32, the copies take up to 16 MiB in addition to the rows. A model with more
parameters than this limit has a pass of its own."""


@dataclass(frozen=True, eq=False)
class PublicEvaluation:
    """How well each client's model predicts the public samples.

    If a model's predictions are not finite, its entropy and its loss are infinite.

    Args:
        entropy_M: mean entropy of the predictions in nats, from 0 (all are certain) to ln C (all
            are uniform).
        loss_M: mean cross entropy in nats, if labels were requested.
    """

    entropy_M: Tensor
    loss_M: Tensor | None


def evaluate_models(
    rows: Rows, context: Context, stage: str, labels: bool = False
) -> PublicEvaluation:
    """Evaluates every model `reference + row` on all public samples.

    Args:
        rows: one update per client.
        context: the context, which must have the reference, the network and the public samples.
        stage: name of the stage that calls this function, for error messages.
        labels: whether to compute the loss in addition to the entropy.
    Raises:
        ConfigurationError: the context lacks something that the evaluation needs.

    >>> from rampart_fl.shared.robust.context import PublicData
    >>> def predict(models_KD, x_KB):  # one feature, two classes with logits (w x, 0)
    ...     z_KB = models_KD[:, :1] * x_KB[..., 0]
    ...     return torch.stack([z_KB, torch.zeros_like(z_KB)], dim=2)
    >>> public = PublicData(torch.tensor([[1.0], [2.0]]), torch.tensor([0, 0]))
    >>> context = Context(reference_D=torch.zeros(1), predict=predict, public=public)
    >>> rows = Rows.of(torch.tensor([[0.0], [1.0]]))
    >>> evaluate_models(rows, context, "this").entropy_M
    tensor([0.6931, 0.4738], dtype=torch.float64)
    """
    reference_D, x_P, y_P = public_samples(context, stage)
    if labels and y_P is None:
        raise ConfigurationError(
            f"{stage} needs labelled public samples: the public samples have no labels"
        )
    entropies, losses = [], []
    with torch.no_grad():
        for models_KD in _models(rows, reference_D):
            sums_2K = torch.zeros(2, len(models_KD), dtype=torch.float64, device=models_KD.device)
            for start, log_KBC in _predictions(models_KD, context, x_P):
                sums_2K[0] += _entropies(log_KBC).double().sum(1)
                if labels and y_P is not None:
                    y_B = y_P[start : start + log_KBC.shape[1]].expand(len(models_KD), -1)
                    sums_2K[1] -= log_KBC.gather(2, y_B.unsqueeze(2)).double().sum((1, 2))
            total_K, wrong_K = (sums_2K / len(x_P)).cpu().unbind()
            entropies.append(total_K)
            losses.append(wrong_K)
    return PublicEvaluation(_or_infinite(entropies), _or_infinite(losses) if labels else None)


def public_samples(context: Context, stage: str) -> tuple[Tensor, Tensor, Tensor | None]:
    """The reference model, the public samples, and the labels if the public samples have labels.

    Raises:
        ConfigurationError: the context has no reference, no network or no public samples.
    """
    if context.predict is None or context.public is None or context.reference_D is None:
        raise ConfigurationError(
            f"{stage} needs public samples and the network: name a data set in [server.public]"
        )
    return context.reference_D, context.public.x_P, context.public.y_P


def information(logits_BC: Tensor, sharpness: bool = True, diversity: bool = True) -> Tensor:
    """The negative mutual information of sample and class: mean_i H(P_i) - H(mean_i P_i).

    Here, P_i = softmax(z_i) are the predictions for sample i, and H is the entropy. The formula is
    equation 6 of SDEA. The result is in [-ln C, 0]. The result is smallest if predictions are
    certain and all classes are predicted equally often. The result is 0 if all predictions are the
    same.

    Args:
        logits_BC: the logits z, one row per sample i.
        sharpness: whether to include the term mean_i H(P_i) (SDEA, equation 4).
        diversity: whether to include the term H(mean_i P_i) (SDEA, equation 5).

    >>> information(1e3 * torch.eye(2))
    tensor(-0.6931)
    >>> information(torch.zeros(2, 4)).abs()
    tensor(0.)
    """
    log_BC = functional.log_softmax(logits_BC, dim=-1)
    mean_C = log_BC.logsumexp(0) - math.log(len(log_BC))
    return sharpness * _entropies(log_BC).mean() - diversity * _entropies(mean_C)


def _entropies(log_C: Tensor) -> Tensor:
    """Entropy, in nats, of distributions that are given as log probabilities."""
    return -(log_C.exp() * log_C).sum(-1)


def _models(rows: Rows, reference_D: Tensor) -> Iterator[Tensor]:
    """Yields blocks (K, D) of models; each block overwrites the memory of the previous block."""
    many = max(1, min(MODELS, NUMBERS // max(rows.dim, 1), len(rows)))
    block_KD = rows.block_ND.new_empty(many, rows.dim)
    for start in range(0, len(rows), many):
        models_KD = block_KD[: len(rows) - start]
        for i, model_D in enumerate(models_KD, start):
            model_D.copy_(rows.row(i)).add_(reference_D)
        yield models_KD


def _predictions(models_KD: Tensor, context: Context, x_P: Tensor) -> Iterator[tuple[int, Tensor]]:
    assert context.predict is not None
    k = len(models_KD)
    size = max(1, PASS // k)
    for start in range(0, len(x_P), size):
        x_KB = x_P[start : start + size].unsqueeze(0).expand(k, *[-1] * x_P.ndim)
        yield start, functional.log_softmax(context.predict(models_KD, x_KB), dim=2)


def _or_infinite(parts: list[Tensor]) -> Tensor:
    losses_M = torch.cat(parts)
    return torch.where(losses_M.isfinite(), losses_M, torch.inf)
