"""Handwritten digits: 1,797 real images of 8x8 pixels that come with scikit-learn."""

from importlib.metadata import distribution

import numpy as np
import torch

from rampart_fl.shared.learning.data.datasets import Dataset, Samples, datasets


@datasets.register("digits")
class Digits(Dataset):
    """The test set of UCI's Optical Recognition of Handwritten Digits, with 10 classes.

    >>> samples = Digits().load()
    >>> tuple(samples.x.shape), samples.classes, float(samples.x.max())
    ((1797, 1, 8, 8), 10, 1.0)
    """

    paper = "Alpaydin and Kaynak, Optical recognition of handwritten digits, UCI, 1998"
    licence = "CC BY 4.0 (UCI)"
    total = 1797

    @property
    def shape(self) -> tuple[int, ...]:
        return (1, 8, 8)

    @property
    def classes(self) -> int:
        return 10

    def load(self) -> Samples:
        # Every client process reads the file directly, which is much faster than importing
        # scikit-learn.
        path = distribution("scikit-learn").locate_file("sklearn/datasets/data/digits.csv.gz")
        table = torch.from_numpy(np.loadtxt(str(path), delimiter=","))
        x = table[:, :-1].float().view(-1, *self.shape) / 16
        return Samples(x, table[:, -1].long(), self.classes)
