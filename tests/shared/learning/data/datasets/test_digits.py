"""The bundled digits: real images, scaled to the models' input range."""

import torch

from rampart_fl.shared.learning.data.datasets import datasets


def test_bundled_digits_have_the_expected_shape_range_and_labels() -> None:
    digits = datasets.build("digits")
    samples = digits.load()
    assert samples.x.shape == (1797, *digits.shape)
    assert (samples.x.min(), samples.x.max()) == (0, 1)
    assert samples.y.bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert samples.groups is None


def test_bundled_digits_equal_those_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits  # Its import takes a second.

    samples, bunch = datasets.build("digits").load(), load_digits()
    assert torch.equal(samples.x[:, 0] * 16, torch.as_tensor(bunch.images, dtype=torch.float32))
    assert samples.y.tolist() == bunch.target.tolist()
