"""The convolutional networks of several papers: `cnn` with the layer sizes of each paper."""

from typing import ClassVar

from torch import nn

from rampart_fl.shared.learning.network.models import Model, models
from rampart_fl.shared.learning.network.models.cnn import CNN


class PublishedCNN(Model):
    """A `cnn` network with the layer sizes of a paper."""

    sizes: ClassVar[CNN]

    def build(self, shape: tuple[int, ...], classes: int) -> nn.Module:
        return self.sizes.build(shape, classes)


@models.register("fedcap_cifar")
class FedCAPCIFAR(PublishedCNN):
    """Convolutions of 32 and 64 channels, 5x5, without padding; one hidden layer of width 64.

    >>> sum(p.numel() for p in FedCAPCIFAR().build((3, 32, 32), 10).parameters())
    156810
    """

    paper = "FedCAP, section VI-A1 (CIFAR-10)"
    sizes = CNN(channels=[32, 64], kernel=5, padding=0, hidden=64)


@models.register("fedcap_emnist")
class FedCAPEMNIST(PublishedCNN):
    """Convolutions of 16 and 32 channels, 5x5, without padding; one hidden layer of width 128."""

    paper = "FedCAP, section VI-A1 (EMNIST)"
    sizes = CNN(channels=[16, 32], kernel=5, padding=0, hidden=128)


@models.register("fedcap_wisdm")
class FedCAPWISDM(PublishedCNN):
    """Convolutions of 32 and 64 channels along a signal, 1x5; one hidden layer of width 64."""

    paper = "FedCAP, section VI-A1 (WISDM)"
    sizes = CNN(channels=[32, 64], kernel=(1, 5), padding=0, hidden=64)


@models.register("sdea")
class SDEANetwork(PublishedCNN):
    """Convolutions of 6 and 16 channels, 5x5; hidden layers of widths 120, 84, 84 and 256.

    The SDEA paper converts all images to (3, 32, 32). Rampart's network takes images in the shape
    of the data set.
    """

    paper = "SDEA, experiments (the sizes from its code)"
    sizes = CNN(channels=[6, 16], kernel=5, padding=0, hidden=[120, 84, 84, 256])


@models.register("pawbrofl")
class PAwBRoFLNetwork(PublishedCNN):
    """Two convolutions of 30 channels, 3x3, padded; one hidden layer of width 200."""

    paper = "PAwBRoFL, section 5.1 (the sizes from its code)"
    sizes = CNN(channels=[30, 30], kernel=3, padding=1, hidden=200)


@models.register("lenet5")
class LeNet5(PublishedCNN):
    """Convolutions of 6 and 16 channels, 5x5; hidden layers of widths 120 and 84.

    MSDFL's code also applies a ReLU to the logits. This network omits the ReLU, because a
    ReLU could keep the logits of a class at 0 permanently.
    """

    paper = "LeCun et al., 1998; MSDFL, section VII-A (MNIST, Fashion-MNIST)"
    sizes = CNN(channels=[6, 16], kernel=5, padding=0, hidden=[120, 84])
