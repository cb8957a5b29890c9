"""The mean of clipped rows."""

import pytest
import torch

from rampart_fl.shared.robust import aggregate


def test_long_rows_are_cut_and_short_ones_kept() -> None:
    block_ND = torch.tensor([[30.0, 40.0], [0.3, 0.4], [0.0, 0.0]])
    result = aggregate(block_ND, {"name": "norm_clipping", "threshold": 5.0})
    assert result.tolist() == pytest.approx([1.1, 4.4 / 3])


def test_trusted_weights_count_and_the_threshold_bounds_any_of_them() -> None:
    block_ND = torch.tensor([[0.0, 1e30], [1.0, 0.0]])
    stage = {"name": "norm_clipping", "threshold": 2.0}
    assert aggregate(block_ND, stage, weights=[1, 3]).tolist() == pytest.approx([0.75, 0.5])
    assert float(aggregate(block_ND, stage, weights=[1e9, 1]).norm()) <= 2.000001
