"""Nearest-neighbour mixing, checked against plain loops."""

import pytest
import torch

from rampart_fl.shared.robust import Context, Rows, State, aggregate
from rampart_fl.shared.robust.preaggregators import preaggregators


def mixed(block_ND: torch.Tensor, f: int) -> torch.Tensor:
    rows, _, _ = preaggregators.build("nnm", f=f).apply(Rows.of(block_ND), State(), Context())
    return torch.cat([chunk for _, _, chunk in rows.chunks()], dim=1)


def test_nnm_reproduces_the_worked_example() -> None:
    result = mixed(torch.tensor([[0.0], [1.0], [2.0], [100.0]]), 1)[:, 0].tolist()
    assert result == pytest.approx([1, 1, 1, 103 / 3])


@pytest.mark.parametrize(("n", "f"), [(5, 1), (9, 4), (14, 3)])
def test_every_row_becomes_the_mean_of_its_nearest_rows(n: int, f: int) -> None:
    block_ND = torch.randn(n, 7, generator=torch.Generator().manual_seed(n)).double()
    expected = []
    for row_D in block_ND:
        order = sorted(range(n), key=lambda j: float((block_ND[j] - row_D).norm()))
        expected.append(block_ND[order[: n - f]].mean(dim=0))
    torch.testing.assert_close(mixed(block_ND, f), torch.stack(expected))


def test_every_row_becomes_the_overall_mean_if_f_is_zero() -> None:
    block_ND = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(mixed(block_ND, 0), block_ND.mean(dim=0).expand(6, 3))


def test_row_is_its_own_nearest_neighbour_even_among_clones() -> None:
    block_ND = torch.tensor([[1.0], [1.0], [1.0], [5.0], [6.0]])
    rows, _, _ = preaggregators.build("nnm", f=2).apply(Rows.of(block_ND), State(), Context())
    assert rows.mix_MK is not None and bool((rows.mix_MK.diagonal() == 1 / 3).all())


def test_nnm_can_be_chained_between_bucketing_and_a_rule() -> None:
    block_ND = torch.randn(12, 5, generator=torch.Generator().manual_seed(0))
    block_ND[:2] = 1e30
    result_D = aggregate(block_ND, ["bucketing", "nnm", {"name": "krum", "f": 1}], f=2)
    assert float(result_D.norm()) < 5
