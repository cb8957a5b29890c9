"""Every stage declares the rows and vectors that it keeps between rounds.

Legend: D coordinates.
"""

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.robust import Context, Rows
from rampart_fl.shared.robust.base import Detector, PreAggregator, Rule
from rampart_fl.shared.robust.customizers import Customizer
from tests.contracts.test_streaming import IDS, STAGES, D, N

LAYOUT = (("body.weight", 0, 20), ("head.weight", 20, 36), ("head.bias", 36, D))


@pytest.mark.parametrize("name", STAGES)
def test_stage_declares_what_it_keeps_between_rounds(name: str, updates_ND: Tensor) -> None:
    stage = STAGES[name]()
    if stage.needs() & {"predict", "public"}:
        pytest.skip("runs the network, so it needs whole rows")
    zeros_D = torch.zeros(D)
    context = Context(
        seed=5,
        reference_D=zeros_D,
        server_update_D=zeros_D + 1,
        aggregate_D=zeros_D,
        layout=LAYOUT,
    )
    gaps = {"loss_gap": torch.ones(N, dtype=torch.float64)}
    rows = Rows.of(updates_ND, ids=IDS, metadata=gaps)
    state = stage.init(D)
    match stage:
        case Rule() | PreAggregator():
            state = stage.apply(rows, state, context)[1]
        case Detector():
            state = stage.apply(rows, state, context)[1]
        case Customizer():
            state = stage.apply(rows, rows, state, context)[1]
    wide = {key for key, held in state.tensors.items() if held.ndim and held.shape[-1] == D}
    remembered = {key for key in wide if key in state.ids}
    assert len(remembered) == stage.remembers
    assert all(state.tensors[key].dtype == updates_ND.dtype for key in wide)
    assert wide == state.vectors, "ranks divide these tensors"
    assert len(wide - remembered) == stage.kept_vectors
