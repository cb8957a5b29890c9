"""SDEA: the gradient by finite differences, the cooperative cluster, and structural limits."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.robust import Context, Report, Rows
from rampart_fl.shared.robust.context import PublicData
from rampart_fl.shared.robust.public_evaluation import information
from rampart_fl.shared.robust.rules import rules
from rampart_fl.shared.robust.rules.sdea import SDEA, cluster_weights

CLASSES, FEATURES = 3, 4
D = CLASSES * FEATURES


def predict(models_KD: Tensor, x_KB: Tensor) -> Tensor:
    """Logits of linear models without a bias."""
    weights = models_KD.unflatten(1, (CLASSES, FEATURES))
    return torch.einsum("kcf,kbf->kbc", weights, x_KB)


def normal(*shape: int, seed: int) -> Tensor:
    draws = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=draws, dtype=torch.float64)


def context(samples: int = 24, **public: Any) -> Context:
    return Context(
        round=2,
        seed=7,
        reference_D=normal(D, seed=1),
        predict=predict,
        public=PublicData(normal(samples, FEATURES, seed=2), **public),
    )


def run(
    block_ND: Tensor, given_context: Context | None = None, **parameters: Any
) -> tuple[Tensor, Report]:
    rule = rules.build("sdea", **{"epochs": 3, "batch_size": 8, **parameters})
    rows = Rows.of(block_ND)
    result = given_context or context()
    result_D, _, report = rule.apply(rows, rule.init(rows.dim), result)
    return result_D, report


@pytest.mark.parametrize("views", [1, 3])
def test_gradient_equals_finite_differences(views: int) -> None:
    def shift(x_B: Tensor, draws: torch.Generator) -> Tensor:
        return x_B + torch.rand(1, generator=draws)

    ctx = context(augment=shift if views > 1 else None)
    assert ctx.public is not None
    rule, rows = SDEA(views=views), Rows.of(normal(6, D, seed=3))
    logits_M = normal(6, seed=4)

    def at(point_M: Tensor) -> tuple[float, Tensor]:
        draws = torch.Generator().manual_seed(5)
        loss, slope_M = rule.step(rows, point_M.softmax(0), ctx.public.x_P, ctx, draws)
        return float(loss), slope_M

    _, gradient_M = at(logits_M)
    step = 1e-5
    for k in range(6):
        unit_M = torch.zeros(6, dtype=torch.float64)
        unit_M[k] = step
        slope = (at(logits_M + unit_M)[0] - at(logits_M - unit_M)[0]) / (2 * step)
        assert float(gradient_M[k]) == pytest.approx(slope, rel=1e-5, abs=1e-9)


def slowly(block_ND: Tensor, ctx: Context, rule: SDEA) -> Tensor:
    """The whole learning with torch's autograd, which mixes n whole models in every step."""
    assert ctx.public is not None and ctx.reference_D is not None
    logits_M = torch.full((len(block_ND),), 1 / len(block_ND), dtype=torch.float64)
    logits_M.requires_grad_()
    adam = torch.optim.Adam([logits_M], rule.learning_rate, weight_decay=rule.weight_decay)
    draws = ctx.generator("sdea")
    models_ND = ctx.reference_D + block_ND
    for _ in range(rule.epochs):
        order = torch.randperm(len(ctx.public.x_P), generator=draws)
        for start in range(0, len(order), rule.batch_size):
            x_B = ctx.public.x_P[order[start : start + rule.batch_size]]
            model_D = functional.softmax(logits_M, dim=0) @ models_ND
            loss = information(x_B @ model_D.view(CLASSES, FEATURES).T)
            adam.zero_grad()
            torch.autograd.backward(loss)
            adam.step()
    return logits_M.detach().softmax(0)


