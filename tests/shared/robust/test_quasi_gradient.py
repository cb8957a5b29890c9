"""What the quasi-gradient rules share: the threshold, the bound on f, and blocks."""

import pytest
import torch

from rampart_fl.shared.errors import PreconditionError
from rampart_fl.shared.robust import Context, Rows, State
from rampart_fl.shared.robust.quasi_gradient import QuasiGradientRule
from rampart_fl.shared.robust.rules import rules


@pytest.fixture(params=["filtering", "no_regret"])
def name(request: pytest.FixtureRequest) -> str:
    """Both rules of the family."""
    return str(request.param)


def test_f_rows_cannot_raise_the_default_threshold(name: str) -> None:
    points_M = torch.tensor([0.0, 1.0, 2.0, 3.0, 1e9], dtype=torch.float64)
    rule = rules.build(name, f=1)
    assert isinstance(rule, QuasiGradientRule)
    distances_MM = (points_M[:, None] - points_M).square()
    assert rule.threshold(distances_MM, 1) == pytest.approx(2 * 1.25)
    built = rules.build(name, f=1, xi=0.5)
    assert isinstance(built, QuasiGradientRule) and built.threshold(distances_MM, 1) == 0.5


def test_dropped_rows_lower_f(name: str) -> None:
    block_ND = torch.tensor([[0.0], [1.0], [float("nan")], [2.0]])
    rule = rules.build(name, f=2)
    result_D, _, report = rule.apply(Rows.of(block_ND), State(), Context())
    assert result_D.isfinite().all() and len(report.ids) == 3
    with pytest.raises(PreconditionError, match="n=2, f=1 after leaving out 1"):
        rule.apply(Rows.of(block_ND[1:]), State(), Context())


def test_blockwise_rules_report_no_single_weight_per_row(name: str) -> None:
    rows = Rows.of(torch.randn(7, 10, generator=torch.Generator().manual_seed(1)))
    _, _, report = rules.build(name, f=1, block_size=3).apply(rows, State(), Context())
    assert "weight" not in report.per_row
