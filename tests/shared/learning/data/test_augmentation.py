"""Augmented views of images: the window of a weak view, the range of values, and the seed."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.data import augmentation
from rampart_fl.shared.learning.data.augmentation import (
    luminance,
    strongly_augmented,
    weakly_augmented,
)

View = Callable[[Tensor, torch.Generator], Tensor]


def images(n: int = 40, channels: int = 3) -> Tensor:
    return torch.rand(n, channels, 12, 10, generator=torch.Generator().manual_seed(5))


def seeded(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("view", [weakly_augmented, strongly_augmented])
@pytest.mark.parametrize("channels", [1, 2, 3])
def test_views_depend_on_the_seed_and_keep_shape_dtype_and_range(view: View, channels: int) -> None:
    x = images(channels=channels)
    before = x.clone()
    one, again, other = view(x, seeded()), view(x, seeded()), view(x, seeded(2))
    assert one.shape == x.shape
    assert one.dtype == x.dtype
    assert (float(one.min()) >= 0, float(one.max()) <= 1) == (True, True)
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert torch.equal(x, before)


def test_weak_view_shows_a_window_of_valid_area_and_ratio() -> None:
    # Each pixel holds its own column and row, so a view's slope is its window's width and height.
    n, side = 2000, 32
    ramp = (torch.arange(side, dtype=torch.float64) + 0.5) / side
    x = torch.stack([ramp.expand(side, side), ramp[:, None].expand(side, side)]).expand(
        n, 2, -1, -1
    )
    views = weakly_augmented(x, seeded())
    middle = side // 2
    width = (views[:, 0, middle, middle + 1] - views[:, 0, middle, middle]) * side
    height = (views[:, 1, middle + 1, middle] - views[:, 1, middle, middle]) * side
    assert 0.4 < float((width < 0).double().mean()) < 0.6  # mirrored half of the time
    assert (height > 0).all()
    area, ratio = width.abs() * height, width.abs() / height
    assert float(area.min()) >= augmentation.AREA[0] - 1e-6
    assert float(area.max()) <= 1 + 1e-6
    free = (width.abs() < 0.99) & (height < 0.99)  # sides are clipped to the image's own
    assert float(ratio[free].min()) >= 3 / 4 - 1e-6
    assert float(ratio[free].max()) <= 4 / 3 + 1e-6
    assert float(area.mean()) == pytest.approx(0.54, abs=0.03)


def test_full_size_window_shows_the_whole_image_or_its_mirror_image(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(augmentation, "AREA", (1.0, 1.0))
    monkeypatch.setattr(augmentation, "RATIO", (1.0, 1.0))
    x = images()
    views = weakly_augmented(x, seeded())
    mirrored = [torch.allclose(v, i.flip(-1), atol=1e-6) for v, i in zip(views, x, strict=True)]
    same = [torch.allclose(v, i, atol=1e-6) for v, i in zip(views, x, strict=True)]
    assert all(a != b for a, b in zip(mirrored, same, strict=True))
    assert 0 < sum(mirrored) < len(x)


def test_blur_is_the_gaussian_mean_of_the_neighbours() -> None:
    x = images(2, 1)
    sigma = torch.tensor([0.5, 2.0])
    blurred = augmentation._blurred(x, sigma)
    for b in range(2):
        weights = torch.exp(-(torch.arange(-3, 4.0) ** 2) / (2 * sigma[b] ** 2))
        weights = weights / weights.sum()
        slow = sum(
            weights[i] * weights[j] * x[b, 0, 5 + i - 3, 4 + j - 3]
            for i in range(7)
            for j in range(7)
        )
        assert float(blurred[b, 0, 5, 4]) == pytest.approx(float(slow), abs=1e-6)


def test_luminance_weights_rgb_and_averages_other_channels() -> None:
    x = torch.tensor([1.0, 0.5, 0.25]).view(1, 3, 1, 1)
    assert float(luminance(x)) == pytest.approx(0.299 + 0.2935 + 0.0285)
    assert float(luminance(x[:, :2])) == 0.75


def test_samples_that_are_not_images_are_rejected() -> None:
    for shape in [(4, 68), (4, 3, 1, 200)]:
        with pytest.raises(ConfigurationError, match="not images"):
            weakly_augmented(torch.zeros(shape), seeded())
