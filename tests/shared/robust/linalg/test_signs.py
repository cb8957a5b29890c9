"""Sign counts, checked against elementwise comparisons."""

import pytest
import torch

from rampart_fl.shared.robust import Rows, linalg

pytestmark = pytest.mark.usefixtures("kernels")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sign_counts_equal_elementwise_comparisons(dtype: torch.dtype) -> None:
    draws = torch.Generator().manual_seed(5)
    block_ND = torch.randint(-1, 2, (6, 70_000), generator=draws).to(dtype)
    columns_R = torch.randperm(70_000, generator=draws)[:40_000].sort().values
    rows = Rows.of(block_ND)
    for which, counted in ((None, block_ND), (columns_R, block_ND[:, columns_R])):
        wanted_M3 = torch.stack([(counted > 0).sum(1), (counted < 0).sum(1), (counted == 0).sum(1)])
        assert torch.equal(linalg.signs(rows, which), wanted_M3.T.double())
        mixed = rows.mixed(torch.eye(6, dtype=torch.float64))
        assert torch.equal(linalg.signs(mixed, which), wanted_M3.T.double())
        assert torch.equal(linalg.signs(rows.keep([4, 1]), which), wanted_M3.T[[4, 1]].double())
    assert linalg.signs(rows.keep(torch.tensor([], dtype=torch.long))).shape == (0, 3)
