"""Model replacement against its definition."""

import torch

from rampart_fl.shared.attacks import craft
from rampart_fl.shared.attacks.base import Knowledge
from rampart_fl.shared.attacks.model import attacks
from rampart_fl.shared.robust import aggregate


def test_default_scale_is_the_number_of_participants() -> None:
    own_FD = torch.tensor([[1.0, -2.0], [0.5, 0.0]])
    out_FD = attacks.build("model_replacement").apply(own_FD, Knowledge(20, 2))
    assert out_FD.tolist() == [[20.0, -40.0], [10.0, 0.0]]


def test_single_attacker_replaces_the_mean_of_idle_clients() -> None:
    own_D = torch.tensor([1.0, -2.0, 3.0])
    crafted_D = craft("model_replacement", torch.zeros(9, 3), n=10, m=1, own_D=own_D)
    uploads_ND = torch.cat([torch.zeros(9, 3), crafted_D[None]])
    torch.testing.assert_close(aggregate(uploads_ND, "weighted_mean"), own_D)


def test_scale_can_be_configured() -> None:
    assert craft("model_replacement", torch.ones(4, 2), n=20, m=6, scale=3).tolist() == [3.0, 3.0]