def test_learned_weights_equal_those_of_autograd_on_mixed_models() -> None:
    block_ND, ctx = normal(7, D, seed=3), context(20)
    rule = SDEA(epochs=6, batch_size=8, learning_rate=0.05, weight_decay=0.0, clusters="none")
    rows = Rows.of(block_ND)
    result_D, _, report = rule.apply(rows, rule.init(D), ctx)
    expected_M = slowly(block_ND, ctx, rule)
    assert float(expected_M.max() - expected_M.min()) > 0.05
    torch.testing.assert_close(report.per_row["weight"], expected_M, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(result_D, expected_M @ block_ND, rtol=1e-6, atol=1e-9)
    assert report.values["loss"] < report.values["first_loss"]


def test_initial_logits_matter_only_through_the_penalty() -> None:
    # The paper starts them at 1/n; softmax has the same weights at 0.
    block_ND, ctx = normal(5, D, seed=3), context()
    rule = SDEA(epochs=2, batch_size=8)
    learned = rule.learn(Rows.of(block_ND), ctx)
    assert learned is not None
    expected_M = slowly(block_ND, ctx, rule)
    torch.testing.assert_close(learned.weights_M, expected_M, rtol=1e-3, atol=1e-4)


def entropy(predictions_BC: Tensor) -> Tensor:
    return -(predictions_BC * predictions_BC.log()).sum(-1)


def test_sharpness_and_diversity_losses_can_be_used_separately() -> None:
    rows, ctx = Rows.of(normal(6, D, seed=3)), context()
    assert ctx.public is not None and ctx.reference_D is not None
    weights_M, x_B = normal(6, seed=4).softmax(0), ctx.public.x_P
    model_D = ctx.reference_D + weights_M @ normal(6, D, seed=3)
    predictions_BC = (x_B @ model_D.view(CLASSES, FEATURES).T).softmax(-1)
    halves = {
        (True, False): entropy(predictions_BC).mean(),
        (False, True): -entropy(predictions_BC.mean(0)),
    }
    slopes = []
    for (sharpness, diversity), expected in halves.items():
        rule = SDEA(sharpness=sharpness, diversity=diversity)
        loss, slope_M = rule.step(rows, weights_M, x_B, ctx, torch.Generator())
        torch.testing.assert_close(loss, expected)
        slopes.append(slope_M)
    loss, slope_M = SDEA().step(rows, weights_M, x_B, ctx, torch.Generator())
    torch.testing.assert_close(loss, sum(halves.values(), torch.zeros_like(loss)))
    torch.testing.assert_close(slope_M, slopes[0] + slopes[1])
    with pytest.raises(ConfigurationError, match="both off"):
        rules.build("sdea", sharpness=False, diversity=False)


def test_identical_rows_keep_uniform_weights() -> None:
    row_D = normal(D, seed=3)
    rule, rows, ctx = SDEA(), Rows.of(row_D.repeat(6, 1)), context()
    assert ctx.public is not None
    uniform_M = torch.full((6,), 1 / 6, dtype=torch.float64)
    _, gradient_M = rule.step(rows, uniform_M, ctx.public.x_P, ctx, torch.Generator())
    assert float(gradient_M.abs().max()) < 1e-12
    result_D, report = run(row_D.repeat(6, 1))
    torch.testing.assert_close(report.per_row["weight"], uniform_M)
    torch.testing.assert_close(result_D, row_D)


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        ([0.24, 0.22, 0.20, 0.18, 0.09, 0.07], [0.21] * 4 + [0.09, 0.07]),
        ([0.30, 0.29, 0.18, 0.17, 0.035, 0.025], [0.235] * 4 + [0.035, 0.025]),
    ],
)
def test_cooperative_cluster_equals_hand_computed_weights(
    weights: list[float], expected: list[float]
) -> None:
    weights_M = torch.tensor(weights, dtype=torch.float64)
    found_M = cluster_weights(weights_M, SDEA().group(weights_M))
    torch.testing.assert_close(found_M, torch.tensor(expected, dtype=torch.float64))


@settings(max_examples=60)
@given(
    st.lists(st.floats(0.01, 1), min_size=1, max_size=12),
    st.sampled_from(["finch", "finch_first", "k_means", "dbscan"]),
)
def test_cluster_weights_are_positive_and_sum_to_one(raw: list[float], clusters: Any) -> None:
    weights_M = torch.tensor(raw, dtype=torch.float64)
    weights_M /= weights_M.sum()
    found_M = cluster_weights(weights_M, SDEA(clusters=clusters).group(weights_M))
    assert float(found_M.sum()) == pytest.approx(1)
    assert float(found_M.min()) > 0


@settings(max_examples=60)
@given(
    st.lists(st.floats(0.01, 1), min_size=1, max_size=3),
    st.sampled_from(["finch", "finch_first"]),
)
def test_up_to_three_clients_get_uniform_weights(raw: list[float], clusters: Any) -> None:
    weights_M = torch.tensor(raw, dtype=torch.float64)
    weights_M /= weights_M.sum()
    found_M = cluster_weights(weights_M, SDEA(clusters=clusters).group(weights_M))
    torch.testing.assert_close(found_M, torch.full_like(weights_M, 1 / len(weights_M)))


def test_single_attacker_is_isolated_by_k_means_and_dbscan_but_not_by_finch() -> None:
    weights_M = torch.tensor([0.241, 0.24, 0.253, 0.256, 0.01], dtype=torch.float64)
    assert SDEA().group(weights_M).tolist() == [0, 0, 1, 1, 0]
    # Two honest clients share its cluster; all three keep their learned weights.
    found_M = cluster_weights(weights_M, SDEA().group(weights_M))
    assert found_M[[0, 1, 4]].tolist() == weights_M[[0, 1, 4]].tolist()
    for clusters in ("k_means", "dbscan"):
        labels = SDEA(clusters=clusters).group(weights_M).tolist()
        assert labels == [0, 0, 0, 0, 1]


