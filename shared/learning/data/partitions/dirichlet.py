"""Label skew of adjustable strength: class proportions from a Dirichlet distribution."""

import torch
from pydantic import Field
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.data.partitions import Partition, partitions, shuffled

TRIES = 1000


@partitions.register("dirichlet")
class Dirichlet(Partition):
    """Divides each class in proportion to p ~ Dir(β·1_K); if β is small, clients have few classes.

    The classes are divided one after the other. With `balanced`, a client that already holds at
    least N/K of the N samples gets no samples of later classes. The partition is drawn up to 1000
    times, until every client has at least `minimum` samples.

    >>> y = torch.arange(10).repeat(40)
    >>> parts = Dirichlet(beta=0.5).split(y, 5, torch.Generator().manual_seed(0))
    >>> sum(len(part) for part in parts), min(len(part) for part in parts) >= 10
    (400, True)
    """

    paper = "Hsu et al., Measuring the effects of non-identical data, 2019; SDEA, section 5"
    beta: float = Field(default=0.5, gt=0)
    """Concentration β."""
    minimum: int = Field(default=10, ge=1)
    """The lowest number of samples that a client may have."""
    balanced: bool = True

    def split(
        self, y: Tensor, clients: int, draws: torch.Generator, groups: Tensor | None = None
    ) -> list[Tensor]:
        if clients * self.minimum > len(y):
            raise ConfigurationError(
                f"{len(y)} samples are not enough for {clients} clients with {self.minimum} each"
            )
        for _ in range(TRIES):
            dealt = self._draw(y, clients, draws)
            if int(torch.stack([size_K for _, size_K in dealt]).sum(0).min()) >= self.minimum:
                shares = [torch.split(own, size_K.tolist()) for own, size_K in dealt]
                return [torch.cat(part).sort().values for part in zip(*shares, strict=True)]
        raise ConfigurationError(
            f"dirichlet with beta {self.beta:g}: in each of {TRIES} draws, a client had fewer than "
            f"{self.minimum} samples; lower `minimum` or raise `beta`"
        )

    def _draw(self, y: Tensor, clients: int, draws: torch.Generator) -> list[tuple[Tensor, Tensor]]:
        """For each class, its positions in random order, and each client's number of positions."""
        dealt: list[tuple[Tensor, Tensor]] = []
        held_K = torch.zeros(clients, dtype=torch.long)
        for label in torch.unique(y):
            own = shuffled((y == label).nonzero().flatten(), draws)
            share_K = _dirichlet(self.beta, clients, draws)
            if self.balanced:
                share_K = share_K * (held_K < len(y) / clients)
            total = share_K.sum()
            # If all shares are 0, divide the class equally. A client's share is 0 if the client may
            # get no more samples, or if the share underflowed.
            share_K = share_K / total if total > 0 else torch.full_like(share_K, 1 / clients)
            end_K = (share_K.cumsum(0) * len(own)).round().long()
            end_K[-1] = len(own)
            size_K = end_K.diff(prepend=end_K.new_zeros(1))
            held_K += size_K
            dealt.append((own, size_K))
        return dealt


def _dirichlet(beta: float, size: int, draws: torch.Generator) -> Tensor:
    """One draw from Dir(β·1) in float64."""
    rates = torch.full((size,), beta, dtype=torch.float64)
    # torch's gamma sampler accepts a generator, but torch's Dirichlet sampler does not.
    gammas: Tensor = torch._standard_gamma(rates, generator=draws)
    return gammas / gammas.sum().clamp(min=1e-300)
