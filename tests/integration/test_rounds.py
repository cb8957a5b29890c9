"""The rounds of a federation over HTTP: which clients are selected or probed, join or leave.

Legend: D coordinates, M clients in the pool.
"""

import threading
from collections.abc import Callable

import numpy as np

from rampart_fl.shared.experiment.selection import select
from tests.integration.in_process_federation import (
    FEDCAP,
    Hosted,
    Scripted,
    collecting,
    experiment,
    vector,
)

NAMES = ["ada", "bob", "cleo", "dan", "eve", "fay"]
Host = Callable[..., Hosted]


def test_every_client_takes_part_in_every_round(host: Host) -> None:
    hosted = host(experiment(3, rounds=3))
    clients = hosted.scripted(NAMES[:3])
    hosted.wait()
    for record in hosted.run.rounds():
        assert record.status == "published"
        assert record.participants == NAMES[:3]
    for client in clients.values():
        assert client.requests() == [(0, "train"), (1, "train"), (2, "train"), (2, "evaluate")]
        assert hosted.last_ticket(client.name).kind == "done"
    assert hosted.run.evaluations() == {name: {"test_samples": 1.0} for name in NAMES[:3]}


def welcomed(probe_D: np.ndarray, rows: list[np.ndarray], reference_D: np.ndarray) -> np.ndarray:
    """FedCAP's model for a newcomer, by plain loops in float64: softmax of 10 cosines, no φ."""
    cosines = [
        float(probe_D @ row_D / np.sqrt(probe_D @ probe_D) / np.sqrt(row_D @ row_D))
        for row_D in rows
    ]
    shares = [np.exp(10 * cosine) for cosine in cosines]
    mixed_D = reference_D.copy()
    for share, row_D in zip(shares, rows, strict=True):
        mixed_D += share / sum(shares) * row_D
    return mixed_D


def test_mid_run_newcomer_is_probed_and_starts_from_similar_clients(host: Host) -> None:
    first, held = NAMES[:2], threading.Event()
    phases = {**collecting(), "joining": {"clients": 2}}
    hosted = host(experiment(3, rounds=3, server=FEDCAP, phases=phases))
    clients = hosted.scripted(first, hold=lambda ticket: ticket.round == 1 and not held.is_set())
    hosted.wait("collecting", 1)
    newcomer = Scripted("cleo")
    hosted.take_part("cleo", newcomer)
    held.set()
    hosted.wait()

    # It joined while round 1 was open, and took no part in it.
    assert hosted.record(1).participants == first
    assert hosted.record(2).participants == NAMES[:3]
    assert [hosted.record(number).probed for number in range(3)] == [[], [], ["cleo"]]
    assert newcomer.requests() == [(2, "probe"), (2, "train"), (2, "evaluate")]
    assert [client.requests() for client in clients.values()] == 2 * [
        [(0, "train"), (1, "train"), (2, "train"), (2, "evaluate")]
    ]

    # Its probe starts from the reference: the global model of round 1, before its aggregation.
    reference_D = vector(newcomer.models[0]).astype(np.float64)
    assert newcomer.tickets[0].models["model"] == hosted.record(1).models["reference"]
    assert hosted.record(1).models["reference"] == hosted.record(0).models["global"]
    rows = []
    for client in clients.values():
        started_D = vector(client.models[1]).astype(np.float64)
        rows.append(started_D + client.update(1, "train", len(started_D)) - reference_D)
    probe_D = newcomer.update(2, "probe", len(reference_D)).astype(np.float64)
    expected_D = welcomed(probe_D, rows, reference_D)
    np.testing.assert_allclose(vector(newcomer.models[1]), expected_D, rtol=0, atol=1e-6)


def test_newcomer_starts_from_the_global_model_without_a_customizer(host: Host) -> None:
    held = threading.Event()
    hosted = host(experiment(3, phases={**collecting(), "joining": {"clients": 2}}))
    hosted.scripted(NAMES[:2], hold=lambda ticket: not held.is_set())
    hosted.wait("collecting", 0)
    newcomer = hosted.scripted(["cleo"])["cleo"]
    held.set()
    hosted.wait()
    assert newcomer.requests() == [(1, "train"), (1, "evaluate")]
    assert newcomer.tickets[0].models["model"] == hosted.record(0).models["global"]


def test_clients_are_drawn_by_seed_and_probed_after_a_missed_round(host: Host) -> None:
    rounds, seed = 6, 5
    hosted = host(experiment(5, rounds, seed=seed, fraction=0.6, server=FEDCAP))
    clients = hosted.scripted(NAMES[:5])
    hosted.wait()
    before: set[str] = set(NAMES)
    for record in hosted.run.rounds():
        drawn = select(seed, record.round, NAMES[:5], 0.6)
        assert len(drawn) == 3
        assert record.participants == list(drawn)
        assert record.probed == sorted(set(drawn) - before)
        before = set(drawn)
        for client in clients.values():
            kinds = [kind for number, kind in client.requests() if number == record.round]
            expected = ["train"] if client.name in drawn else []
            expected = ["probe", *expected] if client.name in record.probed else expected
            assert [kind for kind in kinds if kind != "evaluate"] == expected
    assert len({tuple(record.participants) for record in hosted.run.rounds()}) > 1


def test_an_evicted_client_is_never_drawn_again(host: Host) -> None:
    rounds, seed = 8, 3
    server = {**FEDCAP, "detectors": [{"name": "norm_bound", "threshold": 5}]}
    hosted = host(experiment(5, rounds, seed=seed, fraction=0.6, server=server))
    clients = hosted.scripted(NAMES[:4])
    clients["eve"] = Scripted("eve", scale=10.0)
    hosted.take_part("eve", clients["eve"])
    hosted.wait()
    candidates, last = set(NAMES[:5]), -1
    for record in hosted.run.rounds():
        assert record.participants == list(select(seed, record.round, candidates, 0.6))
        if "eve" in record.participants:
            (verdict,) = [v for v in record.verdicts if v.client == "eve"]
            assert verdict.decision == "evicted"
            assert verdict.score > 5
            assert "eve" not in record.customized
            candidates.remove("eve")
            last = record.round
    assert 0 <= last < rounds - 1
    assert hosted.run.status().evicted == ["eve"]
    assert hosted.last_ticket("eve").kind == "evicted"
    assert hosted.last_ticket("eve").reason


def test_reconnecting_client_keeps_its_identity_and_ticket(host: Host) -> None:
    hosted = host(experiment(3, rounds=3))
    hosted.scripted(NAMES[:2])
    stuck = Scripted("cleo", hold=lambda ticket: ticket.round == 1)
    hosted.take_part("cleo", stuck)
    hosted.wait("collecting", 1)
    while len(stuck.tickets) < 2:
        hosted.wait("collecting", 1)
    hosted.vanish("cleo")
    assert hosted.run.status().round == 1
    again = hosted.scripted(["cleo"])["cleo"]
    hosted.wait()
    assert again.tickets[0] == stuck.tickets[1]
    assert again.requests() == [(1, "train"), (2, "train"), (2, "evaluate")]
    assert [c.client_id for c in hosted.run.members()] == NAMES[:3]
    assert all(record.participants == NAMES[:3] for record in hosted.run.rounds())
