"""The estimates behind the formula for λ: by hand, by loops, and in easy cases."""

from typing import Any

import pytest
import torch
from torch.nn import functional

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.learning.network.vector import load
from rampart_fl.shared.simulation import Simulation, simulate
from rampart_fl.shared.simulation.collaboration import Estimates, discrepancies, estimate
from rampart_fl.shared.simulation.exact_round import ExactRound


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def experiment(partition: Any = "iid", **tables: Any) -> Experiment:
    return Experiment.from_tables(
        {
            "name": "formula",
            "rounds": 4,
            "data": {"dataset": "digits", "partition": partition, "clients": 6, "samples": 40},
            "model": {"name": "mlp", "hidden": []},
            "training": {"epochs": 1, "batch_size": 30, "learning_rate": 0.3},
            "personalizer": {"name": "interpolated", "mode": "exact", "lambda": "formula"},
            "server": {"rule": "median", "f": 1},
            "attackers": [{"count": 1, "attack": {"name": "lie", "z": 9, "knows": "full"}}],
            **tables,
        }
    )


def estimated(run: Experiment) -> Estimates:
    simulation = Simulation.of(run)
    return estimate(ExactRound(simulation.clients, simulation.server, 0))


def of(pdim: int, gap: float, spread: float, samples: float = 100) -> Estimates:
    two = torch.ones(2, dtype=torch.float64)
    return Estimates(pdim, samples * two, gap * two, spread * two)


@pytest.mark.parametrize(
    ("pdim", "gap", "spread", "f", "expected"),
    [
        (4, 0.1, 0.5, 1, 0.4),  # (√(4/100) - 0.1) / (1/2 · 0.5)
        (4, 0.1, 0.1, 1, 1.0),  # above 1
        (4, 0.2, 0.5, 1, 0.0),  # nothing to gain
        (4, 0.3, 0.5, 1, 0.0),
        (4, 0.1, 0.5, 0, 1.0),  # no attackers: the limit
        (4, 0.3, 0.5, 0, 0.0),
        (4, 0.2, 0.0, 0, 0.0),  # 0/0
        (4, 0.1, 0.0, 1, 1.0),  # all gradients agree
    ],
)
def test_lambda_formula_gives_known_values_and_limits(
    pdim: int, gap: float, spread: float, f: int, expected: float
) -> None:
    assert of(pdim, gap, spread).shares(f).tolist() == pytest.approx([expected] * 2)


def test_discrepancy_ignores_f_forged_models_and_losses() -> None:
    wrong_PN = torch.full((6, 6), 0.3)
    assert discrepancies(wrong_PN, f=0).tolist() == pytest.approx([0] * 6, abs=1e-6)
    wrong_PN[:, 5], wrong_PN[5] = 1.0, torch.tensor([0.0, 1.0, 0.0, 1.0, 0.5, 1.0])
    assert discrepancies(wrong_PN, f=1)[:5].tolist() == pytest.approx([0] * 5, abs=1e-6)
    assert discrepancies(wrong_PN, f=0)[0] > 0.1


def test_estimates_equal_loops_over_clients() -> None:
    """Pilots and gradients by torch modules; the attacker's row is far off and left out."""
    run = experiment()
    simulation = Simulation.of(run)
    data, module = simulation.clients.data, simulation.clients.learner.network.module
    start_D = simulation.server.global_D

    def gradient(model_D: torch.Tensor, k: int, step: int = 1) -> torch.Tensor:
        load(module, model_D)
        x, y = data[k].x_train[::step], data[k].y_train[::step]
        parts = [part for _, part in sorted(module.named_parameters())]
        slopes = torch.autograd.grad(functional.cross_entropy(module(x), y), parts)
        return torch.cat([slope.flatten() for slope in slopes])

    pilots = []
    for k in range(6):
        model_D = start_D.clone()
        for _ in range(run.rounds):
            model_D = model_D - 0.3 * gradient(model_D, k, 2)
        pilots.append(model_D)
    needs = estimated(run)
    assert needs.pdim == len(start_D) and needs.samples_N.tolist() == [30] * 6
    wrong_PN = torch.empty(6, 6)
    for p, pilot_D in enumerate(pilots):
        for k in range(6):
            logits = load(module, pilot_D)(data[k].x_train[1::2])
            wrong_PN[p, k] = (logits.argmax(1) != data[k].y_train[1::2]).float().mean()
    assert torch.allclose(needs.discrepancy_N, discrepancies(wrong_PN, 1), atol=1e-6)
    honest = simulation.clients.honest
    assert len(honest) == 5 and 5 in honest, "the attacker is not the last one"
    for i in honest:
        honest_ND = torch.stack([gradient(pilots[i], k) for k in honest])
        spread = (honest_ND - honest_ND.mean(0)).square().sum(1).mean()
        assert needs.dissimilarity_N[i].item() == pytest.approx(spread.item(), rel=1e-3)


def test_heterogeneity_lowers_lambda() -> None:
    small = {"name": "interpolated", "mode": "exact", "lambda": "formula", "pdim": 40}
    skew = {"name": "classes_per_client", "classes": 2}
    alike, skewed = (estimated(experiment(p, personalizer=small)) for p in ("iid", skew))
    assert skewed.discrepancy_N.mean() > 2 * alike.discrepancy_N.mean()
    assert skewed.dissimilarity_N.mean() > alike.dissimilarity_N.mean()
    assert skewed.shares(1).mean() < alike.shares(1).mean()


def test_clients_train_with_the_estimated_lambda_in_every_round() -> None:
    skewed = {"name": "classes_per_client", "classes": 2}
    exact = {"name": "interpolated", "mode": "exact", "lambda": "formula", "pdim": 40}
    run = experiment(skewed, personalizer=exact)
    shares = estimated(run).shares(1)[[role is None for role in run.roles]]
    assert 0 < shares.min() < 1
    result = simulate(run)
    for record in result.records:
        measured = [metrics["lambda"] for metrics in record.metrics.values()]
        assert measured == pytest.approx(shares.tolist())
