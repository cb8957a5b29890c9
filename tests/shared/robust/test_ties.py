"""Ties: rounding errors must not decide which of several tied rows a rule uses."""

import pytest
import torch

from rampart_fl.shared.robust import Rows, aggregate, ties
from rampart_fl.shared.robust.linalg import native


@pytest.mark.parametrize(
    ("stages", "seed"),
    [
        (["nnm", "krum"], 61),
        (["nnm", "krum"], 106),
        (["nnm", "nnm", "krum"], 12),
        (["nnm", "nnm", "multi_krum"], 0),
        (["nnm", "minimum_diameter_averaging"], 46),
        (["nnm", "nnm", "smea"], 0),
    ],
)
def test_kernels_agree_on_rows_that_mixing_tied(
    stages: list[str], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if native.backend() != "native":
        pytest.skip(f"there are no compiled kernels to compare: {native.backend()}")
    block_ND = torch.randn(7, 300, generator=torch.Generator().manual_seed(seed))
    compiled_D = aggregate(block_ND, stages, f=2)
    monkeypatch.setenv("RAMPART_KERNELS", "torch")
    torch.testing.assert_close(aggregate(block_ND, stages, f=2), compiled_D)


@pytest.mark.parametrize("size", [1e-9, 1.0, 1e9])
def test_tolerance_follows_the_distances_between_honest_rows(size: float) -> None:
    rows = Rows.of(torch.tensor([[0.0], [1.0], [2.0], [3.0], [1e20]], dtype=torch.float64) * size)
    near_MM = (rows.block_ND - rows.block_ND.T).square()
    assert ties.tolerance(near_MM, 1) == pytest.approx(5 * ties.TIE * 4 * size**2)
    assert ties.tolerance(near_MM.fill_(torch.inf), 1) == 0


def test_tolerance_is_positive_if_half_of_the_rows_are_equal() -> None:
    points_M = torch.tensor([0.0, 2.0, 2.0, 0.0], dtype=torch.float64)
    assert ties.tolerance((points_M[:, None] - points_M).square(), 1) == 4 * ties.TIE * 4


def test_ranking_orders_tied_scores_by_position() -> None:
    inf = torch.inf
    scores_XM = torch.tensor([[2.0, 1.0 + 4e-9, inf, 1.0, inf], [-inf, 3.0, -inf, 2.0, 1.0]])
    assert ties.ranking(scores_XM.double(), 1e-8).tolist() == [[1, 3, 0, 2, 4], [0, 2, 4, 3, 1]]
    assert ties.ranking(scores_XM[0].double(), 0.0).tolist() == [1, 3, 0, 2, 4]


def test_ranking_without_ties_is_a_stable_sort() -> None:
    scores_XM = torch.randint(9, (20, 30), generator=torch.Generator().manual_seed(0)).double()
    assert torch.equal(ties.ranking(scores_XM, 0.0), scores_XM.argsort(dim=1, stable=True))
