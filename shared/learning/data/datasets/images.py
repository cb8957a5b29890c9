"""Images: handwriting, clothing, photographs."""

import numpy as np

from rampart_fl.shared.learning.data.datasets import datasets
from rampart_fl.shared.learning.data.datasets.files import FileDataset

CIFAR = "research with citation (Krizhevsky 2009); no formal licence"


@datasets.register("mnist")
class MNIST(FileDataset):
    """70,000 handwritten digits of 28x28 pixels."""

    paper = "LeCun et al., Gradient-based learning applied to document recognition, 1998"
    licence = "CC BY-SA 3.0, as commonly stated"
    sample, labels, total = (1, 28, 28), 10, 70_000
    openml, train = 554, 60_000


@datasets.register("fashion_mnist")
class FashionMNIST(FileDataset):
    """70,000 images of clothing, 28x28 pixels, 10 classes."""

    paper = "Xiao et al., Fashion-MNIST, 2017"
    licence = "MIT"
    sample, labels, total = (1, 28, 28), 10, 70_000
    openml, train = 40996, 60_000


@datasets.register("emnist_byclass")
class EMNISTByClass(FileDataset):
    """Handwritten digits, upper-case and lower-case letters, 28x28 pixels, 62 classes.

    Classes 0..9 are digits, classes 10..35 are upper-case letters, and classes 36..61 are
    lower-case letters. Images are upright.
    """

    paper = "Cohen et al., EMNIST, 2017; FedCAP, section VI-A1"
    licence = "work of the US government (NIST)"
    sample, labels, total = (1, 28, 28), 62, 814_255


@datasets.register("usps")
class USPS(FileDataset):
    """9,298 digits from envelopes, 16x16 pixels."""

    paper = "Hull, A database for handwritten text recognition research, 1994"
    licence = "research; no formal licence"
    sample, labels, total = (1, 16, 16), 10, 9_298
    openml, train = 41082, 7_291

    def from_openml(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Converts pixels from OpenML's range -1..1 to 0..255, and classes from 1..10 to 0..9."""
        return super().from_openml((x + 1) * 127.5, y - 1)


@datasets.register("cifar10")
class CIFAR10(FileDataset):
    """60,000 colour photographs of 32x32 pixels, 10 classes."""

    paper = "Krizhevsky, Learning multiple layers of features from tiny images, 2009"
    licence = CIFAR
    sample, labels, total = (3, 32, 32), 10, 60_000
    openml, train = 40927, 50_000


@datasets.register("cifar100")
class CIFAR100(FileDataset):
    """60,000 colour photographs of 32x32 pixels, 100 classes."""

    paper = "Krizhevsky, Learning multiple layers of features from tiny images, 2009"
    licence = CIFAR
    sample, labels, total = (3, 32, 32), 100, 60_000
    openml, train = 41983, 50_000


@datasets.register("svhn")
class SVHN(FileDataset):
    """99,289 digits of house numbers in street views, 32x32 pixels in colour."""

    paper = "Netzer et al., Reading digits in natural images, 2011"
    licence = "non-commercial use"
    sample, labels, total = (3, 32, 32), 10, 99_289
    openml, train = 41081, 73_257

    def from_openml(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Converts the publisher's class 10, which is the digit 0, to class 0."""
        return super().from_openml(x, y % 10)


@datasets.register("tiny_imagenet")
class TinyImageNet(FileDataset):
    """Photographs of 32x32 pixels, 200 classes; SDEA uses them as public data without labels."""

    paper = "Le and Yang, Tiny ImageNet visual recognition challenge, 2015; SDEA, section 4"
    licence = "non-commercial research (ImageNet's terms)"
    sample, labels, total = (3, 32, 32), 200, 110_000
