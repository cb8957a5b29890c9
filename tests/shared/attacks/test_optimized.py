"""Min-max and min-sum: always feasible, and within 1e-6 of a brute-force search.

The brute force uses only the definitions: distances from differences, a scan of the half-line, and
a bisection between the last feasible point and the next.
"""

from collections.abc import Callable
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rampart_fl.shared.attacks import craft
from rampart_fl.shared.attacks.base import Knowledge
from rampart_fl.shared.attacks.model import attacks

Cost = Callable[[Tensor], float]

SHAPES = [(2, 1), (3, 1), (4, 2), (9, 5), (14, 30)]
SQUARED = {"min_max": [{}], "min_sum": [{"squared": True}, {"squared": False}]}
"""The largest distance also has the largest square, so min-max has no such option."""
EACH = [
    (name, perturbation, bound, squared)
    for name, chosen in SQUARED.items()
    for perturbation, bound, squared in product(["std", "unit", "sign"], ["max", "min"], chosen)
]


def points(b: int, d: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    draws = torch.Generator().manual_seed(seed)
    spread_B1 = torch.rand(b, 1, generator=draws, dtype=torch.float64) ** 3
    noise_BD = torch.randn(b, d, generator=draws, dtype=torch.float64)
    return (0.7 + 3 * spread_B1 * noise_BD).to(dtype)


def cost_of(name: str, known_BD: Tensor, squared: bool = True) -> Cost:
    def cost(u_D: Tensor) -> float:
        distances = (u_D.double() - known_BD.double()).norm(dim=1).tolist()
        if name == "min_max":
            return max(distances)
        return sum(d**2 for d in distances) if squared else sum(distances)

    return cost


def limit_of(cost: Cost, known_BD: Tensor, bound: str) -> float:
    costs = [cost(x_D) for x_D in known_BD]
    return max(costs) if bound == "max" else min(costs)


def direction(known_BD: Tensor, perturbation: str) -> Tensor:
    mean_D = known_BD.double().mean(dim=0)
    if perturbation == "std":
        return -known_BD.double().std(dim=0)
    return -mean_D / mean_D.norm() if perturbation == "unit" else -mean_D.sign()


def brute_force(
    cost: Cost, limit: float, mean_D: Tensor, p_D: Tensor, reach: float
) -> float | None:
    """The largest feasible gamma: a scan for the last feasible grid point, then bisection."""
    slack = limit * (1 + 1e-12)
    grid = torch.linspace(0, reach / float(p_D.norm()), 300, dtype=torch.float64).tolist()
    feasible = [gamma for gamma in grid if cost(mean_D + gamma * p_D) <= slack]
    if not feasible:
        return None
    low, high = feasible[-1], feasible[-1] + grid[1]
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if cost(mean_D + middle * p_D) <= slack else (low, middle)
    return low


@pytest.mark.parametrize(("name", "perturbation", "bound", "squared"), EACH)
def test_attack_goes_as_far_as_a_brute_force_search(
    name: str, perturbation: str, bound: str, squared: dict[str, bool]
) -> None:
    for seed, (b, d) in enumerate(SHAPES):
        known_BD = points(b, d, seed)
        u_D = craft(name, known_BD, n=20, m=6, perturbation=perturbation, bound=bound, **squared)
        cost = cost_of(name, known_BD, **squared)
        limit = limit_of(cost, known_BD, bound)
        assert cost(u_D) <= limit * (1 + 1e-12)
        mean_D, p_D = known_BD.mean(dim=0), direction(known_BD, perturbation)
        # Farther than two diameters from the mean, every distance exceeds all distances of updates.
        reach = 2 * max(float((x_D - y_D).norm()) for x_D in known_BD for y_D in known_BD)
        gamma = brute_force(cost, limit, mean_D, p_D, reach)
        if gamma is not None:
            expected_D = mean_D + gamma * p_D
            assert float((u_D - expected_D).norm()) <= 1e-6 * max(1.0, float(expected_D.norm()))
        elif not any(torch.equal(u_D, x_D) for x_D in known_BD):
            # The feasible interval lies between two points of the scan.
            along = float((u_D - mean_D) @ p_D / p_D.square().sum())
            assert along >= 0
            torch.testing.assert_close(u_D, mean_D + along * p_D)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    b=st.integers(1, 9),
    d=st.integers(1, 12),
    option=st.sampled_from(EACH),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    offset=st.sampled_from([0.0, 1e3]),
)
def test_attack_never_exceeds_its_distance_limit(
    seed: int,
    b: int,
    d: int,
    option: tuple[str, str, str, dict[str, bool]],
    dtype: torch.dtype,
    offset: float,
) -> None:
    name, perturbation, bound, squared = option
    known_BD = (points(b, d, seed) + offset).to(dtype)
    u_D = craft(name, known_BD, n=20, m=6, perturbation=perturbation, bound=bound, **squared)
    cost = cost_of(name, known_BD, **squared)
    # The limit itself is exact only to float64 precision.
    assert cost(u_D) <= limit_of(cost, known_BD, bound) * (1 + 1e-12)


@pytest.mark.parametrize("name", ["min_max", "min_sum"])
def test_three_points_on_a_line_give_the_known_optimum(name: str) -> None:
    u_D = craft(name, torch.tensor([[-1.0], [0.0], [1.0]]).double(), n=5, m=2)
    assert u_D.tolist() == pytest.approx([-1.0], abs=1e-6)


@pytest.mark.parametrize("name", ["min_max", "min_sum"])
def test_central_update_is_copied_if_no_point_is_feasible(name: str) -> None:
    # Nine at 0, one at 5 and one at 10: the mean lies farther from 10 than 5 does from either end.
    known_BD = torch.tensor([[0.0]] * 9 + [[5.0], [10.0]]).double()
    unsquared = SQUARED[name][-1]
    u_D = craft(name, known_BD, n=13, m=2, bound="min", **unsquared)
    assert u_D.tolist() == [5.0] if name == "min_max" else u_D.tolist() == [0.0]


@pytest.mark.parametrize("name", ["min_max", "min_sum"])
def test_attack_uploads_the_common_update_if_all_updates_are_equal(name: str) -> None:
    for perturbation in ("std", "unit", "sign"):
        u_D = craft(name, torch.ones(4, 3), n=6, m=2, perturbation=perturbation)
        torch.testing.assert_close(u_D, torch.ones(3))


@pytest.mark.parametrize("name", ["min_max", "min_sum"])
def test_statistics_over_all_include_the_attackers_own_updates(name: str) -> None:
    benign_BD, own_FD = points(6, 4, seed=1), points(2, 4, seed=2)
    attack = attacks.build(name, statistics_over="all", knows="full")
    both = attack.apply(own_FD, Knowledge(8, 2, benign_BD, colluders_MD=own_FD))[0]
    torch.testing.assert_close(both, craft(name, torch.cat([benign_BD, own_FD]), n=8, m=2))
