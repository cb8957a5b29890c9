"""Sign flipping against its definition."""

import torch

from rampart_fl.shared.attacks.base import Knowledge
from rampart_fl.shared.attacks.model import attacks


def test_sign_flip_negates_every_coordinate() -> None:
    own_FD = torch.tensor([[1.0, -2.0], [0.5, 0.0]])
    out_FD = attacks.build("sign_flip").apply(own_FD, Knowledge(5, 2))
    assert out_FD.tolist() == [[-1.0, 2.0], [-0.5, 0.0]]
