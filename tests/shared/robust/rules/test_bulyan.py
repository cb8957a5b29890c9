"""Bulyan, checked step by step against its definition."""

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.errors import PreconditionError
from rampart_fl.shared.robust import Context, Rows, State, aggregate
from rampart_fl.shared.robust.rules import rules

LINE = torch.tensor([[0.0], [1.0], [2.1], [3.3], [4.6], [6.0], [100.0]])


def by_hand(block_ND: Tensor, f: int) -> list[float]:
    rows = block_ND.double()
    left, taken = list(range(len(rows))), []
    for _ in range(len(rows) - 2 * f):
        totals = []
        for i in left:
            squares = sorted(float((rows[i] - rows[j]).square().sum()) for j in left if j != i)
            totals.append(sum(squares[: max(1, len(left) - f - 2)]))
        taken.append(left.pop(totals.index(min(totals))))
    out = []
    for column in rows[taken].T.tolist():
        middle = float(torch.tensor(column, dtype=torch.float64).quantile(0.5))
        nearest = sorted(column, key=lambda x: (abs(x - middle), x))[: len(rows) - 4 * f]
        out.append(sum(nearest) / len(nearest))
    return out


def test_bulyan_reproduces_the_worked_example() -> None:
    assert aggregate(LINE, "bulyan", f=1).item() == pytest.approx(2.1333333)
    _, _, report = rules.build("bulyan", f=1).apply(Rows.of(LINE), State(), Context())
    assert list(report.column("pick").values()) == [5, 3, 1, 2, 4, 0, 0]


@pytest.mark.parametrize(("n", "f"), [(7, 1), (11, 2), (15, 3), (16, 3), (9, 0), (23, 4)])
def test_scores_are_recomputed_after_every_pick(n: int, f: int) -> None:
    """Picking the rows with the n - 2f lowest initial scores selects other rows in most draws."""
    for seed in range(5):
        draws = torch.Generator().manual_seed(100 * n + seed)
        block_ND = torch.randn(n, 6, generator=draws, dtype=torch.float64)
        result = aggregate(block_ND, "bulyan", f=f).tolist()
        assert result == pytest.approx(by_hand(block_ND, f), rel=1e-6)


def test_result_does_not_depend_on_row_order_if_the_last_pick_is_tied() -> None:
    """With 2f + 1 = 3 rows left, a score would have no terms if one neighbour did not count."""
    ids = ["g", "f", "e", "d", "c", "b", "a"]
    result = aggregate(LINE, "bulyan", f=1, ids=ids)
    assert torch.equal(result, aggregate(LINE.flip(0), "bulyan", f=1, ids=ids[::-1]))


def test_result_averages_values_rather_than_distances_to_the_median() -> None:
    block_ND = LINE + 50
    assert aggregate(block_ND, "bulyan", f=1).item() == pytest.approx(52.1333, rel=1e-5)


def test_too_few_rows_are_rejected() -> None:
    with pytest.raises(PreconditionError, match="n >= 4f \\+ 3 = 7 rows: n=6, f=1"):
        aggregate(LINE[:6], "bulyan", f=1)


@pytest.mark.parametrize("ratio", [1e5, 1e6, 1e8, 1e12])
def test_huge_row_does_not_make_all_other_scores_equal(ratio: float) -> None:
    """A tolerance relative to the largest distance would turn Bulyan into a choice by id."""
    draws = torch.Generator().manual_seed(3)
    honest_ND = torch.randn(9, 200, generator=draws)
    apart_D = honest_ND.mean(dim=0) - 8  # A colluder with a low id.
    huge_D = ratio * torch.randn(200, generator=draws)
    block_ND = torch.cat([apart_D[None], huge_D[None], honest_ND])
    _, _, report = rules.build("bulyan", f=2).apply(Rows.of(block_ND), State(), Context())
    assert list(report.column("pick").values())[:2] == [0, 0]
