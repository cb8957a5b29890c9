"""Fang's attacks against the published intervals, and against Krum itself."""

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.attacks import craft
from rampart_fl.shared.attacks.base import Knowledge
from rampart_fl.shared.attacks.model import attacks
from rampart_fl.shared.attacks.model.fang import upper_bound
from rampart_fl.shared.robust import aggregate

# Columns: both signs s of the mean, with an extreme of the sign s and of the opposite sign.
BENIGN_BD = torch.tensor(
    [
        [1.0, -1.0, -3.0, 3.0, 2.0],
        [2.0, 4.0, -2.0, 1.0, -5.0],
        [4.0, 6.0, -1.0, -9.0, -2.0],
    ]
).double()


def full_interval(column: list[float], b: float) -> tuple[float, float]:
    """The published interval, case by case."""
    low, high = min(column), max(column)
    if sum(column) > 0:
        return (low / b, low) if low > 0 else (b * low, low)
    return (high, b * high) if high > 0 else (high, high / b)


@pytest.mark.parametrize("version", ["trimmed_mean", "median"])
def test_full_knowledge_draws_beyond_the_benign_extremes(version: str) -> None:
    attack = attacks.build("fang", version=version, knows="full", b=1.5)
    own_FD = torch.zeros(4, 5).double()
    out_FD = attack.apply(own_FD, Knowledge(7, 4, BENIGN_BD))
    signs_D = BENIGN_BD.mean(dim=0).sign()
    for j, column in enumerate(BENIGN_BD.T.tolist()):
        low, high = full_interval(column, 1.5)
        assert all(low <= u <= high for u in out_FD[:, j].tolist())
        extreme = min(column) if signs_D[j] > 0 else max(column)
        assert all(float(signs_D[j]) * (u - extreme) <= 0 for u in out_FD[:, j].tolist())
    # One fresh draw per attacker, and per coordinate.
    assert len({tuple(row) for row in out_FD.tolist()}) == 4


def test_partial_knowledge_draws_three_to_four_deviations_from_the_mean() -> None:
    out_D = craft("fang", BENIGN_BD, n=7, m=2)
    mean_D, std_D = BENIGN_BD.mean(dim=0), BENIGN_BD.std(dim=0)
    distance_D = (mean_D - out_D) * mean_D.sign() / std_D
    assert bool(((distance_D >= 3) & (distance_D <= 4)).all())


def test_mean_of_zero_gives_a_zero_update() -> None:
    for knows in ("partial", "full"):
        assert craft("fang", torch.tensor([[-1.0], [1.0]]), n=4, m=1, knows=knows).tolist() == [0]


def test_attack_more_than_halves_the_aggregate_of_median_and_trimmed_mean() -> None:
    benign_BD = 0.2 + torch.randn(14, 50, generator=torch.Generator().manual_seed(2)).double()
    attack = attacks.build("fang", knows="full")
    hostile_FD = attack.apply(torch.zeros(6, 50).double(), Knowledge(20, 6, benign_BD))
    uploads_ND = torch.cat([benign_BD, hostile_FD])
    signs_D = benign_BD.mean(dim=0).sign()
    for rule in ("median", "trimmed_mean"):
        before = float(signs_D @ aggregate(benign_BD, rule))
        assert float(signs_D @ aggregate(uploads_ND, rule, f=6)) < 0.5 * before


def noise(seed: int, spread: float) -> Tensor:
    draws = torch.Generator().manual_seed(seed)
    return (1 + spread * torch.randn(14, 20, generator=draws)).double()


@pytest.mark.parametrize("spread", [1.0, 3.0])
def test_krum_picks_the_crafted_update(spread: float) -> None:
    for seed in range(5):
        benign_BD = noise(seed, spread)
        crafted_D = craft("fang", benign_BD, n=20, m=6, version="krum")
        uploads_ND = torch.cat([benign_BD, crafted_D.expand(6, -1)])
        strengths = crafted_D.abs()
        assert bool((crafted_D * benign_BD.mean(dim=0) <= 0).all())
        torch.testing.assert_close(strengths, strengths[:1].expand_as(strengths))
        assert torch.equal(aggregate(uploads_ND, "krum", f=6), crafted_D)


