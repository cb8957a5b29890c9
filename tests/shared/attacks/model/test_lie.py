"""A little is enough: the exact z, its clamp, and the updates that its statistics cover."""

import math

import pytest
import torch

from rampart_fl.shared.attacks import craft
from rampart_fl.shared.attacks.base import Knowledge
from rampart_fl.shared.attacks.model import attacks
from rampart_fl.shared.attacks.model.lie import largest_z

HONEST_BD = torch.tensor([[0.0, 1.0], [2.0, 5.0], [4.0, 0.0]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("n", "m", "z"),
    [
        (10, 2, 0.0),
        (10, 4, 0.430727),
        (20, 4, 0.157311),
        (20, 6, 0.366106),
        (20, 8, 0.674490),
        (36, 10, 0.395725),
        (50, 5, 0.083652),
        (50, 10, 0.253347),
        (100, 20, 0.285841),
        (100, 30, 0.524401),
    ],
)
def test_z_equals_the_exact_values(n: int, m: int, z: float) -> None:
    assert largest_z(n, m) == pytest.approx(z, abs=1e-6)


def test_z_stays_finite_for_any_number_of_attackers() -> None:
    for n in range(1, 40):
        for m in range(1, n + 1):
            assert math.isfinite(largest_z(n, m))
    # Six of ten are a majority: z is clamped to the last finite z of 4 benign clients, at 1 - 1/8.
    assert largest_z(10, 6) == pytest.approx(1.150349, abs=1e-6)


def slow(updates_BD: torch.Tensor, z: float) -> list[float]:
    columns = updates_BD.T.tolist()
    out = []
    for column in columns:
        mean = sum(column) / len(column)
        variance = sum((value - mean) ** 2 for value in column) / (len(column) - 1)
        out.append(mean - z * math.sqrt(variance))
    return out


def test_update_equals_the_formula() -> None:
    for z in (None, 0.0, 1.5, -0.5):
        expected = slow(HONEST_BD, largest_z(20, 6) if z is None else z)
        assert craft("lie", HONEST_BD, n=20, m=6, z=z).tolist() == pytest.approx(expected)


def test_statistics_over_all_include_the_attackers_own_updates() -> None:
    own_FD = torch.tensor([[7.0, 7.0], [9.0, -1.0]], dtype=torch.float64)
    attack = attacks.build("lie", z=1, statistics_over="all", knows="full")
    everybody = Knowledge(5, 2, HONEST_BD, colluders_MD=own_FD)
    expected = slow(torch.cat([HONEST_BD, own_FD]), 1)
    assert attack.apply(own_FD, everybody)[0].tolist() == pytest.approx(expected)
    # An attacker in its own process gets the same result.
    assert attack.apply(own_FD[:1], everybody)[0].tolist() == pytest.approx(expected)
    # With partial knowledge, only the colluders' updates are known, and none counts twice.
    partial = everybody.limited_to("partial")
    assert attack.apply(own_FD, partial)[0].tolist() == pytest.approx(slow(own_FD, 1))


def test_single_known_update_has_zero_deviation() -> None:
    assert craft("lie", HONEST_BD[:1], n=20, m=6, z=3).tolist() == [0.0, 1.0]


def test_craft_over_all_uses_known_updates_and_m_copies_of_the_own_update() -> None:
    own_D = torch.tensor([9.0, 9.0], dtype=torch.float64)
    out_D = craft("lie", HONEST_BD, n=5, m=2, own_D=own_D, z=1, statistics_over="all")
    assert out_D.tolist() == pytest.approx(slow(torch.cat([HONEST_BD, own_D.expand(2, 2)]), 1))
