"""Mean estimation: every client has its own true mean and observes noisy samples of this mean.

Legend: N clients, M samples each, d coordinates.
"""

import torch
from pydantic import Field

from rampart_fl.shared.learning.data.datasets import Dataset, Samples, datasets
from rampart_fl.shared.seeding import generator


@datasets.register("synthetic_means")
class SyntheticMeans(Dataset):
    """Noisy samples of each client's true mean; means and noise are drawn anew for every seed.

    A sample of client i is y = μ_i + noise. The true means μ_i are drawn from N(0, σ_h² I), and the
    noise is drawn from N(0, σ² I).

    The sample y has the group i and the class i. Use the partition `by_group` to give each client
    its own samples. Each client's only test sample is the client's true mean. The error of an
    estimate is therefore the squared distance between the estimate and the true mean.

    >>> samples = SyntheticMeans(clients=3, samples=4, dimension=2).load()
    >>> tuple(samples.x.shape), samples.held_out.tolist()[:6]
    ((15, 2), [False, False, False, False, True, False])
    """

    paper = "fine-tuned personalization, mean estimation: σ = 15, σ_h = 2, m = 20"
    task = "estimation"
    population: int = Field(default=600, ge=1, alias="clients")
    """Number of clients in the data set."""
    samples: int = Field(default=20, ge=1)
    """m, the number of noisy samples of each client."""
    dimension: int = Field(default=1, ge=1)
    """Number of coordinates of a sample."""
    sigma: float = Field(default=15.0, ge=0)
    """Standard deviation of the noise, per coordinate."""
    sigma_h: float = Field(default=2.0, ge=0)
    """Standard deviation of the clients' means, per coordinate."""

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.dimension,)

    @property
    def classes(self) -> int:
        return self.population

    def load(self) -> Samples:
        return self.draw(0)

    def draw(self, seed: int) -> Samples:
        draws, per_client = generator(seed, "synthetic means"), self.samples + 1
        means_Nd = self.sigma_h * torch.randn(self.population, self.dimension, generator=draws)
        x_NMd = means_Nd[:, None].repeat(1, per_client, 1)
        noise_NMd = torch.randn(self.population, self.samples, self.dimension, generator=draws)
        x_NMd[:, :-1] += self.sigma * noise_NMd
        clients = torch.arange(self.population).repeat_interleave(per_client)
        return Samples(
            x_NMd.flatten(0, 1),
            clients,
            self.classes,
            groups=clients,
            held_out=(torch.arange(per_client) == self.samples).repeat(self.population),
        )
