"""Evaluation of models on public samples: against a slow loop, and with overflowing rows."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.learning.network.stacked import Stacked
from rampart_fl.shared.learning.network.vector import load
from rampart_fl.shared.robust import Context, Rows, public_evaluation
from rampart_fl.shared.robust.context import PublicData
from rampart_fl.shared.robust.public_evaluation import MODELS, PASS, evaluate_models, information

CLASSES = 3


def network() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, CLASSES))


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def context(samples: int, labelled: bool = True) -> Context:
    stacked = Stacked(network())
    return Context(
        reference_D=normal(stacked.spec.dim, seed=1),
        predict=stacked.logits,
        public=PublicData(
            normal(samples, 1, 2, 2, seed=2), torch.arange(samples) % CLASSES if labelled else None
        ),
    )


def by_hand(ctx: Context, row_D: Tensor) -> tuple[float, float]:
    """Entropy and loss of one model, sample by sample, with torch's own module."""
    assert ctx.reference_D is not None and ctx.public is not None
    assert ctx.public.y_P is not None
    module = load(network(), ctx.reference_D + row_D)
    entropy, loss, samples = 0.0, 0.0, len(ctx.public.x_P)
    for x, y in zip(ctx.public.x_P, ctx.public.y_P.tolist(), strict=True):
        shares = functional.softmax(module(x.unsqueeze(0))[0].detach(), dim=0).tolist()
        entropy -= sum(p * math.log(p) for p in shares) / samples
        loss -= math.log(shares[y]) / samples
    return entropy, loss


@pytest.mark.parametrize(("rows", "samples"), [(2, 7), (MODELS + 3, PASS // MODELS + 5)])
def test_batched_evaluation_equals_a_sample_by_sample_loop(rows: int, samples: int) -> None:
    ctx = context(samples)
    assert ctx.reference_D is not None
    block_ND = normal(rows, len(ctx.reference_D), seed=3)
    evaluation = evaluate_models(Rows.of(block_ND), ctx, "test", labels=True)
    assert evaluation.loss_M is not None
    for k in {0, rows - 1}:
        entropy, loss = by_hand(ctx, block_ND[k])
        assert float(evaluation.entropy_M[k]) == pytest.approx(entropy, abs=1e-5)
        assert float(evaluation.loss_M[k]) == pytest.approx(loss, abs=1e-5)


def test_large_models_are_evaluated_in_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    ctx = context(5)
    assert ctx.reference_D is not None
    rows = Rows.of(normal(5, len(ctx.reference_D), seed=3))
    expected = evaluate_models(rows, ctx, "test").entropy_M
    passes: list[int] = []

    def counted(models_KD: Tensor, x_KB: Tensor) -> Tensor:
        assert ctx.predict is not None
        passes.append(len(models_KD))
        return ctx.predict(models_KD, x_KB)

    monkeypatch.setattr(public_evaluation, "NUMBERS", 2 * len(ctx.reference_D) + 1)
    evaluation = evaluate_models(rows, replace(ctx, predict=counted), "test").entropy_M
    assert passes == [2, 2, 1]
    torch.testing.assert_close(evaluation, expected)


def test_models_with_non_finite_predictions_get_infinite_entropy_and_loss() -> None:
    ctx = context(5)
    assert ctx.reference_D is not None
    block_ND = normal(3, len(ctx.reference_D), seed=3)
    block_ND[1] *= 3e38 / block_ND[1].abs().max()
    evaluation = evaluate_models(Rows.of(block_ND), ctx, "test", labels=True)
    assert evaluation.loss_M is not None
    assert evaluation.entropy_M.isfinite().tolist() == [True, False, True]
    assert evaluation.loss_M.isfinite().tolist() == [True, False, True]


@pytest.mark.parametrize("missing", ["predict", "public", "reference_D"])
def test_missing_public_samples_or_labels_are_rejected(missing: str) -> None:
    rows = Rows.of(torch.zeros(2, 43))
    with pytest.raises(ConfigurationError, match="sdea needs public samples"):
        evaluate_models(rows, replace(context(3), **{missing: None}), "sdea")
    with pytest.raises(ConfigurationError, match="sageflow needs labelled"):
        evaluate_models(rows, context(3, labelled=False), "sageflow", labels=True)


def test_information_of_certain_balanced_predictions_is_minus_log_class_count() -> None:
    assert float(information(1e4 * torch.eye(2))) == pytest.approx(-math.log(2), abs=1e-6)
    assert float(information(1e30 * torch.eye(10))) == pytest.approx(-math.log(10), abs=1e-6)


@pytest.mark.parametrize("logits_C", [[5.0, -3.0, 0.0], [0.0, 0.0, 0.0], [1e4, 0.0, 0.0]])
def test_information_of_identical_predictions_is_zero(logits_C: list[float]) -> None:
    assert float(information(torch.tensor([logits_C] * 7))) == pytest.approx(0, abs=1e-6)


def test_information_equals_its_definition() -> None:
    logits_BC = normal(6, 4, seed=5).double()
    shares_BC = functional.softmax(logits_BC, dim=1)

    def entropy(shares_C: Tensor) -> float:
        return -sum(p * math.log(p) for p in shares_C.tolist())

    expected = sum(map(entropy, shares_BC)) / 6 - entropy(shares_BC.mean(0))
    assert -math.log(4) <= expected <= 0
    assert float(information(logits_BC)) == pytest.approx(expected, abs=1e-12)
