"""FedFomo's server: affinities from reports, the choice of offers, and the reach of liars."""

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.assignment import GLOBAL
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.eviction import Standing
from rampart_fl.shared.figures.client_metrics import sides
from rampart_fl.shared.robust import Context, Rows, State
from rampart_fl.shared.robust.customizers import Customization
from rampart_fl.shared.robust.customizers.fedfomo import FedFomo
from rampart_fl.shared.simulation import simulate
from rampart_fl.shared.validation import validate

D = 4
CLIENTS = [f"client-{k}" for k in range(8)]
GREEDY = FedFomo(peers=3, epsilon=0.0)


def rows(
    clients: list[str] = CLIENTS, reports: dict[str, list[float]] | None = None, peers: int = 3
) -> Rows:
    block_ND = torch.arange(len(clients) * D, dtype=torch.float32).view(-1, D)
    weights = reports or {}
    claims = {
        f"weight_{place:02d}": [weights.get(client, [0.0] * peers)[place] for client in clients]
        for place in range(peers)
    }
    return Rows.of(block_ND, ids=clients, metadata=claims)


def run(
    view: Rows,
    state: State | None = None,
    round_: int = 0,
    customizer: FedFomo = GREEDY,
    evicted: Sequence[str] = (),
) -> tuple[Customization, State]:
    standing = Standing(len(CLIENTS), len(CLIENTS), frozenset(evicted))
    context = Context(round=round_, seed=3, reference_D=torch.ones(D), standing=standing)
    return customizer.apply(view, view, state or State(), context)


def affinity(state: State, client: str) -> dict[str, float]:
    return dict(zip(state.ids["affinity"], state.by_id("affinity")[client].tolist(), strict=True))


def test_every_client_is_offered_the_recovered_models_of_others() -> None:
    view = rows()
    result, _ = run(view)
    assert result.models is not None
    for client in CLIENTS:
        first, *peers = result.names_for(client)
        assert first == GLOBAL and len(set(peers)) == 3 and client not in peers
        for peer in peers:
            expected_D = 1 + view.row(CLIENTS.index(peer))
            torch.testing.assert_close(result.models.model(peer), expected_D)


def test_reports_raise_the_reporters_affinities_and_the_best_are_offered() -> None:
    first, state = run(rows())
    offered = {client: first.names_for(client)[1:] for client in CLIENTS}
    reports = {client: [0.1 * k, 0.0, 2.0] for k, client in enumerate(CLIENTS)}
    second, state = run(rows(reports=reports), state, 1)
    for k, client in enumerate(CLIENTS):
        learnt = affinity(state, client)
        assert learnt[offered[client][0]] == pytest.approx(0.1 * k)
        assert learnt[offered[client][2]] == 2.0
        assert sum(learnt.values()) == pytest.approx(0.1 * k + 2.0)
        assert second.names_for(client)[1] == offered[client][2]
    assert second.names_for(CLIENTS[5])[2] == offered[CLIENTS[5]][0]
    # A further report by the same client is added.
    place = second.names_for(CLIENTS[5]).index(offered[CLIENTS[5]][2]) - 1
    again = [0.0, 0.0, 0.0]
    again[place] = 0.5
    _, state = run(rows(reports={CLIENTS[5]: again}), state, 2)
    assert affinity(state, CLIENTS[5])[offered[CLIENTS[5]][2]] == 2.5


def test_absent_clients_are_offered_models_of_participants() -> None:
    _, state = run(rows())
    result, state = run(rows(CLIENTS[:5]), state, 1)
    assert set(result.assignment) == set(CLIENTS)
    offered = {peer for names in result.assignment.values() for peer in names[1:]}
    assert offered <= set(CLIENTS[:5])
    newcomer = ["a-new-one", *CLIENTS]
    result, state = run(rows(newcomer), state, 2)
    assert len(result.names_for("a-new-one")) == 4
    assert state.ids["affinity"] == tuple(newcomer)


def test_evicted_clients_are_forgotten_and_nobody_else_notices() -> None:
    _, before = run(rows())
    reports = {client: [0.1, 0.0, 2.0] for client in CLIENTS[:6]}
    kept, kept_state = run(rows(CLIENTS[:6], reports), before, 1)
    result, state = run(rows(CLIENTS[:6], reports), before, 1, evicted=CLIENTS[6:])
    assert state.ids == dict.fromkeys(("affinity", "offered"), tuple(CLIENTS[:6]))
    assert state.tensors["affinity"].shape == (6, 6) and state.tensors["offered"].shape == (6, 3)
    assert result.assignment == {client: kept.assignment[client] for client in CLIENTS[:6]}
    for client in CLIENTS[:6]:
        learnt = affinity(kept_state, client)
        assert sum(learnt.values()) == pytest.approx(2.1)
        assert affinity(state, client) == {one: learnt[one] for one in CLIENTS[:6]}
    again = {client: [0.5, 0.0, 0.0] for client in CLIENTS[:6]}
    after, state = run(rows(CLIENTS[:6], again), state, 2, evicted=CLIENTS[6:])
    long_after, _ = run(rows(CLIENTS[:6], again), kept_state, 2)
    assert after.assignment == {client: long_after.assignment[client] for client in CLIENTS[:6]}
    _, state = run(rows(CLIENTS[:7]), state, 3)
    assert set(affinity(state, CLIENTS[6]).values()) == {0.0}, "a reinstated client starts again"


