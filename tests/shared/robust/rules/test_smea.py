"""SMEA, checked against dense covariances of all subsets."""

from itertools import combinations

import numpy as np
import pytest
import torch

from rampart_fl.shared.errors import PreconditionError
from rampart_fl.shared.robust import aggregate
from rampart_fl.shared.robust.rules import smea


@pytest.mark.parametrize(("n", "f", "d"), [(5, 1, 3), (7, 2, 4), (9, 3, 12), (6, 0, 2)])
def test_result_is_the_mean_of_the_subset_of_least_top_variance(n: int, f: int, d: int) -> None:
    for seed in range(4):
        block_ND = torch.randn(n, d, generator=torch.Generator().manual_seed(seed)).double()
        best = min(
            combinations(range(n), n - f),
            key=lambda s: np.linalg.eigvalsh(np.cov(block_ND[list(s)].numpy().T, bias=True))[-1],
        )
        torch.testing.assert_close(
            aggregate(block_ND, "smea", f=f), block_ND[list(best)].mean(dim=0)
        )


def test_lower_bounds_never_discard_the_best_subset() -> None:
    """This holds even if many subsets are alike, far away, or at infinite distance."""
    for seed in range(30):
        draws = torch.Generator().manual_seed(seed)
        block_ND = torch.randn(8, 5, generator=draws, dtype=torch.float64)
        block_ND[seed % 8] *= 10.0 ** (seed - 5)
        squared_NN = torch.cdist(block_ND, block_ND).square()
        at_BS = torch.tensor(list(combinations(range(8), 6)))
        variances_B = smea._variances(squared_NN, at_BS)
        assert (smea._bounds(squared_NN, at_BS) <= variances_B).all()
        kept, variance = smea.least_variance_subset(squared_NN, 6)
        assert kept == at_BS[variances_B.argsort(stable=True)[0]].tolist()
        assert variance == variances_B.min()
    squared_NN[2] = squared_NN[:, 2] = torch.inf
    assert 2 not in smea.least_variance_subset(squared_NN, 6)[0]


def test_too_many_subsets_are_rejected_with_their_number() -> None:
    with pytest.raises(PreconditionError, match=r"C\(n, f\) = 15504 .* `most` is 100: n=20, f=5"):
        aggregate(torch.zeros(20, 2), {"name": "smea", "most": 100}, f=5)


@pytest.mark.parametrize("kind", ["arc", "clipping"])
def test_search_finds_a_subset_if_rounding_makes_bounds_tight(kind: str) -> None:
    """On a line, the bound equals the variance, and the clipped rows lie at two points."""
    for seed in range(8):
        block_ND = torch.randn(10, 1, generator=torch.Generator().manual_seed(seed))
        block_ND[:2] *= 1e6
        result_D = aggregate(block_ND, [kind, "smea"], f=4)
        assert float(result_D.abs()) <= float(block_ND[2:].abs().max())


def test_result_equals_the_common_row_if_all_rows_are_identical() -> None:
    assert aggregate(torch.ones(5, 3), "smea", f=1).tolist() == [1, 1, 1]


def test_search_stops_at_a_subset_with_zero_variance(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = list[int]()

    def variances(squared_MM: torch.Tensor, at_BS: torch.Tensor) -> torch.Tensor:
        measured.append(len(at_BS))
        return torch.zeros(len(at_BS), dtype=torch.float64)

    monkeypatch.setattr(smea, "_variances", variances)
    kept, variance = smea.least_variance_subset(torch.zeros(20, 20, dtype=torch.float64), 14)
    assert (kept, variance) == (list(range(14)), 0.0)
    assert sum(measured) <= smea.BATCH + 1, "38760 subsets, all of them alike"


@pytest.mark.slow
def test_ties_go_to_the_subset_with_the_lowest_ids() -> None:
    """Of the rows a, b, b, a, all four subsets of three rows have the same covariance."""
    for seed in range(100):
        pair_2D = torch.randn(2, 1 + seed % 5, generator=torch.Generator().manual_seed(seed))
        block_ND = pair_2D[[0, 1, 1, 0]]
        assert torch.equal(aggregate(block_ND, "smea", f=1), aggregate(block_ND[:3], "smea", f=0))


def test_ties_between_batches_go_to_the_first_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smea, "BATCH", 1)
    for seed in range(100):
        points_MD = torch.randn(2, 3, generator=torch.Generator().manual_seed(seed)).double()
        points_MD = points_MD[[0, 1, 1, 0]]
        squared_MM = torch.cdist(points_MD, points_MD).square()
        assert smea.least_variance_subset(squared_MM, 3)[0] == [0, 1, 2]
