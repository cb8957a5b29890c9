"""The exact mode against loops over single clients, its closed form and its limits."""

from typing import Any

import pytest
import torch
from torch.nn import functional

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.sweep import Sweep
from rampart_fl.shared.figures.client_metrics import sides
from rampart_fl.shared.learning.data.client_data import ClientData, client_data
from rampart_fl.shared.learning.network.vector import build_module, flatten, load
from rampart_fl.shared.robust import aggregate
from rampart_fl.shared.simulation import Simulation, SimulationResult, simulate
from rampart_fl.shared.validation import validate

ETA, DECAY = 0.2, 0.01
SHARE = 0.4
DIGITS: dict[str, Any] = {
    "name": "exact",
    "rounds": 3,
    "data": {
        "dataset": "digits",
        "partition": {"name": "dirichlet", "beta": 0.5},
        "clients": 7,
        "samples": 24,
    },
    "model": {"name": "mlp", "hidden": []},
    "training": {"epochs": 1, "batch_size": 18, "learning_rate": ETA, "weight_decay": DECAY},
    "server": {"rule": ["nnm", "trimmed_mean"], "f": 2},
    "attackers": [{"count": 2, "attack": {"name": "lie", "z": 1.5, "knows": "full"}}],
}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def experiment(share: Any = SHARE, **tables: Any) -> Experiment:
    exact = {"name": "interpolated", "lambda": share, "mode": "exact"}
    return Experiment.from_tables({**DIGITS, "personalizer": exact, **tables})


def means(share: float, clients: int, dimension: int = 3, **tables: Any) -> Experiment:
    dataset = {"name": "synthetic_means", "clients": clients, "dimension": dimension}
    return experiment(
        share,
        rounds=1,
        data={"dataset": dataset, "partition": "by_group", "clients": clients},
        model="mean",
        training={"epochs": 1, "batch_size": 20, "learning_rate": 1.0},
        server={"rule": ["nnm", "trimmed_mean"]},
        attackers=[],
    ).model_copy(update=tables)


def own_data(run: Experiment) -> list[ClientData]:
    return [client_data(run.data, slot, run.seed) for slot in range(run.data.clients)]


def models(result: SimulationResult, hostile: bool = False) -> torch.Tensor:
    """The honest clients' models, or the attackers', in order of their slots."""
    names = sides(result.experiment)[hostile]
    return torch.stack([result.personal[name]["model"] for name in names])


def test_exact_mode_equals_the_papers_algorithm_client_by_client() -> None:
    """Loops over torch modules: all gradients at each model; attackers send mean - 1.5 SD."""
    run = experiment()
    module, data = build_module(run), own_data(run)
    honest = [slot for slot, role in enumerate(run.roles) if role is None]
    assert len(honest) == 5 and honest != [0, 1, 2, 3, 4], "attackers stand between the others"
    theta = [flatten(module) for _ in range(5)]
    for _ in range(run.rounds):
        moved = []
        for i in range(5):
            updates = []
            for slot in honest:
                load(module, theta[i])
                loss = functional.cross_entropy(module(data[slot].x_train), data[slot].y_train)
                parts = [part for _, part in sorted(module.named_parameters())]
                slopes = torch.autograd.grad(loss, parts)
                gradient_D = torch.cat([slope.flatten() for slope in slopes])
                updates.append(-ETA * (gradient_D + DECAY * theta[i]))
            honest_ND = torch.stack(updates)
            forged_D = honest_ND.mean(0) - 1.5 * honest_ND.std(0)
            received = [*updates, forged_D, forged_D]
            common_D = aggregate(received, ["nnm", "trimmed_mean"], f=2)
            moved.append(theta[i] + (1 - SHARE) * updates[i] + SHARE * common_D)
        theta = moved
    result = simulate(run)
    assert torch.allclose(models(result), torch.stack(theta), atol=1e-5)
    assert torch.equal(models(result, hostile=True), result.global_D.expand(2, -1))
    metrics = result.records[-1].metrics
    assert list(metrics) == [f"client-0{slot}" for slot in honest]
    for place, (slot, measured) in enumerate(zip(honest, metrics.values(), strict=True)):
        logits = load(module, theta[place])(data[slot].x_test)
        hits = (logits.argmax(1) == data[slot].y_test).sum().item()
        assert measured["correct_personalized"] == hits
        assert measured["lambda"] == pytest.approx(SHARE)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0, 0.3, 1])
