"""Clopper-Pearson bounds and t intervals equal values computed by hand."""

import pytest

from benchmarks.detection.bounds import interval, of_mean, upper


@pytest.mark.slow
@pytest.mark.parametrize("runs", [1, 20, 300])
def test_upper_bound_of_zero_events_equals_the_closed_form(runs: int) -> None:
    assert upper(0, runs) == pytest.approx(1 - 0.05 ** (1 / runs))


@pytest.mark.slow
def test_upper_bound_solves_the_binomial_tail_equation() -> None:
    """At the bound, two events or fewer in 50 runs have a probability of 5%."""
    p = upper(2, 50)
    tail = (1 - p) ** 50 + 50 * p * (1 - p) ** 49 + 1225 * p**2 * (1 - p) ** 48
    assert tail == pytest.approx(0.05)


def test_upper_bound_is_one_if_every_run_has_an_event() -> None:
    assert upper(5, 5) == 1


def test_interval_at_zero_and_all_events_equals_the_closed_form() -> None:
    assert interval(0, 20) == (0, pytest.approx(1 - 0.025 ** (1 / 20)))
    assert interval(20, 20) == (pytest.approx(0.025 ** (1 / 20)), 1)


def test_interval_of_a_mean_uses_the_t_distribution() -> None:
    """t of 3 degrees of freedom: 3.182; deviation of 1, 1, 3, 3: 1.155."""
    middle, low, high = of_mean([1, 1, 3, 3])
    assert middle == 2
    assert (high - 2, 2 - low) == (pytest.approx(1.837, abs=1e-3),) * 2
