"""The measured kappa, checked against its definition and the known bounds."""

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rampart_fl.shared.errors import PreconditionError
from rampart_fl.shared.robust import Context, Pipeline, aggregate
from rampart_fl.shared.robust.kappa import kappa, proven

BOUNDED = ["median", "trimmed_mean", "krum", "geometric_median"]


def by_definition(block: np.ndarray, result: np.ndarray, f: int) -> float:
    worst = 0.0
    for subset in combinations(range(len(block)), len(block) - f):
        rows = block[list(subset)]
        mean = rows.mean(axis=0)
        spread = ((rows - mean) ** 2).sum(axis=1).mean()
        worst = max(worst, float(((result - mean) ** 2).sum() / spread))
    return worst


@pytest.mark.parametrize("rule", ["weighted_mean", "median", "trimmed_mean", "krum"])
@pytest.mark.parametrize("seed", range(3))
def test_kappa_equals_its_definition_over_all_subsets(rule: str, seed: int) -> None:
    draws = torch.Generator().manual_seed(seed)
    block_ND = torch.randn(9, 4, generator=draws, dtype=torch.float64) + 5
    block_ND[:2] += 3
    ratio = kappa(block_ND, rule, f=2)
    result = aggregate(block_ND, rule, f=2).numpy()
    assert ratio.kappa == pytest.approx(by_definition(block_ND.numpy(), result, 2))
    assert ratio.exact and ratio.subsets == 36 and len(ratio.worst) == 7
    assert ratio.lower_bound == pytest.approx(2 / 5)


@given(
    st.sampled_from(BOUNDED),
    st.booleans(),
    st.integers(0, 10_000),
    st.floats(-1, 4),
    st.sampled_from([1, 2]),
)
def test_kappa_never_exceeds_the_proven_bound(
    rule: str, mixing: bool, seed: int, exponent: float, f: int
) -> None:
    draws = torch.Generator().manual_seed(seed)
    block_ND = torch.randn(9, 3, generator=draws, dtype=torch.float64)
    block_ND[:f] += torch.randn(3, generator=draws, dtype=torch.float64) * 10**exponent
    ratio = kappa(block_ND, ["nnm", rule] if mixing else rule, f=f)
    assert ratio.upper_bound is not None
    assert ratio.kappa <= ratio.upper_bound * (1 + 1e-6)


@pytest.mark.parametrize(
    ("n", "f", "plain", "mixed"),
    [(20, 3, 1.561, 3.616), (20, 6, 7.875, 30.43), (600, 100, 1.875, 4.6)],
)
def test_proven_bounds_equal_known_values(n: int, f: int, plain: float, mixed: float) -> None:
    assert proven(Pipeline.of("trimmed_mean", f=f), n, f) == pytest.approx(plain, rel=1e-3)
    result = proven(Pipeline.of(["nnm", "trimmed_mean"], f=f), n, f)
    assert result == pytest.approx(mixed, rel=1e-3)


def test_bound_of_krum_equals_values_worked_out_by_hand() -> None:
    """Krum adds q = n - f - 2 distances, and h = n - f."""
    for n, f, h, q in ((5, 1, 4, 2), (20, 6, 14, 12), (3, 0, 3, 1)):
        bound = h / (n - 2 * f - 1) * (1 + (2 * q / (h - 1)) ** 0.5) ** 2
        assert proven(Pipeline.of("krum", f=f), n, f) == pytest.approx(bound)
        mixed = 8 * f / h * (bound + 1)
        assert proven(Pipeline.of(["nnm", "krum"], f=f), n, f) == pytest.approx(mixed)
    # The paper's bound 6(1 + f/(n-2f)) is for a Krum that adds one more distance.
    assert proven(Pipeline.of("krum", f=6), 20, 6) == pytest.approx(11.127, rel=1e-4)
    assert proven(Pipeline.of("krum", f=1), 4, 1) is None, "Krum needs five rows"


