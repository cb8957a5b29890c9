"""Samples of pure noise, which are unsuitable as a server's public data."""

import torch
from pydantic import Field

from rampart_fl.shared.learning.data.datasets import Dataset, Samples, datasets
from rampart_fl.shared.seeding import generator


@datasets.register("noise")
class Noise(Dataset):
    """Images of independent uniform pixels in [0, 1]; all images have the same class.

    According to the SDEA paper, SDEA fails if its public data are noise. If the server uses this
    data set, the default of `sample` is the shape that the experiment needs, and the default of
    `size` is the number of samples that the experiment needs.

    >>> Noise(sample=[1, 4, 4], size=3).load().x.shape
    torch.Size([3, 1, 4, 4])
    """

    paper = "SDEA, section 4: limitation (i)"
    sample: list[int] = Field(default=[1, 28, 28], min_length=1)
    """Shape of one sample."""
    size: int = Field(default=2000, ge=1)
    """Number of samples."""
    seed: int = Field(default=0, ge=0)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.sample)

    @property
    def classes(self) -> int:
        return 1

    def load(self) -> Samples:
        x = torch.rand(self.size, *self.sample, generator=generator(self.seed, "noise"))
        return Samples(x, torch.zeros(self.size, dtype=torch.long), self.classes)
