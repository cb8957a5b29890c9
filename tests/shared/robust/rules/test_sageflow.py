"""Sageflow: weights by hand, which rows are filtered, and the result if all rows are."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.robust import Context, Report, Rows, aggregate
from rampart_fl.shared.robust.context import PublicData
from rampart_fl.shared.robust.engine import Plan, run_round
from rampart_fl.shared.robust.rules import rules

PUBLIC = PublicData(torch.tensor([[1.0], [-2.0]]), torch.tensor([0, 1]))


def predict(models_KD: Tensor, x_KB: Tensor) -> Tensor:
    """Two classes with the logits (w x, 0)."""
    z_KB = models_KD[:, :1] * x_KB[..., 0].to(models_KD.dtype)
    return torch.stack([z_KB, torch.zeros_like(z_KB)], dim=2)


CONTEXT = Context(reference_D=torch.tensor([1.0]), predict=predict, public=PUBLIC)


def run(block_ND: Tensor, weights: Any = None, **parameters: Any) -> tuple[Tensor, Report]:
    rule = rules.build("sageflow", **parameters)
    rows = Rows.of(block_ND, weights=weights)
    result_D, _, report = rule.apply(rows, rule.init(rows.dim), CONTEXT)
    return result_D, report


def figures(w: float) -> tuple[float, float]:
    """Entropy and loss of the model with slope w."""
    entropy, loss = 0.0, 0.0
    for x, right in ((1.0, 1.0), (-2.0, -1.0)):
        p = 1 / (1 + math.exp(-w * x))
        entropy -= (p * math.log(p) + (1 - p) * math.log(1 - p)) / 2
        loss += math.log(1 + math.exp(-right * w * x)) / 2
    return entropy, loss


@pytest.mark.parametrize("delta", [0.0, 1.0, 5.0])
def test_weights_follow_the_definition_from_entropy_and_loss(delta: float) -> None:
    rows, counts = [1.0, 2.5, -4.0, -0.9], [10.0, 30.0, 5.0, 5.0]
    block_ND = torch.tensor(rows, dtype=torch.float64)[:, None]
    result_D, report = run(block_ND, counts, delta=delta, entropy=0.5)
    worth = []
    for row, count in zip(rows, counts, strict=True):
        entropy, loss = figures(1 + row)
        worth.append(count / 50 * loss**-delta if entropy < 0.5 else 0.0)
    assert worth[3] == 0 and min(worth[:3]) > 0
    expected = sum(q * row for q, row in zip(worth, rows, strict=True)) / sum(worth)
    assert float(result_D) == pytest.approx(expected, rel=1e-9)
    entropy, loss = figures(2.0)
    assert float(report.per_row["entropy"][0]) == pytest.approx(entropy)
    assert float(report.per_row["loss"][0]) == pytest.approx(loss)
    assert report.values == {"filtered": 1}
    assert float(report.per_row["weight"].sum()) == pytest.approx(1)


def test_no_update_if_all_rows_are_filtered() -> None:
    result_D, report = run(torch.tensor([[1.0], [2.0]]), entropy=1e-9)
    assert not result_D.any() and not report.per_row["weight"].any()
    assert report.values == {"filtered": 2}


def test_no_update_if_all_losses_are_huge() -> None:
    # The losses are 1.5e3 or more, so the weight of each row before normalization is below 0.001.
    assert not run(torch.tensor([[-1001.0], [-2001.0]]))[0].any()


def test_loss_floor_keeps_one_perfect_model_from_taking_all_weight() -> None:
    block_ND = torch.tensor([[60.0], [80.0]])
    _, report = run(block_ND)
    torch.testing.assert_close(report.per_row["weight"], torch.full((2,), 0.5).double())


def test_model_with_non_finite_predictions_gets_no_weight() -> None:
    result_D, report = run(torch.tensor([[3e38], [3.0]]), entropy=0.9)
    assert report.per_row["weight"].tolist() == [0.0, 1.0]
    assert float(result_D) == 3


def test_sageflow_can_be_the_rule_of_a_selection_detector() -> None:
    detector = {"name": "selection", "rule": {"name": "sageflow", "entropy": 0.5}}
    plan = Plan.of("weighted_mean", [detector])
    assert set(plan.needs()) == {"predict", "public", "labels"}
    rows = Rows.of(torch.tensor([[2.0], [2.5], [-1.0]]), ids=["a", "b", "c"])
    outcome = run_round(plan, rows, plan.init(1), CONTEXT)
    assert {v.client: v.decision for v in outcome.verdicts} == {
        "a": "accepted",
        "b": "accepted",
        "c": "rejected",
    }
    assert float(outcome.global_D) == pytest.approx(1 + 2.25)


def test_defaults_equal_the_paper_s_settings() -> None:
    rule = rules.build("sageflow")
    assert (rule.entropy, rule.delta) == (1.0, 1.0)
    same_D = aggregate(torch.tensor([[2.0], [2.0]]), "sageflow", context=CONTEXT)
    assert float(same_D) == 2
