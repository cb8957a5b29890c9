"""The optimal λ of fine-tuned personalization for estimating the clients' means.

By the paper's Proposition 1, the optimal degree of collaboration is

    λ* = A (1 - 1/|C|) / (A (1 - 1/|C|) + B (1 + κ))

Here, |C| is the number of honest clients. An honest client has m samples of variance σ², so the
mean of these samples has the variance A = σ²/m. The number κ bounds the error of the server's
pipeline. If the assumed number of hostile clients f is 0, κ is 0. In Proposition 1, B is the
squared distance between a client's true mean and the mean of all true means. We use the mean of
these squared distances. If the true means are drawn with the variance Δ², this mean is Δ²
(1 - 1/|C|) on average.

Legend: N honest clients, M samples, d coordinates.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.robust.kappa import proven
from rampart_fl.shared.robust.pipeline import Pipeline


def optimum(samples: Sequence[Tensor], kappa: float) -> float:
    """λ* for honest clients with these samples (M, d), from unbiased estimates of A and B.

    A negative estimate of B is replaced by 0. If A and B are 0, every λ is equally good, and the
    result is 0.

    Raises:
        ConfigurationError: a client has fewer than two samples, or there is only one client.

    >>> optimum([torch.tensor([[0.0], [2.0]]), torch.tensor([[4.0], [6.0]])], kappa=0)
    0.125
    """
    if len(samples) < 2 or min(map(len, samples)) < 2:
        raise ConfigurationError(
            'lambda = "formula" needs at least two honest clients with at least two training '
            "samples each"
        )
    noise = sum(float(x_Md.double().var(0).sum()) / len(x_Md) for x_Md in samples) / len(samples)
    means_Nd = torch.stack([x_Md.double().mean(0) for x_Md in samples])
    others = 1 - 1 / len(samples)
    apart = max(0.0, float(means_Nd.var(0).sum()) - noise) * others
    gain = noise * others
    return gain / (gain + apart * (1 + kappa)) if gain else 0.0


def bound(pipeline: Pipeline, n: int, f: int) -> float:
    """The pipeline's κ for n rows, f of them hostile; 0 if f is 0.

    Raises:
        ConfigurationError: no κ is known for the pipeline.

    >>> round(bound(Pipeline.of(["nnm", "trimmed_mean"], f=100), 600, 100), 3)
    4.6
    """
    if not f:
        return 0.0
    kappa = proven(pipeline, n, f)
    if kappa is None:
        stages = "+".join(stage.name for stage in (*pipeline.preaggregators, pipeline.rule))
        raise ConfigurationError(
            f'lambda = "formula" needs a rule with a known κ, but no κ is known for {stages}; '
            "use nnm and trimmed_mean, or set lambda to a number"
        )
    return kappa
