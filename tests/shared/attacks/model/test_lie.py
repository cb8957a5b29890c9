"""A little is enough: the exact z, its clamp, and the population of its statistics."""

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
def test_z_is_exact(n: int, m: int, z: float) -> None:
    assert largest_z(n, m) == pytest.approx(z, abs=1e-6)


def test_z_stays_finite_for_any_number_of_attackers() -> None:
    for n in range(1, 40):
        for m in range(1, n + 1):
            assert math.isfinite(largest_z(n, m))
    # Six of ten are the majority: the last finite z of 4 benign clients, at 1 - 1/8.
    assert largest_z(10, 6) == pytest.approx(1.150349, abs=1e-6)


def slow(updates_BD: torch.Tensor, z: float) -> list[float]:
    columns = updates_BD.T.tolist()
    out = []
    for column in columns:
        mean = sum(column) / len(column)
        variance = sum((value - mean) ** 2 for value in column) / (len(column) - 1)
        out.append(mean - z * math.sqrt(variance))
    return out


def test_against_the_formula() -> None:
    for z in (None, 0.0, 1.5, -0.5):
        expected = slow(HONEST_BD, largest_z(20, 6) if z is None else z)
        assert craft("lie", HONEST_BD, n=20, m=6, z=z).tolist() == pytest.approx(expected)


def test_statistics_over_all_count_the_attackers_own_updates() -> None:
    own_FD = torch.tensor([[7.0, 7.0], [9.0, -1.0]], dtype=torch.float64)
    attack = attacks.build("lie", z=1, statistics_over="all", knows="full")
    everybody = Knowledge(5, 2, HONEST_BD, colluders_MD=own_FD)
    expected = slow(torch.cat([HONEST_BD, own_FD]), 1)
    assert attack.apply(own_FD, everybody)[0].tolist() == pytest.approx(expected)
    # An attacker in a process of its own comes to the same.
    assert attack.apply(own_FD[:1], everybody)[0].tolist() == pytest.approx(expected)
    # The colluders' updates are all there is under partial knowledge: none counts twice.
    partial = everybody.limited_to("partial")
    assert attack.apply(own_FD, partial)[0].tolist() == pytest.approx(slow(own_FD, 1))


def test_one_known_row_has_no_spread() -> None:
    assert craft("lie", HONEST_BD[:1], n=20, m=6, z=3).tolist() == [0.0, 1.0]


def test_in_one_line_all_means_the_known_ones_and_m_copies_of_its_own() -> None:
    own_D = torch.tensor([9.0, 9.0], dtype=torch.float64)
    out_D = craft("lie", HONEST_BD, n=5, m=2, own_D=own_D, z=1, statistics_over="all")
    assert out_D.tolist() == pytest.approx(slow(torch.cat([HONEST_BD, own_D.expand(2, 2)]), 1))
