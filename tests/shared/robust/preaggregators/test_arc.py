"""ARC: how many rows are clipped, and to which length."""

import pytest
import torch

from rampart_fl.shared.robust import Context, Rows, State
from rampart_fl.shared.robust.preaggregators import preaggregators


@pytest.mark.parametrize(
    ("n", "f", "cut"), [(4, 1, 1), (10, 2, 3), (20, 6, 8), (9, 4, 4), (5, 0, 0)]
)
def test_longest_rows_are_clipped_to_the_next_longest_length(n: int, f: int, cut: int) -> None:
    lengths = torch.arange(1.0, n + 1)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(n))
    block_ND = torch.zeros(n, 3)
    block_ND[:, 1] = lengths[order]
    rows, _, _ = preaggregators.build("arc", f=f).apply(Rows.of(block_ND), State(), Context())
    result = torch.cat([chunk for _, _, chunk in rows.chunks()], dim=1).norm(dim=1)
    torch.testing.assert_close(result, lengths[order].clamp(max=n - cut))
