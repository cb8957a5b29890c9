"""Certificates of whole federations, compared with federations that are trained under attack."""

from typing import Any

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.figures.client_metrics import sides
from rampart_fl.shared.learning.network.votes import ballots
from rampart_fl.shared.robust.certificates import radii, subset_radii, winners
from rampart_fl.shared.simulation import Simulation, simulate
from rampart_fl.shared.simulation.certification import (
    certify_groups,
    certify_subsets,
    simulate_clients,
    subsets_of,
)

SMALL = {
    "name": "certified",
    "seed": 5,
    "rounds": 2,
    "data": {"dataset": "digits", "clients": 5, "samples": 60},
    "model": {"name": "mlp", "hidden": [8]},
    "training": {"epochs": 2, "learning_rate": 0.1},
}
GROUPS: dict[str, dict[str, Any]] = {"server": {"customizer": {"name": "flcert", "groups": 5}}}
DETECTS = {"detectors": [{"name": "norm_bound", "threshold": 3.0}]}
ATTACKS = [{"name": "model_replacement"}, {"name": "sign_flip"}, {"name": "random_noise"}]


def experiment(clients: int = 5, **tables: object) -> Experiment:
    data = {**SMALL["data"], "clients": clients}
    return Experiment.from_tables({**SMALL, "data": data, **tables})


def attacked(calm: Experiment, attack: object, count: int) -> Experiment:
    """The same federation with some hostile clients."""
    return Experiment.from_tables(
        {**calm.tables(), "attackers": [{"count": count, "attack": attack}]}
    )


def inputs() -> Tensor:
    simulation = Simulation.of(experiment())
    return torch.cat([client.x_test for client in simulation.clients.data])


def vote_of(run: Experiment, x_T: Tensor) -> Tensor:
    simulation = Simulation.of(run)
    while not simulation.ended:
        simulation.step()
    return ballots(simulation.clients.learner, x_T, simulation.server.voters())


@pytest.mark.parametrize("detects", [{}, {**DETECTS, "eviction": {"bounded": False}}])
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack["name"])
def test_certified_predictions_of_disjoint_groups_survive_attacks(
    attack: dict[str, str], detects: dict[str, Any]
) -> None:
    calm, x_T = experiment(server={**GROUPS["server"], **detects}), inputs()
    votes_TC = vote_of(calm, x_T)
    radii_T = radii(votes_TC)
    assert {0, 1} <= set(radii_T.tolist())
    for hostile in (1, 2):
        after_T = winners(vote_of(attacked(calm, attack, hostile), x_T))
        assert torch.equal(after_T[radii_T >= hostile], winners(votes_TC)[radii_T >= hostile])


@pytest.mark.slow
@pytest.mark.parametrize("attack", ATTACKS[:2], ids=lambda attack: attack["name"])
def test_certified_predictions_of_all_subsets_survive_attacks(attack: dict[str, str]) -> None:
    calm, x_T = experiment(clients=6), inputs()
    subsets = subsets_of(calm, 100, 1)
    assert len(subsets) == 6

    def votes(run: Experiment) -> Tensor:
        runs = [simulate_clients(run, subset) for subset in subsets]
        learner = runs[0].clients.learner
        return ballots(learner, x_T, [one.server.global_D for one in runs])

    votes_TC = votes(calm)
    radii_T = subset_radii(votes_TC, 6, 1)
    assert (radii_T >= 1).any()
    after_T = winners(votes(attacked(calm, attack, 1)))
    assert torch.equal(after_T[radii_T >= 1], winners(votes_TC)[radii_T >= 1])


def test_group_certificate_equals_the_curve_in_the_simulations_summary() -> None:
    run = experiment(**GROUPS)
    result = certify_groups(run)
    assert result.curve == pytest.approx(simulate(run).summary()["certified"])
    assert (result.scheme, result.clients, result.present, result.error) == (
        "disjoint groups",
        5,
        0,
        0,
    )
    assert len(result.curve) == result.voters // 2 + 1
    assert list(result.curve) == sorted(result.curve, reverse=True)


def test_certificate_of_one_client_subsets_has_one_voter_per_client() -> None:
    run = attacked(experiment(), {"name": "sign_flip"}, 1)
    calls: list[tuple[int, int]] = []
    result = certify_subsets(run, 99, 1, on_progress=lambda done, of: calls.append((done, of)))
    assert calls == [(number, 5) for number in range(1, 6)]
    assert (result.voters, result.present, result.error) == (5, 1, 0.0)
    assert result.samples == sum(
        len(client.y_test)
        for client, role in zip(Simulation.of(run).clients.data, run.roles, strict=True)
        if role is None
    )
    assert 0 < result.curve[0] <= 1


def test_random_subsets_state_their_error_and_are_reproducible() -> None:
    run = experiment(clients=8)
    result = certify_subsets(run, 6, 4, error=0.1)
    assert (result.voters, result.error) == (6, pytest.approx(0.12))
    exact = subsets_of(run, 6, 4)
    assert exact == subsets_of(run, 6, 4) != subsets_of(experiment(clients=8, seed=6), 6, 4)
    assert all(len(set(subset)) == 4 for subset in exact)


def test_federation_of_selected_clients_excludes_all_others() -> None:
    simulation = simulate_clients(experiment(), ["client-01", "client-03"])
    assert [record.participants for record in simulation.records] == 2 * [
        ["client-01", "client-03"]
    ]


def test_uncertifiable_experiments_are_rejected_with_a_reason() -> None:
    with pytest.raises(ConfigurationError, match="no groups that train separately"):
        certify_groups(experiment())
    with pytest.raises(ConfigurationError, match="set fraction = 1"):
        certify_groups(experiment(fraction=0.5, **GROUPS))
    with pytest.raises(ConfigurationError, match='set policy = "sync"'):
        certify_groups(experiment(policy="buffered", **GROUPS))
    with pytest.raises(ConfigurationError, match=r"set server\.eviction\.bounded = false"):
        certify_groups(experiment(server={**GROUPS["server"], **DETECTS}))
    with pytest.raises(ConfigurationError, match="one global model"):
        certify_subsets(experiment(**GROUPS), 3, 2)
    with pytest.raises(ConfigurationError, match="'interpolated' trains no global model"):
        certify_subsets(experiment(personalizer={"name": "interpolated", "mode": "exact"}), 3, 2)
    with pytest.raises(ConfigurationError, match="subset cannot have 9 of 5"):
        certify_subsets(experiment(), 3, 9)
    assert sides(experiment())[1] == []
