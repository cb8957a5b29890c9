"""Running statistics on the server: not in norms or mixtures; aggregated by a bounded median."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.robust import statistics
from rampart_fl.shared.robust.base import Context, Rows
from rampart_fl.shared.robust.engine import Plan, RoundOutcome, run_round
from rampart_fl.shared.robust.models import Mixture

D = 6
LAYOUT = (("conv.weight", 0, 4), ("output.bias", 4, D))
STATISTICS = (("~norm.running_mean", D, D + 2), ("~norm.running_var", D + 2, D + 4))


@pytest.fixture
def updates_NA() -> Tensor:
    draws = torch.Generator().manual_seed(3)
    return torch.randn(5, D + 4, generator=draws, dtype=torch.float64)


@pytest.fixture
def context() -> Context:
    reference_A = torch.arange(10.0, dtype=torch.float64)
    return Context(reference_D=reference_A, layout=LAYOUT, statistics=STATISTICS)


def plan(rule: str) -> Plan:
    return Plan.of(
        rule, [{"name": "norm_bound", "threshold": 50.0}], {"name": "fedcap", "phi": 0.3}
    )


def decide(updates_NA: Tensor, context: Context, rule: str = "median") -> RoundOutcome:
    stages = plan(rule)
    return run_round(stages, Rows.of(updates_NA), stages.init(D), context)


@pytest.mark.parametrize("rule", ["median", "krum", "weighted_mean", "geometric_median"])
def test_stages_see_parameters_without_running_statistics(
    updates_NA: Tensor, context: Context, rule: str
) -> None:
    assert context.reference_D is not None
    without = replace(context, reference_D=context.reference_D[:D], statistics=())
    expected = decide(updates_NA[:, :D], without, rule)
    updates_NA[2, D:] = 1e12  # A norm over all numbers would flag it.
    outcome = decide(updates_NA, context, rule)
    assert torch.equal(outcome.global_D[:D], expected.global_D)
    assert outcome.verdicts == expected.verdicts
    models, plain = outcome.customization.models, expected.customization.models
    assert models is not None
    assert plain is not None
    assert models.names == plain.names
    for name in models.names:
        assert torch.equal(models.model(name)[:D], plain.model(name))
        assert torch.equal(models.model(name)[D:], outcome.global_D[D:])
    swapped = models.block(models.names[1::-1])
    assert torch.equal(swapped, torch.stack([models.model(n) for n in models.names[1::-1]]))


def test_statistics_are_the_median_over_accepted_clients(
    updates_NA: Tensor, context: Context
) -> None:
    assert context.reference_D is not None
    updates_NA[:, D:] *= 0.1
    updates_NA[4, :D] = 1e3  # rejected for its parameters, along with its statistics
    outcome = decide(updates_NA, context)
    assert [v.client for v in outcome.verdicts if v.decision != "accepted"] == ["4"]
    held_NS = (context.reference_D + updates_NA)[:4, D:]
    expected_S = held_NS.sort(0).values[1:3].mean(0)
    torch.testing.assert_close(outcome.global_D[D:], expected_S)


@pytest.mark.parametrize("lie", [1e30, -1e30, 1e308, -1e308])
def test_two_of_five_clients_cannot_move_statistics_beyond_the_others_range(
    updates_NA: Tensor, context: Context, lie: float
) -> None:
    assert context.reference_D is not None
    updates_NA[3:, D:] = lie
    outcome = decide(updates_NA, context, "weighted_mean")
    held_NS = (context.reference_D + updates_NA)[:3, D:]
    assert bool((outcome.global_D[D:] >= held_NS.min(0).values - 1e-9).all())
    assert bool((outcome.global_D[D:] <= held_NS.max(0).values + 1e-9).all())


def test_variances_are_nonnegative_and_all_statistics_finite(context: Context) -> None:
    rows_NA = torch.zeros(3, D + 4)
    rows_NA[:, D:] = torch.tensor([-1e3, 3e38, -1e3, 3e38])
    context = replace(context, reference_D=torch.full((D + 4,), 3e38))
    found_S = statistics.aggregate(Rows.of(rows_NA), context)
    assert found_S.tolist() == torch.tensor([3e38] * 4).tolist()
    context = replace(context, reference_D=torch.ones(D + 4))
    found_S = statistics.aggregate(Rows.of(rows_NA), context)
    assert found_S[0] == -999
    assert found_S[2] == 0


def test_global_model_stays_unchanged_if_all_rows_are_rejected(
    updates_NA: Tensor, context: Context
) -> None:
    assert context.reference_D is not None
    updates_NA[:, 0] = 1e3
    outcome = decide(updates_NA, context)
    assert not len(outcome.survivors)
    assert torch.equal(outcome.global_D, context.reference_D)
    assert outcome.global_D.data_ptr() != context.reference_D.data_ptr()


def test_stages_predict_with_the_reference_models_statistics() -> None:
    seen: list[Tensor] = []

    def predict(models_KA: Tensor, x_KB: Tensor) -> Tensor:
        seen.append(models_KA)
        return x_KB

    context = Context(
        reference_D=torch.tensor([1.0, 2.0, 7.0]),
        server_update_D=torch.tensor([3.0, 4.0, 5.0]),
        predict=predict,
        statistics=(("~norm.running_mean", 2, 3),),
    )
    own = statistics.of_parameters(context)
    assert own.predict is not None
    assert own.reference_D is not None
    assert own.server_update_D is not None
    own.predict(torch.zeros(2, 2), torch.zeros(2, 1))
    assert seen[0].tolist() == [[0, 0, 7], [0, 0, 7]]
    assert own.reference_D.tolist() == [1, 2]
    assert own.server_update_D.tolist() == [3, 4]
    assert statistics.of_parameters(own) is own


def test_chunks_cover_every_coordinate_once() -> None:
    rows = Rows.of(torch.ones(2, 3))
    mixture = Mixture(("a", "b"), torch.zeros(3), rows, torch.eye(2))
    models = statistics.WithStatistics(mixture.names, mixture, torch.tensor([8.0, 9.0]))
    bounds = [(start, stop, tuple(chunk.shape)) for start, stop, chunk in models.chunks()]
    assert bounds == [(0, 3, (2, 3)), (3, 5, (2, 2))]
    assert models.model("b").tolist() == [1, 1, 1, 8, 9]
