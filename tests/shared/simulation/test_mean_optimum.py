"""λ* for mean estimation, against the numbers of the paper's setting."""

from typing import Any

import pytest
import torch

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.robust.pipeline import Pipeline
from rampart_fl.shared.simulation import simulate
from rampart_fl.shared.simulation.mean_optimum import bound, optimum


def means(share: Any, f: int = 0, rule: Any = ("nnm", "trimmed_mean"), seed: int = 1) -> Experiment:
    """The paper's mean estimation with fewer clients in more dimensions, none of them hostile."""
    data = {"name": "synthetic_means", "clients": 30, "samples": 20, "dimension": 40}
    return Experiment.from_tables(
        {
            "name": "means",
            "seed": seed,
            "rounds": 1,
            "data": {"dataset": data, "partition": "by_group", "clients": 30},
            "model": "mean",
            "training": {"epochs": 1, "batch_size": 20, "learning_rate": 1.0},
            "personalizer": {"name": "interpolated", "mode": "exact", "lambda": share},
            "server": {"rule": list(rule), "f": f},
        }
    )


def share_of(experiment: Experiment) -> float:
    metrics = simulate(experiment).records[0].metrics
    (share,) = {own["lambda"] for own in metrics.values()}
    return share


def test_lambda_equals_the_closed_form_without_attackers() -> None:
    noise, apart = 15**2 / 20, 2**2
    expected = noise / (noise + apart)
    result = sum(share_of(means("formula", seed=seed)) for seed in range(4)) / 4
    assert result == pytest.approx(expected, abs=0.02)


def test_formula_gives_the_lowest_error_of_all_lambdas() -> None:
    errors = {
        share: simulate(means(share)).figures["error"]
        for share in ("formula", 0.0, 0.3, 0.5, 0.9, 1.0)
    }
    assert min(errors, key=lambda share: errors[share]) == "formula"


def test_declared_attackers_lower_lambda_by_kappa() -> None:
    calm, wary = share_of(means("formula")), share_of(means("formula", f=5))
    # 1/λ - 1 is proportional to 1 + κ.
    kappa = (1 / wary - 1) / (1 / calm - 1) - 1
    trimmed = 6 * 5 / 20 * (1 + 5 / 20)
    assert kappa == pytest.approx(8 * 5 / 25 * (trimmed + 1), rel=1e-5)


def test_optimum_is_1_for_equal_means_and_0_for_noiseless_samples() -> None:
    same = [torch.tensor([[1.0], [3.0]]), torch.tensor([[3.0], [1.0]])]
    assert optimum(same, kappa=9) == 1
    sure = [torch.tensor([[1.0], [1.0]]), torch.tensor([[3.0], [3.0]])]
    assert optimum(sure, kappa=0) == 0
    with pytest.raises(
        ConfigurationError, match="two honest clients with at least two training samples"
    ):
        optimum([torch.ones(1, 1), torch.ones(2, 1)], kappa=0)


def test_a_rule_without_a_known_kappa_is_refused() -> None:
    pipeline = Pipeline.of(["nnm", "bulyan"], f=1)
    with pytest.raises(ConfigurationError, match=r"no κ is known for nnm\+bulyan"):
        bound(pipeline, 20, 1)
    assert bound(pipeline, 20, 0) == 0
