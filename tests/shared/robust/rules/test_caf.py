"""CAF, checked against dense covariances."""

import numpy as np
import pytest
import torch
from torch import Tensor

from rampart_fl.shared.robust import aggregate


def by_hand(block_ND: Tensor, f: int) -> np.ndarray:
    rows = block_ND.double().numpy()
    counts, best, least = np.ones(len(rows)), rows.mean(axis=0), np.inf
    while counts.sum() > len(rows) - 2 * f:
        shares = counts / counts.sum()
        mean = shares @ rows
        offsets = rows - mean
        values, vectors = np.linalg.eigh((offsets * shares[:, None]).T @ offsets)
        if values[-1] < least:
            best, least = mean, values[-1]
        along = np.where(counts > 0, (offsets @ vectors[:, -1]) ** 2, 0)
        counts = counts * (1 - along / along.max())
    return best


@pytest.mark.parametrize(("n", "f", "d"), [(5, 1, 3), (9, 2, 6), (12, 5, 4), (20, 4, 30)])
def test_caf_returns_the_iterate_with_the_least_top_variance(n: int, f: int, d: int) -> None:
    block_ND = torch.randn(n, d, generator=torch.Generator().manual_seed(n)).double()
    block_ND[:f] += 4
    result = aggregate(block_ND, "caf", f=f).numpy()
    np.testing.assert_allclose(result, by_hand(block_ND, f), rtol=1e-6, atol=1e-9)


def test_caf_equals_the_mean_if_f_is_zero() -> None:
    """Other implementations then never enter the loop and return nothing."""
    block_ND = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(aggregate(block_ND, "caf"), block_ND.mean(dim=0))


def test_removed_rows_do_not_set_the_scale_of_later_steps() -> None:
    """With the maximum over all rows, a row at 1e30 would shrink all further steps to nothing."""
    block_ND = torch.randn(9, 4, generator=torch.Generator().manual_seed(0))
    block_ND[:2] = torch.tensor([[1e30], [1e15]])
    assert float(aggregate(block_ND, "caf", f=2).norm()) < 3


def test_identical_rows_cause_no_division_by_zero() -> None:
    assert aggregate(torch.ones(5, 3), "caf", f=2).tolist() == [1, 1, 1]


def test_repeated_calls_are_bit_identical() -> None:
    """No random start: other implementations use one power iteration from a random vector."""
    block_ND = torch.randn(9, 50, generator=torch.Generator().manual_seed(0))
    assert torch.equal(aggregate(block_ND, "caf", f=3), aggregate(block_ND, "caf", f=3))
