"""Performance-aware reweighting: the worked example, limiting cases, and hostile claims."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.robust import Context, Rows, State, aggregate
from rampart_fl.shared.robust.rules import rules

MEAN = {"name": "performance_aware", "rule": "weighted_mean"}


def run(block_ND: Tensor, gaps: list[float], f: int = 0, **more: object) -> Tensor:
    return aggregate(block_ND, {**MEAN, **more}, f=f, metadata={"loss_gap": gaps})


def test_performance_aware_reproduces_the_worked_example() -> None:
    result_D = run(torch.eye(2, dtype=torch.float64), [2, 0])
    torch.testing.assert_close(
        result_D, torch.tensor([0.663625, 0.244134], dtype=torch.float64), rtol=0, atol=1e-6
    )
    assert float(result_D.norm()) == pytest.approx(0.707107, abs=1e-6)


@given(st.integers(0, 10_000), st.lists(st.floats(-5, 5), min_size=6, max_size=6))
def test_result_follows_the_formula_and_keeps_the_inner_rule_s_length(
    seed: int, gaps: list[float]
) -> None:
    draws = torch.Generator().manual_seed(seed)
    block_ND = torch.randn(6, 4, generator=draws, dtype=torch.float64)
    q_N = torch.rand(6, generator=draws, dtype=torch.float64) + 0.01
    q_N /= q_N.sum()
    z_N = q_N * torch.tensor(gaps, dtype=torch.float64) / 0.3
    h_D = (q_N * z_N.softmax(dim=0)) @ block_ND
    robust_D = q_N @ block_ND
    rows = Rows.of(block_ND, weights=q_N, metadata={"loss_gap": gaps})
    rule = rules.build("performance_aware", rule="weighted_mean", mu=0.3)
    result_D, _, report = rule.apply(rows, State(), Context())
    torch.testing.assert_close(result_D, robust_D.norm() * h_D / h_D.norm())
    torch.testing.assert_close(rows.combine(report.per_row["weight"]), result_D)
    assert report.stage == "performance_aware"


def test_equal_gaps_or_a_large_mu_reproduce_the_inner_rule() -> None:
    block_ND = torch.randn(5, 7, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(run(block_ND, [3.0] * 5), block_ND.mean(dim=0))
    torch.testing.assert_close(run(block_ND, [3.0, 0, 1, 2, 9], mu=1e12), block_ND.mean(dim=0))


def test_cancelling_or_zero_rows_give_zero() -> None:
    block_ND = torch.tensor([[1.0], [-1.0]])
    assert run(block_ND, [4.0, 4.0]).tolist() == [0.0]
    assert not run(torch.zeros(3, 2), [1, 2, 3]).any()


def test_claims_of_rows_excluded_by_the_inner_rule_have_no_effect() -> None:
    block_ND = torch.tensor([[1.0, 0.0], [1.0, 0.1], [1.0, 0.2], [0.9, 0.1], [-500.0, 0.0]])
    honest = run(block_ND, [1, 1, 1, 1, 0], f=1, rule="filtering")
    lying = run(block_ND, [1, 1, 1, 1, 1e300], f=1, rule="filtering")
    torch.testing.assert_close(honest, lying)


def test_unbounded_claim_dominates_the_direction_unless_max_gap_is_set() -> None:
    block_ND = torch.eye(4)
    taken = run(block_ND, [1e9, 0, 0, 0])
    torch.testing.assert_close(taken, torch.tensor([0.5, 0, 0, 0]))
    bounded = run(block_ND, [1e9, 0, 0, 0], max_gap=2.0)
    torch.testing.assert_close(bounded, run(block_ND, [2, 0, 0, 0]))
    torch.testing.assert_close(
        run(block_ND, [-7, 0, 0, 0], max_gap=2.0), run(block_ND, [0, 0, 0, 0])
    )
    assert float(taken.norm()) == pytest.approx(float(bounded.norm())) == pytest.approx(0.5)


def test_report_contains_the_gaps_after_clamping() -> None:
    rule = rules.build("performance_aware", rule="weighted_mean", max_gap=3.0)
    rows = Rows.of(torch.eye(3), metadata={"loss_gap": [1e9, float("nan"), 0.5]})
    _, _, report = rule.apply(rows, rule.init(3), Context())
    assert report.per_row["gap"].tolist() == [3.0, 0.0, 0.5]
    assert report.values["largest_gap"] == 3


@pytest.mark.parametrize("claim", [float("nan"), float("inf"), -float("inf")])
def test_non_finite_claims_count_as_zero(claim: float) -> None:
    block_ND = torch.eye(3)
    torch.testing.assert_close(run(block_ND, [claim, 1, 0]), run(block_ND, [0, 1, 0]))


def test_claims_near_the_float64_limit_do_not_overflow() -> None:
    result_D = run(torch.eye(2), [1.7e308, 1.7e308], mu=1e-9)
    torch.testing.assert_close(result_D, torch.full((2,), 0.5))


def test_no_update_if_the_inner_rule_trusts_no_row() -> None:
    stage = {"name": "performance_aware", "rule": "fltrust"}
    context = Context(server_update_D=torch.ones(2))
    result_D = aggregate(
        -torch.ones(3, 2), stage, metadata={"loss_gap": [1, 2, 3]}, context=context
    )
    assert not result_D.any()


def test_inner_rule_gets_f_and_keeps_its_state() -> None:
    rule = rules.build("performance_aware", f=2)
    assert rule.rule.name == "no_regret" and rule.rule.f == 2
    stateful = rules.build("performance_aware", rule={"name": "foolsgold"})
    rows = Rows.of(torch.eye(2), metadata={"loss_gap": [0, 0]})
    assert "history" in stateful.apply(rows, stateful.init(2), Context())[1].tensors


def test_missing_loss_gaps_and_unsuitable_inner_rules_are_rejected() -> None:
    with pytest.raises(ConfigurationError, match="loss_gap"):
        aggregate(torch.eye(2), MEAN)
    with pytest.raises(ConfigurationError, match="one weight per row, but 'median'"):
        run(torch.eye(2), [0, 0], rule="median")
    with pytest.raises(ConfigurationError, match="unknown rule"):
        rules.build("performance_aware", rule="medium")


@pytest.mark.parametrize("size", [1e160, 1e300])
def test_squared_norms_may_exceed_the_range_of_float64(size: float) -> None:
    row_ND = torch.tensor([[3.0, -4.0, 0.0]], dtype=torch.float64) * size
    torch.testing.assert_close(run(row_ND, [1.0]), row_ND[0])
    pair_ND = torch.cat([row_ND, row_ND * 1e-300])
    expected_D = run(pair_ND / size, [0.0, 5.0]) * size
    torch.testing.assert_close(run(pair_ND, [0.0, 5.0]), expected_D)


def test_rule_whose_result_contains_earlier_results_is_refused() -> None:
    """Equal weights and gaps must give the rule's own result, but the rows do not determine it."""
    with pytest.raises(ConfigurationError, match="'centered_clipping' also contains its earlier"):
        rules.build("performance_aware", rule="centered_clipping")
