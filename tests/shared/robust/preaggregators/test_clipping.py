"""Static clipping, which returns a new view."""

import pytest
import torch

from rampart_fl.shared.robust import Context, Rows, State
from rampart_fl.shared.robust.preaggregators import preaggregators


def test_rows_are_clipped_to_the_threshold_without_modifying_the_input() -> None:
    """Other implementations overwrite the caller's rows."""
    block_ND = torch.tensor([[30.0, 40.0], [0.3, 0.4], [0.0, 0.0], [0.0, 1e30]])
    before_ND = block_ND.clone()
    stage = preaggregators.build("clipping", threshold=5.0)
    rows, _, report = stage.apply(Rows.of(block_ND), State(), Context())
    clipped_ND = torch.cat([chunk for _, _, chunk in rows.chunks()], dim=1)
    expected_ND = torch.tensor([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [0.0, 5.0]])
    torch.testing.assert_close(clipped_ND, expected_ND)
    assert torch.equal(block_ND, before_ND)
    assert report.column("factor")["0"] == pytest.approx(0.1)
