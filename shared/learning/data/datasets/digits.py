"""Handwritten digits: 1,797 real images of 8x8 pixels that come with scikit-learn."""

import torch

from rampart_fl.shared.learning.data.datasets import Dataset, Samples, datasets


@datasets.register("digits")
class Digits(Dataset):
    """The test part of UCI's Optical Recognition of Handwritten Digits, with 10 classes.

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
        from sklearn.datasets import load_digits

        bunch = load_digits()
        x = torch.as_tensor(bunch.images, dtype=torch.float32).unsqueeze(1) / 16
        return Samples(x, torch.as_tensor(bunch.target, dtype=torch.long), self.classes)
