"""Krum, checked against plain loops, and how public implementations differ."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from rampart_fl.shared.errors import PreconditionError
from rampart_fl.shared.robust import Context, Rows, State, aggregate
from rampart_fl.shared.robust.rules import rules
from rampart_fl.shared.robust.rules.krum import scores

LINE = torch.tensor([[0.0], [1.0], [2.1], [3.3], [100.0]])


def by_hand(block_ND: Tensor, f: int, neighbours: int | None = None) -> list[float]:
    rows = block_ND.double().tolist()
    count = len(rows) - f - 2 if neighbours is None else neighbours
    out = []
    for i, row in enumerate(rows):
        others = (other for j, other in enumerate(rows) if j != i)
        squares = [sum((a - b) ** 2 for a, b in zip(row, o, strict=True)) for o in others]
        out.append(sum(sorted(squares)[:count]))
    return out


def test_krum_reproduces_worked_scores() -> None:
    _, _, report = rules.build("krum", f=1).apply(Rows.of(LINE), State(), Context())
    expected = [5.41, 2.21, 2.65, 6.73, 18935.3]
    assert list(report.column("score").values()) == pytest.approx(expected, rel=1e-4)
    assert report.column("weight") == {"0": 0, "1": 1, "2": 0, "3": 0, "4": 0}
    assert aggregate(LINE, "krum", f=1).item() == 1


@pytest.mark.parametrize(("n", "f"), [(3, 0), (7, 2), (12, 3), (31, 14), (40, 9)])
def test_scores_are_sums_over_the_nearest_others(n: int, f: int) -> None:
    block_ND = torch.randn(n, 23, generator=torch.Generator().manual_seed(n))
    _, _, report = rules.build("krum", f=f).apply(Rows.of(block_ND), State(), Context())
    result = report.per_row["score"].tolist()
    assert result == pytest.approx(by_hand(block_ND, f), rel=1e-5)


@given(st.integers(0, 10_000))
@settings(deadline=None, max_examples=30)
def test_pick_minimizes_the_sum_of_n_minus_f_minus_2_squared_distances(seed: int) -> None:
    """Another number of neighbours, or unsquared distances, picks another row in one of 8 draws."""
    block_ND = torch.randn(10, 4, generator=torch.Generator().manual_seed(seed))
    result = aggregate(block_ND, "krum", f=2)
    expected = min(range(10), key=by_hand(block_ND, 2).__getitem__)
    assert torch.equal(result, block_ND[expected])


def test_other_published_variants_pick_other_rows() -> None:
    picks = {"ours": 0, "n - f - 1": 0, "itself counted": 0}
    for seed in range(200):
        block_ND = torch.randn(10, 4, generator=torch.Generator().manual_seed(seed))
        ours = by_hand(block_ND, 2)
        for name, count in (("n - f - 1", 7), ("itself counted", 5)):
            theirs = by_hand(block_ND, 2, count)
            picks[name] += theirs.index(min(theirs)) != ours.index(min(ours))
    assert picks["n - f - 1"] > 10 and picks["itself counted"] > 10


def test_nan_row_is_never_picked() -> None:
    block_ND = LINE.clone()
    block_ND[0] = float("nan")
    assert aggregate(block_ND, "krum", f=1).item() in (1.0, pytest.approx(2.1))


def test_ties_go_to_the_lowest_id() -> None:
    block_ND = torch.tensor([[2.0], [1.0], [0.0], [-1.0], [-2.0]])
    assert aggregate(block_ND, "krum", f=0).item() == 1
    square = torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    assert aggregate(square, "krum").tolist() == [1, 1]
    assert aggregate(square, "krum", ids=["d", "c", "b", "a"]).tolist() == [-1, -1]


def test_pools_below_the_minimum_size_are_rejected_if_f_is_positive() -> None:
    assert aggregate(LINE[:1], "krum").item() == 0
    assert aggregate(LINE[:2], "krum").item() == 0
    with pytest.raises(PreconditionError, match="n >= 2f \\+ 3 = 5 rows: n=4, f=1"):
        aggregate(LINE[:4], "krum", f=1)


def test_close_rows_far_from_the_origin_are_distinguished() -> None:
    """Here an uncentred float32 product loses all significant digits and picks another row."""
    draws = torch.Generator().manual_seed(0)
    base_D = torch.randn(100_000, generator=draws)
    noise_ND = torch.randn(50, 100_000, generator=draws) * 1e-3
    block_ND = base_D + noise_ND * (1 + 0.2 * torch.rand(50, 1, generator=draws))
    exact_NN = torch.cdist(
        block_ND.double(), block_ND.double(), compute_mode="donot_use_mm_for_euclid_dist"
    ).square()
    expected = int(scores(exact_NN, 10).argmin())
    assert torch.equal(aggregate(block_ND, "krum", f=10), block_ND[expected])


def test_scores_count_at_least_one_neighbour() -> None:
    squared_MM = torch.tensor([[0.0, 1.0, 4.0], [1.0, 0.0, 1.0], [4.0, 1.0, 0.0]])
    for f, count in ((0, 1), (1, 1)):
        expected = [
            sum(sorted(float(squared_MM[i, j]) for j in range(3) if j != i)[:count])
            for i in range(3)
        ]
        assert scores(squared_MM, f).tolist() == expected
