"""Label skew of adjustable strength: class proportions from a Dirichlet distribution."""

import torch
from pydantic import Field
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.data.partitions import Partition, partitions, shuffled

TRIES = 1000
LEAST = 1e-290
"""If all gamma variables of a draw are below this number, they are drawn again as logarithms. The
reason is that float64 can hardly represent smaller numbers. If β is at least 0.01, fewer than two
of 1000 variables are below this number."""


@partitions.register("dirichlet")
class Dirichlet(Partition):
    """Divides each class by proportions from Dir(β); if β is small, clients have few classes.

    For each class, the proportions of the K clients are drawn from the symmetric Dirichlet
    distribution Dir(β, ..., β).

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
            open_K = held_K < (len(y) / clients if self.balanced else torch.inf)
            share_K = _dirichlet(self.beta, open_K, draws)
            total = share_K.sum()
            # If no client may get more samples, all shares are 0; divide the class equally.
            share_K = share_K / total if total > 0 else torch.full_like(share_K, 1 / clients)
            end_K = (share_K.cumsum(0) * len(own)).round().long()
            end_K[-1] = len(own)
            size_K = end_K.diff(prepend=end_K.new_zeros(1))
            held_K += size_K
            dealt.append((own, size_K))
        return dealt


def _dirichlet(beta: float, open_K: Tensor, draws: torch.Generator) -> Tensor:
    """One draw (K,) from Dir(β, ..., β) in float64, up to a factor; 0 outside of `open_K`."""
    rates_K = torch.full((len(open_K),), beta, dtype=torch.float64)
    # torch's gamma sampler accepts a generator, but torch's Dirichlet sampler does not.
    gamma_K: Tensor = torch._standard_gamma(rates_K, generator=draws)
    if int(open_K.sum()) > 1 and float(gamma_K[open_K].max()) < LEAST:
        # The density of a small gamma variable is proportional to x^(β-1). Variables below `LEAST`
        # are therefore distributed as LEAST · U^(1/β) with a uniform U. The factor `LEAST` cancels
        # out.
        log_K = torch.rand(len(open_K), generator=draws, dtype=torch.float64).log()
        log_K = log_K.masked_fill(~open_K, -torch.inf)
        return ((log_K - log_K.max()) / beta).exp()
    return gamma_K / gamma_K.sum().clamp(min=1e-300) * open_K