def test_two_clients_are_offered_each_other_and_a_lone_client_nobody() -> None:
    result, _ = run(rows(CLIENTS[:2]))
    assert result.assignment == {
        "client-0": (GLOBAL, "client-1"),
        "client-1": (GLOBAL, "client-0"),
    }
    result, state = run(rows(CLIENTS[:1]))
    assert result.models is None and result.assignment == {"client-0": (GLOBAL,)}
    run(rows(CLIENTS[:2]), state, 1)


LIES = [
    [1e15, 1e15, 1e15],
    [math.inf, -math.inf, math.nan],
    [-1e15, -1.0, -0.5],
    [50.0, 0.0, 1e9],
]


@pytest.mark.parametrize("lie", LIES, ids=str)
def test_false_reports_change_only_the_liars_own_offers(lie: list[float]) -> None:
    _, before = run(rows())
    honest = {client: [0.3, 0.1, 0.2] for client in CLIENTS}
    calm, calm_state = run(rows(reports=honest), before, 1)
    lied, lied_state = run(rows(reports={**honest, CLIENTS[3]: lie}), before, 1)
    for client in CLIENTS:
        if client != CLIENTS[3]:
            assert lied.names_for(client) == calm.names_for(client)
            assert affinity(lied_state, client) == affinity(calm_state, client)
    own = affinity(lied_state, CLIENTS[3]).values()
    assert all(0 <= value <= GREEDY.bound for value in own)
    # The bound lasts: the sum grows by at most the bound per round.
    for round_ in range(2, 5):
        _, lied_state = run(rows(reports={CLIENTS[3]: lie}), lied_state, round_)
    assert max(affinity(lied_state, CLIENTS[3]).values()) <= 4 * GREEDY.bound


def test_exploration_fills_the_expected_share_of_offers() -> None:
    names = [f"client-{k:03d}" for k in range(200)]
    customizer = FedFomo(peers=1, epsilon=0.3, decay=0.05)
    known = rows(names, peers=1)
    # Every client prefers the same client by far.
    likes = torch.zeros(200, 200, dtype=torch.float64)
    likes[:, 7] = 9.0
    offered = torch.full((200, 1), -1)
    state = State(
        {"affinity": likes, "offered": offered}, {"affinity": tuple(names), "offered": tuple(names)}
    )
    for round_, chance in ((0, 0.3), (3, 0.15), (6, 0.0), (50, 0.0)):
        result, _ = run(known, state, round_, customizer)
        others = sum(result.names_for(name)[1] != names[7] for name in names if name != names[7])
        assert others / 199 == pytest.approx(chance, abs=0.08)


def test_random_offers_are_reproducible_and_differ_between_rounds() -> None:
    customizer = FedFomo(peers=3, epsilon=1.0, decay=0.0)
    first, _ = run(rows(), customizer=customizer)
    again, _ = run(rows(), customizer=customizer)
    later, _ = run(rows(), round_=1, customizer=customizer)
    assert first.assignment == again.assignment != later.assignment


def test_clients_with_the_same_task_are_mostly_offered_each_other() -> None:
    """Two tasks with opposite labels: late offers come mostly from the client's own side."""
    tables = {
        "name": "sides",
        "seed": 3,
        "rounds": 12,
        "data": {"dataset": "digits", "clients": 10, "samples": 80},
        "model": {"name": "mlp", "hidden": [16]},
        "training": {"epochs": 2, "learning_rate": 0.1},
        "personalizer": "fedfomo",
        "server": {"customizer": {"name": "fedfomo", "peers": 3}},
        "attackers": [{"count": 5, "data_attack": "label_flip"}],
    }
    run = Experiment.from_tables(tables)
    result = simulate(run)
    honest, _ = sides(run)

    late = [record.assignment for record in result.records[-4:]]
    peers = [peer for assigned in late for client in honest for peer in assigned[client][1:]]
    # Chance alone would give 4 of 9.
    assert sum(peer in honest for peer in peers) / len(peers) > 0.6


@pytest.mark.slow
@pytest.mark.parametrize("attack", ["sign_flip", "model_replacement", "random_noise"])
def test_poisoned_models_barely_reduce_personalized_accuracy(attack: str) -> None:
    """Four of ten clients attack; the others' personal models stay about as accurate."""
    tables = {
        "name": "poisoned",
        "seed": 3,
        "rounds": 5,
        "data": {"dataset": "digits", "clients": 10, "samples": 80},
        "model": {"name": "mlp", "hidden": [16]},
        "training": {"epochs": 2, "learning_rate": 0.1},
        "personalizer": "fedfomo",
        "server": {"customizer": {"name": "fedfomo", "peers": 3}},
    }

    def accuracy(**attackers: object) -> float:
        run = Experiment.from_tables({**tables, "attackers": [{"count": 4, **attackers}]})
        return float(simulate(run).figures["accuracy_personalized"])

    assert accuracy(attack=attack) > accuracy() - 0.1


def test_buffered_policy_is_rejected() -> None:
    tables = {
        "name": "buffered",
        "policy": "buffered",
        "data": {"dataset": "digits"},
        "model": "cnn",
        "server": {"customizer": "fedfomo"},
    }
    with pytest.raises(ConfigurationError, match="policy = sync"):
        validate(Experiment.from_tables(tables))


def test_missing_reports_add_no_affinity() -> None:
    _, state = run(rows())
    plain = Rows.of(torch.zeros(8, D), ids=CLIENTS)
    _, state = run(plain, state, 1)
    total: Tensor = state.tensors["affinity"]
    assert float(total.sum()) == 0.0
