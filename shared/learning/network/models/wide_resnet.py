"""Wide residual networks, with batch normalization."""

from collections import OrderedDict
from itertools import pairwise

from pydantic import Field, field_validator
from torch import nn

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.network.layers import ResidualBlock
from rampart_fl.shared.learning.network.models import Model, models


@models.register("wide_resnet")
class WideResNet(Model):
    """A convolution, three groups of (depth - 4) / 6 blocks, mean pooling, and a linear layer.

    A block adds conv(relu(bn(conv(relu(bn(x)))))) to its input x. If a block changes the number of
    channels, a 1x1 convolution of relu(bn(x)) takes the place of x in this sum. The groups have
    16, 32 and 64 times `width` channels. The second and the third group each halve the image's
    height and width. The running statistics of batch normalization are not parameters. The server
    takes the median of each running statistic (`rampart_fl.shared.robust.statistics`).

    >>> sum(p.numel() for p in WideResNet().build((3, 32, 32), 10).parameters())
    691674
    """

    paper = "Zagoruyko and Komodakis, Wide residual networks, 2016; MSDFL, section VII-F"
    depth: int = Field(default=16, ge=10)
    """Number of layers: 4 more than a multiple of 6."""
    width: int = Field(default=2, ge=1)

    @field_validator("depth")
    @classmethod
    def _whole_blocks(cls, depth: int) -> int:
        if (depth - 4) % 6:
            raise ValueError("depth must be 4 more than a multiple of 6, such as 10, 16 or 28")
        return depth

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        if len(shape) != 3 or min(shape[1:]) < 4:
            raise ConfigurationError(
                f"wide_resnet takes images (channels, height, width) of at least 4x4, not samples "
                f"of shape {shape}"
            )
        widths = [16, *(size * self.width for size in (16, 32, 64))]
        layers: dict[str, nn.Module] = {"conv": nn.Conv2d(shape[0], 16, 3, padding=1, bias=False)}
        for i, (before, after) in enumerate(pairwise(widths), start=1):
            layers[f"group{i}"] = self._group(before, after, stride=1 if i == 1 else 2)
        layers |= {
            "norm": nn.BatchNorm2d(widths[-1]),
            "norm_relu": nn.ReLU(),
            "norm_pool": nn.AdaptiveAvgPool2d(1),
            "norm_flatten": nn.Flatten(),
            "output": nn.Linear(widths[-1], classes),
        }
        return nn.Sequential(OrderedDict(layers))

    def _group(self, before: int, after: int, stride: int) -> nn.Sequential:
        """A group of blocks; only the first block changes the channel count and the resolution."""
        others = [_block(after) for _ in range((self.depth - 4) // 6 - 1)]
        if before == after and stride == 1:
            return nn.Sequential(_block(after), *others)
        first = nn.Sequential(
            nn.BatchNorm2d(before),
            nn.ReLU(),
            ResidualBlock(
                nn.Sequential(
                    nn.Conv2d(before, after, 3, stride, padding=1, bias=False),
                    nn.BatchNorm2d(after),
                    nn.ReLU(),
                    nn.Conv2d(after, after, 3, padding=1, bias=False),
                ),
                nn.Conv2d(before, after, 1, stride, bias=False),
            ),
        )
        return nn.Sequential(first, *others)


def _block(channels: int) -> ResidualBlock:
    return ResidualBlock(
        nn.Sequential(
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, channels, 3, padding=1, bias=False),
        )
    )
