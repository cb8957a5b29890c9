"""FedCAP's customization: the worked trace of two rounds, its limits and its edge cases."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.robust import Context, Rows, State
from rampart_fl.shared.robust.customizers import customizers
from rampart_fl.shared.robust.customizers.fedcap import FedCAP
from rampart_fl.shared.robust.engine import Plan, run_round

IDS = ("a", "b", "c")
FIRST_ND = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
MIX = [[0.5, 0.165119, 0.334881], [0.165119, 0.5, 0.334881], [0.25, 0.25, 0.5]]


def plan(threshold: float = 10.0) -> Plan:
    return Plan.of(
        "weighted_mean",
        [{"name": "norm_bound", "threshold": threshold}],
        {"name": "fedcap", "alpha": 1.0, "phi": 0.5},
    )


def close(result: Tensor, expected: list[float] | list[list[float]]) -> None:
    torch.testing.assert_close(
        result.double(), torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-5
    )


def round_zero() -> tuple[Tensor, dict[str, Tensor]]:
    """w¹ and the customized models ŵ¹ after the first round of the worked trace."""
    rows = Rows.of(FIRST_ND, ids=IDS, weights=[1, 1, 2])
    context = Context(reference_D=torch.zeros(2, dtype=torch.float64))
    outcome = run_round(plan(), rows, plan().init(2), context)
    mixture = outcome.customization.models
    assert mixture is not None
    close(mixture.mix_LM, MIX)
    return outcome.global_D, {name: mixture.model(name) for name in mixture.names}


def test_first_round_matches_the_worked_trace() -> None:
    global_D, models = round_zero()
    close(global_D, [0.75, 0.75])
    close(models["a"], [0.834881, 0.5])
    close(models["b"], [0.5, 0.834881])
    close(models["c"], [0.75, 0.75])


def test_second_round_of_the_worked_trace_evicts_the_third_client() -> None:
    reference_D, models = round_zero()
    uploads = {"a": [0.0, 0.0], "b": [0.0, 0.0], "c": [-1.0, 0.0]}
    calibrated_ND = torch.stack(
        [models[k] + torch.tensor(uploads[k], dtype=torch.float64) - reference_D for k in IDS]
    )
    close(calibrated_ND, [[0.084881, -0.25], [-0.25, 0.084881], [-1, 0]])
    rows = Rows.of(calibrated_ND, ids=IDS, weights=[1, 1, 2])
    outcome = run_round(plan(0.9), rows, State(), Context(round=1, reference_D=reference_D))
    scores = {verdict.client: verdict for verdict in outcome.verdicts}
    assert [scores[k].decision for k in IDS] == ["accepted", "accepted", "evicted"]
    close(torch.tensor([scores[k].score for k in IDS]), [0.264017, 0.264017, 1.0])
    assert outcome.survivors.ids == ("a", "b")
    close(outcome.global_D, [0.66744, 0.66744])
    mixture = outcome.customization.models
    assert mixture is not None and mixture.names == ("a", "b")
    # Two clients remain: each has weight φ on its own model and the rest on the other's.
    close(mixture.mix_LM, [[0.5, 0.5], [0.5, 0.5]])


def test_newcomer_gets_softmax_weights_over_the_whole_pool() -> None:
    # At t = 1, a newcomer is compared with the previous round's pool, without φ.
    probe_D = torch.tensor([2.0, 0.0], dtype=torch.float64)
    pool = Rows.of(FIRST_ND, ids=IDS)
    weights_M = FedCAP(alpha=1.0, phi=0.5).customize_newcomer(probe_D, pool, Context(round=1))
    close(weights_M, [0.473041, 0.174022, 0.352937])


def similarities(to_others: list[float]) -> Tensor:
    n = len(to_others) + 1
    cosines_MM = torch.eye(n, dtype=torch.float64)
    cosines_MM[0, 1:] = cosines_MM[1:, 0] = torch.tensor(to_others, dtype=torch.float64)
    return cosines_MM


def test_weights_over_three_other_clients_match_known_values() -> None:
    weights_M = FedCAP(alpha=10, phi=0.3).weights(similarities([0.9, 0.1, -0.5]))[0]
    assert weights_M[:2].tolist() == pytest.approx([0.3, 0.699765], abs=1e-6)
    assert float(weights_M[2]) == pytest.approx(2.347e-4, rel=1e-3)
    assert float(weights_M[3]) == pytest.approx(5.8e-7, rel=1e-2)


@given(st.integers(2, 8), st.floats(0, 20), st.floats(0, 1), st.integers(0, 10_000))
def test_weights_match_the_definition_and_sum_to_one(
    m: int, alpha: float, phi: float, seed: int
) -> None:
    draws = torch.Generator().manual_seed(seed)
    cosines_MM = torch.rand(m, m, generator=draws, dtype=torch.float64) * 2 - 1
    weights_MM = FedCAP(alpha=alpha, phi=phi).weights(cosines_MM)
    for k in range(m):
        total = sum(math.exp(alpha * float(cosines_MM[k, j])) for j in range(m) if j != k)
        for i in range(m):
            other = (1 - phi) * math.exp(alpha * float(cosines_MM[k, i])) / total
            expected = phi if i == k else other
            assert float(weights_MM[k, i]) == pytest.approx(expected, abs=1e-12)
    torch.testing.assert_close(weights_MM.sum(dim=1), torch.ones(m, dtype=torch.float64))


def test_alpha_zero_weights_all_other_clients_equally() -> None:
    weights_M = FedCAP(alpha=0, phi=0.3).weights(similarities([0.9, 0.1, -0.5]))[0]
    assert weights_M.tolist() == pytest.approx([0.3, 0.7 / 3, 0.7 / 3, 0.7 / 3])


def customize(block_ND: Tensor, **parameters: float) -> list[list[float]]:
    rows = Rows.of(block_ND)
    result, _ = FedCAP(**parameters).apply(rows, rows, State(), Context(reference_D=torch.zeros(2)))
    assert result.models is not None
    return [result.models.model(name).tolist() for name in result.models.names]


def test_phi_one_keeps_each_clients_own_model() -> None:
    block_ND = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    assert customize(block_ND, phi=1.0) == block_ND.tolist()


def test_phi_one_over_n_with_alpha_zero_is_the_plain_mean() -> None:
    block_ND = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0], [1.0, 1.0]])
    for model in customize(block_ND, phi=0.25, alpha=0.0):
        assert model == pytest.approx([1.0, 1.0])


def test_single_client_keeps_its_own_model() -> None:
    assert customize(torch.tensor([[3.0, 4.0]]), phi=0.1) == [[3.0, 4.0]]


def test_two_clients_are_mixed_regardless_of_similarity() -> None:
    models = customize(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), phi=0.1, alpha=10.0)
    assert models[0] == pytest.approx([0.1 - 0.9, 0.0])


def test_zero_update_counts_as_opposite_to_all_others() -> None:
    rows = Rows.of(torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]))
    result, _ = FedCAP(alpha=2.0, phi=0.0).apply(
        rows, rows, State(), Context(reference_D=torch.zeros(2))
    )
    assert result.models is not None
    mix = result.models.mix_LM
    assert mix[0].tolist() == pytest.approx([0, 0.5, 0.5])
    ratio = math.exp(2 * -1) / (math.exp(2 * -1) + math.exp(0))
    assert mix[1].tolist() == pytest.approx([ratio, 0, 1 - ratio])


def test_customized_models_have_the_worked_offsets_from_the_global_model() -> None:
    # With uploads of zero at t = 1, these offsets are the calibrated updates.
    reference_D, models = round_zero()
    offsets_ND = torch.stack([models[k] - reference_D for k in IDS])
    close(offsets_ND, [[0.084881, -0.25], [-0.25, 0.084881], [0.0, 0.0]])


def test_similarity_can_be_computed_from_raw_uploads() -> None:
    """Raw uploads with rows b and c exchanged exchange b and c in the mix, not in the models."""
    calibrated = Rows.of(FIRST_ND)
    raw = Rows.of(FIRST_ND[[0, 2, 1]])
    context = Context(reference_D=torch.zeros(2, dtype=torch.float64))
    result, _ = FedCAP(alpha=1.0, phi=0.5).apply(calibrated, raw, State(), context)
    assert result.models is not None
    close(result.models.mix_LM[0], [0.5, 0.334881, 0.165119])
    close(result.models.model("0"), [0.665119, 0.5])


LAYOUT = (("body.weight", 0, 2), ("head.weight", 2, 4), ("head.bias", 4, 5))


def test_last_layer_similarity_ignores_other_layers() -> None:
    draws = torch.Generator().manual_seed(4)
    block_ND = torch.randn(4, 5, generator=draws)
    other_ND = block_ND.clone()
    other_ND[:, :2] = torch.randn(4, 2, generator=draws)
    customizer = customizers.build("fedcap", similarity="last_layer")
    context = Context(reference_D=torch.zeros(5), layout=LAYOUT, head="head")
    mixes = []
    for rows in (Rows.of(block_ND), Rows.of(other_ND)):
        result, _ = customizer.apply(rows, rows, State(), context)
        assert result.models is not None
        mixes.append(result.models.mix_LM)
    torch.testing.assert_close(mixes[0], mixes[1])
    head = Rows.of(block_ND[:, 2:])
    alone, _ = FedCAP().apply(head, head, State(), Context(reference_D=torch.zeros(3)))
    assert alone.models is not None
    torch.testing.assert_close(mixes[0], alone.models.mix_LM)
    probe_D = torch.randn(5, generator=draws)
    torch.testing.assert_close(
        customizer.customize_newcomer(probe_D, Rows.of(block_ND), context),
        FedCAP().customize_newcomer(probe_D[2:], head, Context()),
    )


def test_last_layer_similarity_requires_a_layout() -> None:
    rows = Rows.of(torch.ones(2, 5))
    with pytest.raises(ConfigurationError, match="layout"):
        FedCAP(similarity="last_layer").apply(
            rows, rows, State(), Context(reference_D=torch.zeros(5))
        )
