"""FedCAP's bound on the norm: strict, absolute, and final."""

import pytest
import torch

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.robust import Context, Rows, State
from rampart_fl.shared.robust.detectors import detectors
from rampart_fl.shared.robust.detectors.norm_bound import NormBound


def decisions(block_ND: torch.Tensor, threshold: float = 10.0) -> dict[str, str]:
    rows = Rows.of(block_ND, ids=[f"c{i}" for i in range(len(block_ND))])
    verdicts, _ = NormBound(threshold=threshold).apply(rows, State(), Context())
    return {verdict.client: verdict.decision for verdict in verdicts}


def test_only_norms_strictly_above_the_bound_are_evicted() -> None:
    block_ND = torch.tensor([[6.0, 8.0], [6.0, 8.01], [0.0, 0.0], [-1e30, 0.0]])
    assert list(decisions(block_ND).values()) == ["accepted", "evicted", "accepted", "evicted"]


def test_bound_applies_to_the_norm_of_the_whole_vector() -> None:
    assert decisions(torch.full((1, 101), 1.0)) == {"c0": "evicted"}
    assert decisions(torch.full((1, 100), 1.0)) == {"c0": "accepted"}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_non_finite_updates_are_evicted(value: float) -> None:
    assert decisions(torch.tensor([[0.0], [value]])) == {"c0": "accepted", "c1": "evicted"}


def test_verdict_states_the_norm_and_the_bound() -> None:
    rows = Rows.of(torch.tensor([[3.0, 4.0]]), ids=["x"])
    ((verdict,), _) = NormBound(threshold=4.0).apply(rows, State(), Context())
    assert (verdict.score, verdict.threshold) == (5, 4)
    assert verdict.reason == "norm of the calibrated update 5 exceeds 4"


def test_norms_are_summed_in_float64() -> None:
    # In float32 the squares of 1e-4 vanish beside that of 10.
    block_ND = torch.full((1, 100_001), 1e-4)
    block_ND[0, 0] = 10.0
    assert decisions(block_ND, threshold=10.00004) == {"c0": "evicted"}


def test_zero_threshold_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="threshold"):
        detectors.build("norm_bound", threshold=0)
