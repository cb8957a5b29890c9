"""Slow poisoning: uploads stay inside the spread and drift in one direction over all rounds."""

import torch
from torch import Tensor

from rampart_fl.shared.attacks.base import Knowledge
from rampart_fl.shared.attacks.model import attacks

KNOWN_BD = torch.randn(6, 30, generator=torch.Generator().manual_seed(1)).double()


def upload(at_round: int, **parameters: float) -> Tensor:
    attack = attacks.build("slow_poison", **parameters)
    return attack.apply(torch.zeros(1, 30).double(), Knowledge(9, 3, KNOWN_BD, round=at_round))[0]


def test_upload_stays_within_the_range_of_every_coordinate() -> None:
    for at_round in (0, 5, 50):
        out_D = upload(at_round, strength=10)
        assert bool((out_D >= KNOWN_BD.amin(dim=0)).all() and (out_D <= KNOWN_BD.amax(dim=0)).all())


def test_drift_grows_by_pace_up_to_strength() -> None:
    mean_D, std_D = KNOWN_BD.mean(dim=0), KNOWN_BD.std(dim=0)
    for at_round, expected in ((0, 0.1), (3, 0.4), (7, 0.5), (90, 0.5)):
        drift_D = (upload(at_round, strength=0.5) - mean_D) / std_D
        torch.testing.assert_close(drift_D.abs(), torch.full((30,), expected).double())


def test_drift_starts_to_grow_at_from_round() -> None:
    torch.testing.assert_close(upload(12, from_round=10), upload(2))


def test_drift_direction_never_changes() -> None:
    mean_D = KNOWN_BD.mean(dim=0)
    signs = {tuple((upload(r) - mean_D).sign().tolist()) for r in range(0, 20, 4)}
    assert len(signs) == 1
    assert {-1.0, 1.0} == set(signs.pop())
