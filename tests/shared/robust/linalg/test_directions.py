"""Cosines, including those of almost parallel rows."""

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.robust import Rows, linalg

pytestmark = pytest.mark.usefixtures("kernels")


def exact(block_ND: Tensor) -> Tensor:
    units_ND = block_ND.double() / block_ND.double().norm(dim=1, keepdim=True)
    return units_ND @ units_ND.T


def test_cosines_equal_products_of_unit_vectors() -> None:
    block_ND = torch.randn(7, 500, generator=torch.Generator().manual_seed(0))
    block_ND[3] *= 1e20
    block_ND[5] *= 1e-20
    torch.testing.assert_close(
        linalg.cosines(Rows.of(block_ND)), exact(block_ND), rtol=0, atol=1e-6
    )
    vector_D = block_ND[0] + block_ND[1]
    expected_M = exact(torch.cat([block_ND, vector_D[None]]))[-1, :-1]
    torch.testing.assert_close(
        linalg.cosines_to(Rows.of(block_ND), vector_D), expected_M, rtol=0, atol=1e-6
    )


def test_cosines_of_almost_parallel_rows_keep_their_precision() -> None:
    draws = torch.Generator().manual_seed(1)
    base_D = torch.randn(5000, generator=draws)
    block_ND = base_D + 1e-3 * torch.randn(9, 5000, generator=draws)
    block_ND *= 1 + torch.arange(9)[:, None] / 1e4
    off = ~torch.eye(9, dtype=torch.bool)
    result = (1 - linalg.cosines(Rows.of(block_ND)))[off]
    torch.testing.assert_close(result, (1 - exact(block_ND))[off], rtol=1e-3, atol=0)


def test_cosines_are_accurate_for_rows_of_very_different_lengths() -> None:
    draws = torch.Generator().manual_seed(2)
    base_D = torch.randn(3000, generator=draws)
    block_ND = (base_D + 0.05 * torch.randn(8, 3000, generator=draws)) * 10.0 ** torch.arange(
        8
    ).view(-1, 1)
    torch.testing.assert_close(
        linalg.cosines(Rows.of(block_ND)), exact(block_ND), rtol=0, atol=1e-6
    )


def test_cosines_with_zero_rows_are_minus_one() -> None:
    block_ND = torch.tensor([[1.0, 0.0], [0.0, 0.0], [2.0, 0.0]])
    assert linalg.cosines(Rows.of(block_ND)).tolist() == [[1, -1, 1], [-1, -1, -1], [1, -1, 1]]
    assert linalg.cosines_to(Rows.of(block_ND), torch.zeros(2)).tolist() == [-1, -1, -1]