def test_honest_pair_with_the_lowest_weights_is_excluded_from_averaging() -> None:
    weights_M = torch.tensor([0.2, 0.21, 0.22, 0.19, 0.091, 0.089], dtype=torch.float64)
    found_M = cluster_weights(weights_M, SDEA().group(weights_M))
    assert found_M[4:].tolist() == weights_M[4:].tolist()
    torch.testing.assert_close(found_M[:4], torch.full((4,), 0.205, dtype=torch.float64))


def test_upper_of_two_attacker_pairs_escapes_only_finch_s_first_partition() -> None:
    honest, hostile = [0.2, 0.22, 0.24, 0.26], [0.0195, 0.0194, 0.0206, 0.0205]
    weights_M = torch.tensor(honest + hostile, dtype=torch.float64)
    found_M = cluster_weights(weights_M, SDEA(clusters="finch_first").group(weights_M))
    assert found_M[4:6].tolist() == [0.0195, 0.0194]
    share = (sum(honest) + 0.0206 + 0.0205) / 6
    torch.testing.assert_close(found_M[6:], torch.full((2,), share, dtype=torch.float64))
    for clusters in ("finch", "k_means"):
        found_M = cluster_weights(weights_M, SDEA(clusters=clusters).group(weights_M))
        assert found_M[4:].tolist() == hostile


def test_public_samples_with_equal_predictions_give_uniform_weights() -> None:
    # If all samples are zero, all models predict the same, whatever their parameters.
    ctx = context()
    assert ctx.public is not None
    ctx.public.x_P.zero_()
    _, report = run(normal(6, D, seed=3), ctx)
    torch.testing.assert_close(report.per_row["learned"], torch.full((6,), 1 / 6).double())


def test_unconfident_models_lose_weight() -> None:
    """Eight clients send a confident model; two send the negative of the reference model."""
    ctx = context(64)
    assert ctx.reference_D is not None
    sharp_D = 2 * ctx.reference_D
    block_ND = torch.stack([sharp_D + 0.1 * normal(D, seed=s) for s in range(8)])
    block_ND = torch.cat([block_ND, -ctx.reference_D + 0.01 * normal(2, D, seed=9)])
    _, report = run(block_ND, ctx, epochs=20, batch_size=16, learning_rate=0.02)
    weights_M, entropy_M = report.per_row["weight"], report.per_row["entropy"]
    assert float(weights_M[8:].max()) < 0.05 < float(weights_M[:8].min())
    assert float(entropy_M[8:].min()) > float(entropy_M[:8].max())


def test_rows_with_non_finite_predictions_are_excluded() -> None:
    block_ND = normal(6, D, seed=3).float()
    block_ND[2] *= 3e38 / block_ND[2].abs().max()
    ctx = context()
    ctx = Context(
        reference_D=normal(D, seed=1).float(),
        predict=lambda models_KD, x_KB: predict(models_KD, x_KB) ** 3,
        public=PublicData(normal(24, FEATURES, seed=2).float()),
    )
    result_D, report = run(block_ND, ctx)
    assert result_D.isfinite().all()
    assert float(report.per_row["weight"][2]) == 0
    assert not report.per_row["entropy"][2].isfinite()
    assert report.values["left_out"] == 1
    block_ND[:] = 1e38
    result_D, report = run(block_ND, ctx)
    assert not result_D.any() and report.values["left_out"] == 6


def test_rounds_draw_their_own_batches_and_keep_no_state() -> None:
    block_ND, rule = normal(5, D, seed=3), SDEA(epochs=2, batch_size=8)
    ctx = context()
    one, other = (
        rule.apply(Rows.of(block_ND), rule.init(D), Context(**{**vars(ctx), "round": r}))
        for r in (0, 1)
    )
    assert not torch.equal(one[2].per_row["learned"], other[2].per_row["learned"])
    assert not one[1].tensors


def test_missing_public_samples_are_rejected() -> None:
    with pytest.raises(ConfigurationError, match=r"sdea needs public samples.*\[server.public\]"):
        run(normal(4, D, seed=3), Context(reference_D=torch.zeros(D)))


def test_default_search_settings_equal_the_paper_s() -> None:
    rule = SDEA()
    assert (rule.learning_rate, rule.weight_decay) == (0.005, 1e-5)
    assert (rule.epochs, rule.batch_size) == (20, 64)


def test_default_clustering_is_the_paper_s_first_finch_partition() -> None:
    """The paper's code averages all groups except FINCH's lowest; our variant has two groups."""
    weights_M = torch.tensor([0.10, 0.101, 0.14, 0.141, 0.02, 0.021], dtype=torch.float64)
    papers_M, ours_M = SDEA().group(weights_M), SDEA(clusters="finch").group(weights_M)
    assert papers_M.tolist() == [0, 0, 1, 1, 2, 2]
    assert int(ours_M.max()) == 1
