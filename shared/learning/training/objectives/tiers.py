"""Tiers: in one run, clients train with HMSDFL, MSDFL or neither, depending on their tier.

Legend: K clients, D parameters.
"""

from collections.abc import Mapping
from itertools import accumulate
from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from rampart_fl.shared.learning.training.objectives import Objective, Point, objectives
from rampart_fl.shared.learning.training.objectives.hmsdfl import HMSDFL
from rampart_fl.shared.learning.training.objectives.msdfl import MSDFL
from rampart_fl.shared.seeding import generator

Tier = Literal["high", "low", "minimum"]
TIERS: tuple[Tier, ...] = ("high", "low", "minimum")
Share = Annotated[float, Field(ge=0, le=1)]


@objectives.register("tiers")
class Tiers(Objective):
    """Draws each client's tier from the seed and the client's id; the tier sets the client's term.

    In the high tier, clients train with HMSDFL and one projection per class. In the low tier,
    clients train with HMSDFL and half as many projections. In the minimum tier, clients train with
    MSDFL, or with HMSDFL and one projection. The objective of a client without a tier has no
    additional term. By contrast, the objective `hmsdfl` with `tier = "auto"` chooses a client's
    tier from the resources of the client's machine.

    >>> mixed = Tiers(shares=(0.5, 0.5, 0))
    >>> [mixed.tier(7, f"client-0{k}") for k in range(4)]
    ['high', 'low', 'high', 'high']
    """

    paper = "MSDFL, section VI (resource-constrained clients)"
    lambda_: float = Field(default=1e-4, ge=0, alias="lambda")
    """Weight λ of every tier's term."""
    shares: tuple[Share, Share, Share] = (0.3, 0.4, 0.3)
    """Expected shares of the clients in the tiers high, low and minimum. If the shares sum to less
    than 1, the remaining clients train without a term."""
    minimum: Literal["msdfl", "hmsdfl"] = "msdfl"
    """The term of clients in the minimum tier; the MSDFL paper allows either of these two terms."""

    @model_validator(mode="after")
    def _at_most_everyone(self) -> "Tiers":
        if sum(self.shares) > 1 + 1e-9:
            listed = ", ".join(f"{s:g}" for s in self.shares)
            raise ValueError(f"shares: {listed} add up to more than 1")
        return self

    @property
    def weight(self) -> float:
        return self.lambda_ if any(self.shares) else 0.0

    @property
    def terms(self) -> Mapping[Tier, Objective]:
        """The term of each tier."""
        own = {"lambda": self.lambda_}
        of_high, of_low, one = (HMSDFL.model_validate({**own, "tier": tier}) for tier in TIERS)
        of_minimum = MSDFL.model_validate(own) if self.minimum == "msdfl" else one
        return {"high": of_high, "low": of_low, "minimum": of_minimum}

    def tier(self, seed: int, client: str) -> Tier | None:
        """The tier of a client; None if the client has no tier."""
        place = float(torch.rand((), generator=generator(seed, self.name, client)))
        ends = zip(TIERS, accumulate(self.shares), strict=True)
        # The tolerance of 1e-9 ensures that every client gets a tier if the shares sum to 1.
        return next((tier for tier, end in ends if place < end + 1e-9), None)

    def gradient(self, point: Point) -> Tensor:
        # `PrivateTask` treats samples as clients with the names "<client>#<number>"; a sample has
        # the tier of its client.
        clients = [name.partition("#")[0] for name in point.draws.names]
        tiers = [self.tier(point.draws.seed, client) for client in clients]
        gradient_KD = torch.zeros_like(point.models_KD)
        for tier, term in self.terms.items():
            own = [k for k, one in enumerate(tiers) if one == tier]
            if own:
                gradient_KD[own] = term.gradient(point.part(own))
        return gradient_KD
