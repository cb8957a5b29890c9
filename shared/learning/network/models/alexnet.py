"""AlexNet for images of 32x32 pixels; the MSDFL paper trains this network on CIFAR-10 and SVHN."""

from collections import OrderedDict

from torch import nn

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.network.models import Model, models

SIDE = 32


@models.register("alexnet")
class AlexNet(Model):
    """Five convolutions with 64 to 384 channels, and a linear layer.

    The convolutions have 64 channels (11x11, stride 4, padding 5), 192 (5x5), and 384, 256 and 256
    (3x3 each). A ReLU follows each convolution, and max pooling by 2 follows the first, second and
    fifth convolution.

    >>> sum(p.numel() for p in AlexNet().build((3, 32, 32), 10).parameters())
    2472266
    """

    paper = "Krizhevsky, Sutskever and Hinton, 2012; MSDFL, section VII-A (CIFAR-10, SVHN)"

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        if len(shape) != 3 or shape[1:] != (SIDE, SIDE):
            raise ConfigurationError(
                f"alexnet takes images (channels, {SIDE}, {SIDE}), not samples of shape {shape}"
            )
        layers: dict[str, nn.Module] = {
            "conv1": nn.Conv2d(shape[0], 64, 11, stride=4, padding=5),
            "relu1": nn.ReLU(),
            "pool1": nn.MaxPool2d(2),
            "conv2": nn.Conv2d(64, 192, 5, padding=2),
            "relu2": nn.ReLU(),
            "pool2": nn.MaxPool2d(2),
            "conv3": nn.Conv2d(192, 384, 3, padding=1),
            "relu3": nn.ReLU(),
            "conv4": nn.Conv2d(384, 256, 3, padding=1),
            "relu4": nn.ReLU(),
            "conv5": nn.Conv2d(256, 256, 3, padding=1),
            "relu5": nn.ReLU(),
            "pool5": nn.MaxPool2d(2),
            "flatten": nn.Flatten(),
            "output": nn.Linear(256, classes),
        }
        return nn.Sequential(OrderedDict(layers))
