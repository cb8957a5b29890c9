"""The bundled digits: real images, in the range that models take."""

import torch

from rampart_fl.shared.learning.data.datasets import datasets


def test_the_bundled_images() -> None:
    digits = datasets.build("digits")
    samples = digits.load()
    assert samples.x.shape == (1797, *digits.shape)
    assert (samples.x.min(), samples.x.max()) == (0, 1)
    assert samples.y.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert samples.groups is None


def test_they_are_what_scikit_learn_loads() -> None:
    from sklearn.datasets import load_digits  # Its import takes a second.

    samples, bunch = datasets.build("digits").load(), load_digits()
    assert torch.equal(samples.x[:, 0] * 16, torch.as_tensor(bunch.images, dtype=torch.float32))
    assert samples.y.tolist() == bunch.target.tolist()