@pytest.mark.parametrize("spread", [0.1, 0.5])
def test_krum_attack_gives_up_if_honest_updates_are_close(spread: float) -> None:
    for seed in range(5):
        crafted_D = craft("fang", noise(seed, spread), n=20, m=6, version="krum")
        assert float(crafted_D.abs().max()) < 1e-5


def test_krum_strength_is_the_first_halved_bound_that_krum_picks() -> None:
    benign_BD = noise(1, 3.0)
    crafted_D = craft("fang", benign_BD, n=20, m=6, version="krum")
    start = slow_upper_bound(benign_BD.tolist(), 6)
    strength = float(crafted_D.abs()[0])
    assert 1e-5 <= strength <= start
    while start > 1.5 * strength:
        tried_D = crafted_D.sign() * start
        uploads_ND = torch.cat([benign_BD, tried_D.expand(6, -1)])
        assert not torch.equal(aggregate(uploads_ND, "krum", f=6), tried_D)
        start /= 2
    assert start == pytest.approx(strength)


def distance(x: list[float], y: list[float]) -> float:
    return sum((a - b) ** 2 for a, b in zip(x, y, strict=True)) ** 0.5


def slow_upper_bound(points: list[list[float]], f: int) -> float:
    """The bound of the paper's Theorem 1 with m = B + f participants, of whom c = f attack."""
    m, c, d = len(points) + f, f, len(points[0])
    received = [0.0] * d
    sums = [
        sum(sorted(distance(x, y) for j, y in enumerate(points) if j != i)[: m - c - 2])
        for i, x in enumerate(points)
    ]
    reach = max(distance(x, received) for x in points)
    return min(sums) / ((m - 2 * c - 1) * d**0.5) + reach / d**0.5


def test_upper_bound_equals_the_formula() -> None:
    benign_BD = noise(3, 1.0)
    squared_BB = (benign_BD[:, None] - benign_BD[None]).square().sum(dim=2)
    bound = upper_bound(squared_BB, benign_BD.norm(dim=1), dim=20, f=6)
    assert bound == pytest.approx(slow_upper_bound(benign_BD.tolist(), 6))


@pytest.mark.parametrize(("spread", "f"), [(0.1, 6), (1.0, 6), (3.0, 3), (3.0, 6)])
def test_krum_picks_no_strength_above_the_bound(spread: float, f: int) -> None:
    """The paper proves this for Krum with distances that are not squared."""
    benign = noise(3, spread).tolist()
    n = len(benign) + f
    signs = [1 if sum(column) > 0 else -1 for column in zip(*benign, strict=True)]
    bound = slow_upper_bound(benign, f)

    def picked(strength: float) -> bool:
        uploads = benign + [[-strength * sign for sign in signs]] * f
        scores = [
            sum(sorted(distance(x, y) for j, y in enumerate(uploads) if j != i)[: n - f - 2])
            for i, x in enumerate(uploads)
        ]
        return min(scores[len(benign) :]) <= min(scores[: len(benign)])

    assert not any(picked(bound * factor) for factor in (1.001, 1.1, 1.5, 3.0, 30.0))
    if (spread, f) == (3.0, 6):
        assert any(picked(bound / 2**step) for step in range(1, 12)), "the bound is not idle"


@pytest.mark.parametrize("value", [torch.inf, torch.nan])
def test_halving_terminates_if_an_honest_update_is_not_finite(value: float) -> None:
    benign_BD = noise(3, 1.0)
    benign_BD[0, 0] = value
    assert craft("fang", benign_BD, n=20, m=6, version="krum").shape == (20,)
