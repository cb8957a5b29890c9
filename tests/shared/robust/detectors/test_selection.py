"""A rule's selection as a detector."""

import pytest
import torch

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.robust import Context, Rows, State
from rampart_fl.shared.robust.detectors import detectors
from rampart_fl.shared.robust.detectors.selection import Selection

BLOCK_ND = torch.tensor([[0.0], [1.0], [2.1], [3.3], [100.0]])


def test_rows_that_multi_krum_does_not_select_are_rejected() -> None:
    detector = detectors.parse("selection", f=1)
    verdicts, _ = detector.apply(Rows.of(BLOCK_ND), State(), Context())
    assert [verdict.decision for verdict in verdicts] == ["accepted"] * 4 + ["rejected"]
    assert [verdict.score for verdict in verdicts] == pytest.approx([1.25] * 4 + [0])
    assert "multi_krum" in verdicts[4].reason


def test_rows_weighted_below_the_threshold_get_the_configured_decision() -> None:
    detector = Selection(rule="weighted_mean", threshold=0.5, decision="evicted")
    rows = Rows.of(BLOCK_ND, weights=[1, 1, 1, 1, 0.1])
    verdicts, _ = detector.apply(rows, State(), Context())
    assert [verdict.decision for verdict in verdicts] == ["accepted"] * 4 + ["evicted"]


def test_selection_keeps_the_state_of_its_rule() -> None:
    detector = Selection(rule="foolsgold")
    rows = Rows.of(torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), ids=["a", "b", "c"])
    verdicts, state = detector.apply(rows, detector.init(2), Context())
    assert [verdict.decision for verdict in verdicts] == ["rejected", "rejected", "accepted"]
    assert state.ids["history"] == ("a", "b", "c")


def test_rule_without_weights_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="yields weights, not 'median'"):
        Selection(rule="median").apply(Rows.of(BLOCK_ND), State(), Context())


def test_colluders_that_the_rule_selects_get_honest_clients_rejected() -> None:
    """Equal rows within the spread of honest rows have the lowest Krum scores of all rows."""
    honest_ND = torch.randn(7, 8, generator=torch.Generator().manual_seed(1))
    colluders_FD = honest_ND.mean(dim=0).repeat(4, 1)
    detector = Selection(f=4, decision="evicted")
    rows = Rows.of(torch.cat([honest_ND, colluders_FD]))
    verdicts, _ = detector.apply(rows, State(), Context())
    assert sum(verdict.decision == "evicted" for verdict in verdicts[:7]) == 4
    assert all(verdict.decision == "accepted" for verdict in verdicts[7:])
