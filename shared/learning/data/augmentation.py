"""Random views of images: weak (crop and flip) and strong (also colour changes and blur).

Legend: B images, C channels, H rows, W columns.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.runtime.device import to_device

AREA = (0.08, 1.0)
"""Smallest and largest share of an image's area that a view shows."""
RATIO = (3 / 4, 4 / 3)
"""Smallest and largest ratio of a view's width to its height."""
JITTER = 0.4
"""Brightness, contrast and saturation are each multiplied by a random factor in 1 ± JITTER."""
GREY = 0.2
"""Probability that a view is converted to grey."""
BLURRED = 0.5
"""Probability that a view is blurred."""
SIGMA = (0.1, 2.0)
"""Smallest and largest standard deviation of the blur, in pixels."""
LUMA = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in the brightness (ITU-R BT.601)."""


def weakly_augmented(x_BCHW: Tensor, draws: torch.Generator) -> Tensor:
    """A random crop of each image, resized to the image's size and mirrored with probability 1/2.

    The crop covers a fraction of the image's area; this fraction is drawn uniformly from the range
    `AREA`. The crop's aspect ratio is drawn log-uniformly from the range `RATIO`. The crop is
    resized by bilinear interpolation. This random resized crop with a horizontal flip is SDEA's
    weak augmentation.

    Args:
        x_BCHW: images with values in any range.
        draws: source of all randomness; a CPU generator even if the images are on another device.
    Raises:
        ConfigurationError: the samples are not images.

    >>> weakly_augmented(torch.ones(2, 3, 8, 8), torch.Generator().manual_seed(0)).shape
    torch.Size([2, 3, 8, 8])
    """
    if x_BCHW.ndim != 4 or min(x_BCHW.shape[2:]) < 2:
        raise ConfigurationError(f"samples of shape {tuple(x_BCHW.shape[1:])} are not images")
    n = len(x_BCHW)
    low, high = math.log(RATIO[0]), math.log(RATIO[1])
    area_B = AREA[0] + (AREA[1] - AREA[0]) * torch.rand(n, generator=draws)
    ratio_B = (low + (high - low) * torch.rand(n, generator=draws)).exp()
    width_B = (area_B * ratio_B).sqrt().clamp(max=1)
    height_B = (area_B / ratio_B).sqrt().clamp(max=1)
    # Coordinates run from -1 to 1, so the centre of a crop with half-width w is within ±(1 - w).
    right_B = (2 * torch.rand(n, generator=draws) - 1) * (1 - width_B)
    down_B = (2 * torch.rand(n, generator=draws) - 1) * (1 - height_B)
    mirror_B = 1 - 2 * torch.randint(2, (n,), generator=draws)
    zero_B = torch.zeros(n)
    affine_B23 = torch.stack([width_B * mirror_B, zero_B, right_B, zero_B, height_B, down_B], 1)
    affine_B23 = to_device(affine_B23.view(n, 2, 3), x_BCHW.device, x_BCHW.dtype)
    grid = functional.affine_grid(affine_B23, list(x_BCHW.shape), align_corners=False)
    return functional.grid_sample(x_BCHW, grid, padding_mode="border", align_corners=False)


def strongly_augmented(x_BCHW: Tensor, draws: torch.Generator) -> Tensor:
    """A weakly augmented view with random colour changes; a blur follows with probability BLURRED.

    The SDEA paper uses strong augmentation but does not define it. Rampart uses the colour changes
    and the blur of SimCLR (Chen et al., 2020), except that the hue is unchanged.

    Args:
        x_BCHW: images in [0, 1]. The changes of saturation and the conversion to grey have no
            effect on images with one channel.
        draws: source of all randomness.
    """
    x = weakly_augmented(x_BCHW, draws)
    n = len(x)

    def factor() -> Tensor:
        drawn_B = 1 + JITTER * (2 * torch.rand(n, generator=draws) - 1)
        return to_device(drawn_B.view(n, 1, 1, 1), x.device, x.dtype)

    def chance(share: float) -> Tensor:
        return to_device((torch.rand(n, generator=draws) < share).view(n, 1, 1, 1), x.device)

    brightness, contrast, saturation = factor(), factor(), factor()
    x = (x * brightness).clamp(0, 1)
    mean = luminance(x).mean((1, 2, 3), keepdim=True)
    x = (mean + contrast * (x - mean)).clamp(0, 1)
    grey = luminance(x)
    x = (grey + saturation * (x - grey)).clamp(0, 1)
    x = torch.where(chance(GREY), grey.expand_as(x), x)
    sigma_B = SIGMA[0] + (SIGMA[1] - SIGMA[0]) * torch.rand(n, generator=draws)
    return torch.where(chance(BLURRED), _blurred(x, to_device(sigma_B, x.device, x.dtype)), x)


def luminance(x_BCHW: Tensor) -> Tensor:
    """Brightness (B, 1, H, W): the mean of the channels, weighted by LUMA if there are three."""
    if x_BCHW.shape[1] != len(LUMA):
        return x_BCHW.mean(1, keepdim=True)
    weights = to_device(LUMA, x_BCHW.device, x_BCHW.dtype)
    return (x_BCHW * weights.view(1, -1, 1, 1)).sum(1, keepdim=True)


def _blurred(x_BCHW: Tensor, sigma_B: Tensor) -> Tensor:
    """Gaussian blur that reaches at most three pixels, with a standard deviation for each image."""
    b, c, h, w = x_BCHW.shape
    reach = min(3, h - 1, w - 1)
    steps = torch.arange(-reach, reach + 1, device=x_BCHW.device, dtype=x_BCHW.dtype)
    kernel = torch.softmax(-(steps**2) / (2 * sigma_B[:, None] ** 2), 1)
    kernel = kernel.repeat_interleave(c, 0)
    x = functional.pad(x_BCHW.reshape(1, b * c, h, w), [reach] * 4, mode="reflect")
    x = functional.conv2d(x, kernel[:, None, :, None], groups=b * c)
    x = functional.conv2d(x, kernel[:, None, None, :], groups=b * c)
    return x.view(b, c, h, w)
