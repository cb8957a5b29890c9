"""Noise: uniform pixels without information about a label, drawn from a seed."""

import pytest
import torch

from rampart_fl.shared.learning.data.datasets import datasets


def test_noise_has_uniform_pixels_and_one_class() -> None:
    samples = datasets.build("noise", sample=[3, 16, 16], size=200).load()
    assert samples.x.shape == (200, 3, 16, 16)
    assert float(samples.x.var()) == pytest.approx(1 / 12, rel=0.02)
    assert samples.y.unique().tolist() == [0]
    assert samples.classes == 1


def test_noise_depends_only_on_the_seed() -> None:
    one, again, other = (datasets.build("noise", size=5, seed=s).load().x for s in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