def test_no_bound_is_claimed_where_none_is_proven() -> None:
    assert proven(Pipeline.of("weighted_mean", f=1), 9, 1) is None
    assert proven(Pipeline.of({"name": "trimmed_mean", "b": 2}, f=1), 9, 1) is None
    assert proven(Pipeline.of("median", f=1), 2, 1) is None
    assert proven(Pipeline.of({"name": "krum", "f": 1}), 20, 3) is None
    assert proven(Pipeline.of([{"name": "nnm", "f": 1}, "median"], f=3), 20, 3) is None


def test_bound_of_the_trimmed_mean_holds_if_b_is_f() -> None:
    explicit = Pipeline.of({"name": "trimmed_mean", "b": 2}, f=2)
    assert proven(explicit, 9, 2) == proven(Pipeline.of("trimmed_mean", f=2), 9, 2)


@pytest.mark.parametrize(
    "option", [{"iterations": 1}, {"nu": 1e9}, {"tolerance": 0.1}, {"weighted": True}]
)
def test_inexact_geometric_median_has_no_proven_bound(option: dict[str, float]) -> None:
    assert proven(Pipeline.of("geometric_median", f=1), 3, 1) == 16
    assert proven(Pipeline.of({"name": "geometric_median", **option}, f=1), 3, 1) is None
    rows = torch.tensor([[0.0], [1.0], [100.0]])
    few_steps = kappa(rows, {"name": "geometric_median", "iterations": 1}, f=1)
    assert few_steps.kappa > 16 and few_steps.upper_bound is None


def test_kappa_of_the_mean_is_zero_if_f_is_zero() -> None:
    block_ND = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    assert kappa(block_ND, "weighted_mean", f=0).kappa == pytest.approx(0, abs=1e-10)


def test_single_far_row_makes_kappa_of_the_mean_unbounded() -> None:
    # For the subset without the far row, the bias grows like D/n while the spread is constant.
    result = [
        kappa(torch.tensor([[0.0], [1.0], [2.0], [far]]), "weighted_mean", f=1).kappa
        for far in (1e2, 1e4, 1e6)
    ]
    assert result[1] > 1e3 * result[0] and result[2] > 1e3 * result[1]
    assert kappa(torch.tensor([[0.0], [1.0], [2.0], [1e30]]), "median", f=1).kappa < 4


def test_kappa_of_identical_rows_is_zero_or_infinite() -> None:
    same_ND = torch.full((5, 3), 0.1)
    assert kappa(same_ND, "median", f=1).kappa == 0
    same_ND[0] = 9
    assert kappa(same_ND, "median", f=1).kappa < 1
    assert kappa(same_ND, "weighted_mean", f=1).kappa == float("inf")


@pytest.mark.parametrize("rule", ["median", "weighted_mean"])
def test_sampling_and_hill_climbing_find_the_worst_subset(rule: str) -> None:
    draws = torch.Generator().manual_seed(7)
    block_ND = torch.randn(14, 6, generator=draws, dtype=torch.float64)
    block_ND[:3] += 4
    whole = kappa(block_ND, rule, f=3)
    part = kappa(block_ND, rule, f=3, exact=1, samples=50, context=Context(seed=2))
    assert not part.exact and part.subsets < 5000
    assert part.kappa == pytest.approx(whole.kappa) and part.worst == whole.worst


def test_subsets_of_many_rows_are_sampled_reproducibly() -> None:
    block_ND = torch.randn(60, 5, generator=torch.Generator().manual_seed(3))
    ratio = kappa(block_ND, "median", f=12, samples=2000)
    assert not ratio.exact and 0 < ratio.kappa <= 4 * (1 + 12 / 36) ** 2
    assert ratio == kappa(block_ND, "median", f=12, samples=2000)


def test_too_few_rows_and_non_finite_rows_are_rejected() -> None:
    with pytest.raises(PreconditionError, match="n=4, f=2"):
        kappa(torch.ones(4, 1), "median", f=2)
    with pytest.raises(PreconditionError, match="not finite=1"):
        kappa(torch.tensor([[1.0], [float("nan")], [2.0]]), "median", f=1)
