"""The mean of clipped rows."""

import pytest
import torch

from rampart_fl.shared.robust import aggregate


def test_only_rows_longer_than_the_threshold_are_clipped() -> None:
    block_ND = torch.tensor([[30.0, 40.0], [0.3, 0.4], [0.0, 0.0]])
    result = aggregate(block_ND, {"name": "norm_clipping", "threshold": 5.0})
    assert result.tolist() == pytest.approx([1.1, 4.4 / 3])


def test_trusted_weights_apply_and_the_threshold_bounds_the_result() -> None:
    block_ND = torch.tensor([[0.0, 1e30], [1.0, 0.0]])
    stage = {"name": "norm_clipping", "threshold": 2.0}
    assert aggregate(block_ND, stage, weights=[1, 3]).tolist() == pytest.approx([0.75, 0.5])
    assert float(aggregate(block_ND, stage, weights=[1e9, 1]).norm()) <= 2.000001