def test_estimated_means_converge_to_the_closed_form(share: float) -> None:
    """θ_i = (1-λ) ȳ_i + λ ȳ: after one step of size 1, and after ten smaller steps."""
    run = means(share, 12)
    ybar_KD = torch.stack([own.x_train.mean(0) for own in own_data(run)])
    expected_KD = (1 - share) * ybar_KD + share * ybar_KD.mean(0)
    assert torch.allclose(models(simulate(run)), expected_KD, atol=1e-4)
    slow = run.training.model_copy(update={"learning_rate": 0.8})
    later = run.model_copy(update={"training": slow, "rounds": 10})
    assert torch.allclose(models(simulate(later)), expected_KD, atol=1e-4)


@pytest.mark.slow
def test_the_error_is_u_shaped_with_its_minimum_at_the_closed_form() -> None:
    """E|θ_i - μ_i|²/d = λ² σ_h² (1-1/N) + σ²/m ((1-λ)² (1-1/N) + 1/N), smallest at 0.7377."""
    shares = [0, 0.25, 0.5, 0.7377, 0.9, 1]
    results = []
    for share in shares:
        results.append(simulate(means(share, 200, dimension=12)).figures["error"] / 12)
        a, b, n = 15**2 / 20, 2**2, 200
        expected = share**2 * b * (1 - 1 / n) + a * ((1 - share) ** 2 * (1 - 1 / n) + 1 / n)
        assert results[-1] == pytest.approx(expected, rel=0.06)
    assert min(results) == results[3]


def halved(run: Experiment) -> Experiment:
    """The experiment with half of its clients and of its attackers."""
    clients = run.data.clients // 2
    dataset = {**run.data.dataset, "clients": clients}
    groups = [one.model_copy(update={"count": one.count // 2}) for one in run.attackers]
    return run.model_copy(
        update={
            "data": run.data.model_copy(update={"dataset": dataset, "clients": clients}),
            "server": run.server.model_copy(update={"f": (run.server.f or 0) // 2}),
            "attackers": groups,
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "hostile", "least"),
    [("mean-estimation-sweep", 0, 0.75), ("mean-estimation-byzantine", 100, 0.65)],
)
def test_shipped_sweeps_have_the_papers_settings_and_minimum(
    name: str, hostile: int, least: float
) -> None:
    """21 values of λ, 20 seeds and 600 clients. Here, one seed, a few λ and half of the clients
    suffice to find the same minimum."""
    sweep = Sweep.load(name)
    assert sweep is not None and len(sweep.seeds) == 20
    points = {point.at["lambda"]: point.runs[0] for point in sweep.points(validate)}
    assert list(points) == [round(0.05 * k, 10) for k in range(21)]
    for run in points.values():
        assert (run.data.clients, run.server.f) == (600, hostile)
        assert sum(group.count for group in run.attackers) == hostile
    shares = [0, least - 0.2, least, least + 0.2]
    results = {share: simulate(halved(points[round(share, 10)])) for share in shares}
    errors = {share: result.figures["error"] for share, result in results.items()}
    assert min(errors, key=lambda share: errors[share]) == least
    assert errors[0] > errors[least] + 5


def test_per_client_and_shared_aggregation_give_the_same_models() -> None:
    """A rule with memory runs for each client; one without, once for clients with equal models."""
    memory = {"rule": {"name": "centered_clipping", "tau": 1e6}}
    plain = {"rule": "weighted_mean"}
    one, other = (simulate(experiment(server=table, attackers=[])) for table in (memory, plain))
    assert torch.allclose(models(one), models(other), atol=1e-5)


def test_lambda_1_equals_federated_gradient_descent() -> None:
    one = models(simulate(experiment(1)))
    assert torch.equal(one, one[:1].expand_as(one))
    whole = simulate(experiment(1, personalizer="none"))
    assert torch.allclose(one[0], whole.global_D, atol=1e-5)


def test_lambda_0_equals_local_training() -> None:
    hostile = simulate(experiment(0))
    alone = simulate(experiment(0, personalizer="local"))
    assert torch.allclose(models(hostile), models(alone), atol=1e-5)


def test_resumed_run_gives_the_same_models() -> None:
    run = experiment(server={"rule": {"name": "centered_clipping", "tau": 0.05}})
    whole, broken, again = Simulation.of(run), Simulation.of(run), Simulation.of(run)
    for _ in range(3):
        whole.step()
    broken.step()
    again.recall(broken.memory(), broken.records)
    again.step()
    again.step()
    assert torch.equal(whole.clients.personal["model"], again.clients.personal["model"])


@pytest.mark.parametrize("share", [SHARE, "formula"])
def test_a_rule_without_a_result_fails_the_round(share: Any) -> None:
    result = simulate(experiment(share, server={"rule": {"name": "monna", "pivot": "absent"}}))
    assert {record.status for record in result.records} == {"failed"}
    assert "the pivot 'absent' sent no row" in result.records[0].reason
