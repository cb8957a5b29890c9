"""Label flipping against its two definitions."""

import torch

from rampart_fl.shared.attacks.data import attacks

X = torch.zeros(10, 1)
Y = torch.arange(10)


def test_labels_flip_to_the_next_class() -> None:
    _, y = attacks.build("label_flip").apply(X, Y, 10, torch.Generator())
    assert y.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]


def test_mirror_variant_reverses_classes_and_keeps_the_middle_one() -> None:
    mirror = attacks.build("label_flip", variant="mirror")
    assert mirror.apply(X, Y, 10, torch.Generator())[1].tolist() == list(range(9, -1, -1))
    odd = mirror.apply(X[:5], Y[:5], 5, torch.Generator())[1]
    assert odd.tolist() == [4, 3, 2, 1, 0]
