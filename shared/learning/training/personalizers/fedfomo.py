"""FedFomo: the more an offered model lowers a client's loss, the larger its weight."""

from collections.abc import Mapping

import torch
from pydantic import Field
from torch import Tensor

from rampart_fl.shared.learning.training.personalizers import Loss, Offers, personalizers
from rampart_fl.shared.learning.training.personalizers.fine_tune import FineTune


@personalizers.register("fedfomo")
class FedFomo(FineTune):
    """Moves the client's own model towards models with a lower loss, then trains the moved model.

    The client's own model θ from its previous round moves to θ + sum_n w_n (θ_n - θ). The weight
    w_n is proportional to max(0, (L(θ) - L(θ_n)) / |θ_n - θ|).

    Here, θ_n are the models that the server offers (customizer `fedfomo`). L is the mean loss on
    samples held out from training. The weights w_n add up to 1. If no offered model has a lower
    loss than θ, θ stays unchanged. A model at distance 0, or with a loss that is not finite, has
    weight 0. The client reports each model's raw weight max(0, (L(θ) - L(θ_n)) / |θ_n - θ|) as
    `weight_00` and so on, in the order of the offered models. The client trains the moved θ, and
    uploads the trained θ.
    """

    paper = (
        "Zhang et al., Personalized federated learning with first order model optimization, 2021"
    )
    accounted = False
    whole = False
    validation: float = Field(default=0.2, gt=0, lt=1)
    """Share of the training samples that is held out from training. The client computes the weights
    of the offered models from their losses on the held-out samples."""

    @property
    def held_out(self) -> float:
        return self.validation

    def start(
        self, received_KD: Tensor, personal: Mapping[str, Tensor], offers: Offers, loss: Loss
    ) -> tuple[Tensor, dict[str, Tensor]]:
        own_KD = personal["model"]
        moved_KD = torch.zeros_like(own_KD)
        reported: dict[str, Tensor] = {}
        before_K = None
        for place, (other_KD, there_K) in enumerate(offers):
            before_K = loss(own_KD) if before_K is None else before_K
            away_KD = other_KD - own_KD
            weight_K = raw_weights(before_K, loss(other_KD), away_KD) * there_K
            reported[f"weight_{place:02d}"] = weight_K
            # Leave out models with weight 0, because such models may contain values that are not
            # finite.
            counted_KD = torch.where((weight_K > 0)[:, None], away_KD, 0)
            moved_KD.addcmul_(counted_KD, weight_K.to(own_KD)[:, None])
        if not reported:
            return own_KD, {}
        total_K = torch.stack(list(reported.values())).sum(0)
        share_K = torch.where(total_K > 0, 1 / total_K, 0)
        return own_KD + moved_KD * share_K.to(own_KD)[:, None], reported


def raw_weights(before_K: Tensor, after_K: Tensor, away_KD: Tensor) -> Tensor:
    """The raw weights (K,) of the offered models, in float64; 0 if the quotient is not finite.

    The raw weight of model θ_n is max(0, (L(θ) - L(θ_n)) / |θ_n - θ|), with the symbols of
    `FedFomo`.

    >>> away_KD = torch.tensor([[3.0, 4.0], [0.0, 1.0], [1.0, 0.0]])
    >>> raw_weights(torch.ones(3), torch.tensor([0.5, 0.8, 1.2]), away_KD)
    tensor([0.1000, 0.2000, 0.0000], dtype=torch.float64)
    """
    distance_K = torch.linalg.vector_norm(away_KD, dim=1, dtype=torch.float64)
    gain_K = (before_K - after_K).double() / distance_K
    return torch.where(gain_K.isfinite(), gain_K.clamp(min=0), 0.0)
