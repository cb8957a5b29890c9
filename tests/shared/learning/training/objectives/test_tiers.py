"""Tiers: each client gets its tier's term, whichever clients train in the same batch."""

from typing import Any

import pytest
import torch

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.learning.training.cohort import StepRandomness
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.learning.training.objectives import Point, objectives, parse_terms
from rampart_fl.shared.learning.training.objectives.tiers import TIERS, Tiers
from rampart_fl.shared.learning.training.personalizers import Batch

NAMES = tuple(f"client-0{k}" for k in range(8))
SEED = 7


def point() -> Point:
    tables = {"name": "tiers", "data": {"dataset": "digits"}, "model": {"name": "mlp"}}
    network = Learner.of(Experiment.from_tables(tables)).network
    draws = torch.Generator().manual_seed(1)
    x_KB = torch.rand(len(NAMES), 5, 1, 8, 8, generator=draws)
    y_KB = torch.randint(10, (len(NAMES), 5), generator=draws)
    batch = Batch(x_KB, y_KB, torch.full((len(NAMES), 5), 0.2))
    models_KD = 0.1 * torch.randn(len(NAMES), network.spec.dim, generator=draws)
    taken = StepRandomness(seed=SEED, names=NAMES, round=0, step=0, sizes=(5,) * len(NAMES))
    return Point(network, models_KD, models_KD, batch, taken)


def test_each_client_gets_the_gradient_of_its_tier() -> None:
    mixed = Tiers(lambda_=0.1, shares=(0.25, 0.25, 0.25))
    tiers = [mixed.tier(SEED, name) for name in NAMES]
    assert set(tiers) == {*TIERS, None}
    terms: dict[str | None, dict[str, Any]] = {
        "high": {"name": "hmsdfl", "tier": "high"},
        "low": {"name": "hmsdfl", "tier": "low"},
        "minimum": {"name": "msdfl"},
    }
    gradient_KD = mixed.gradient(point())
    for k, tier in enumerate(tiers):
        if tier is None:
            assert not gradient_KD[k].any()
            continue
        alone_KD = objectives.parse({**terms[tier], "lambda": 0.1}).gradient(point())
        assert torch.allclose(gradient_KD[k], alone_KD[k], atol=1e-6) and alone_KD[k].any()


def test_minimum_tier_can_use_hmsdfl_with_one_projection() -> None:
    mixed = Tiers(lambda_=0.1, shares=(0, 0, 1), minimum="hmsdfl")
    (one,) = parse_terms([{"name": "hmsdfl", "lambda": 0.1, "tier": "minimum"}])
    assert torch.allclose(mixed.gradient(point()), one.gradient(point()), atol=1e-6)


def test_tiers_are_assigned_in_the_configured_shares() -> None:
    mixed = Tiers(shares=(0.5, 0.2, 0.2))
    drawn = [mixed.tier(3, f"client-{k}") for k in range(2000)]
    for tier, share in zip((*TIERS, None), (0.5, 0.2, 0.2, 0.1), strict=True):
        assert drawn.count(tier) / 2000 == pytest.approx(share, abs=0.04)


def test_shares_above_1_are_rejected_and_zero_shares_give_zero_weight() -> None:
    with pytest.raises(ValueError, match=r"shares: 0.5, 0.5, 0.5 add up to more than 1"):
        Tiers(shares=(0.5, 0.5, 0.5))
    assert Tiers(shares=(0, 0, 0)).weight == 0
    everyone = Tiers(shares=(0.1, 0.2, 0.7))
    assert None not in {everyone.tier(1, f"client-{k}") for k in range(500)}
