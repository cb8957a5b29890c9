"""What a simulated federation does about clients that its detector would evict."""

from pathlib import Path
from typing import Any

import pytest
import torch

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.figures.final import decisions
from rampart_fl.shared.protocol.messages import RoundRecord
from rampart_fl.shared.simulation import Simulation, checkpoint

SMALL: dict[str, Any] = {
    "name": "small",
    "seed": 3,
    "rounds": 6,
    "placement": "last",
    "data": {
        "dataset": "digits",
        "partition": {"name": "classes_per_client", "classes": 2},
        "clients": 8,
        "samples": 60,
    },
    "model": {"name": "mlp", "hidden": [8]},
    "training": {"epochs": 1},
    "attackers": [{"count": 3, "attack": {"name": "gaussian", "std": 1.0}}],
}
HONEST, HOSTILE = [f"client-0{k}" for k in range(5)], ["client-05", "client-06", "client-07"]


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def experiment(eviction: dict[str, Any], f: int | None = None, **tables: Any) -> Experiment:
    server = {
        "detectors": [{"name": "norm_bound", "threshold": 5.0}],
        "customizer": "fedcap",
        "eviction": eviction,
        "f": f,
    }
    return Experiment.from_tables({**SMALL, "server": server, **tables})


def run(definition: Experiment) -> Simulation:
    simulation = Simulation.of(definition)
    while not simulation.ended:
        simulation.step()
    return simulation


def out(record: RoundRecord) -> dict[str, str]:
    """The decisions about all clients that were not accepted."""
    return {v.client: v.decision for v in record.verdicts if v.decision != "accepted"}


def test_observe_mode_records_evictions_without_effect() -> None:
    simulation = run(experiment({"mode": "observe"}))
    everyone = HONEST + HOSTILE
    for record in simulation.records:
        assert record.participants == everyone
        assert out(record) == {}
        assert sorted(record.weights) == everyone
    requested = {v.client for v in simulation.records[0].verdicts if v.asked == "evicted"}
    assert requested == set(HOSTILE)
    undefended = {**experiment({}).tables()["server"], "detectors": []}
    plain = run(experiment({}, server=undefended))
    assert torch.equal(simulation.server.global_D, plain.server.global_D)


def test_reject_mode_excludes_rows_without_evicting_clients() -> None:
    simulation = run(experiment({"mode": "reject"}))
    for record in simulation.records:
        assert record.participants == HONEST + HOSTILE
        assert out(record) == dict.fromkeys(HOSTILE, "rejected")
    assert simulation.server.evicted == frozenset()


def test_a_quarantine_ends_and_the_client_is_probed_again() -> None:
    simulation = run(experiment({"mode": "quarantine", "rounds": 2}))
    away = [record.quarantined for record in simulation.records]
    assert away == [[], HOSTILE, HOSTILE, [], HOSTILE, HOSTILE]
    for number, record in enumerate(simulation.records):
        back = number in (0, 3)
        assert record.participants == (HONEST + HOSTILE if back else HONEST)
        assert out(record) == (dict.fromkeys(HOSTILE, "quarantined") if back else {})
        assert record.probed == (HOSTILE if number == 3 else [])
    summary = simulation.result().summary()
    assert summary["evicted"] == [] and summary["fnr"] == 1
    assert summary["decisions"]["hostile"] == {"quarantined": 6, "away": 12}
    assert summary["silenced"] == {"honest": 0, "hostile": 1}


def test_unconfirmed_eviction_proposals_lapse() -> None:
    simulation = run(experiment({"by": "operator", "patience": 3}))
    assert [bool(record.quarantined) for record in simulation.records] == [
        *(False, True, True, True),
        *(False, True),
    ]
    for number in (0, 4):
        assert out(simulation.records[number]) == dict.fromkeys(HOSTILE, "proposed")
    assert simulation.server.evicted == frozenset()


@pytest.mark.parametrize(("f", "barred"), [(None, 3), (2, 2), (0, 0)])
def test_suspects_beyond_the_eviction_budget_are_only_excluded_from_the_round(
    f: int | None, barred: int
) -> None:
    simulation = run(experiment({}, f))
    assert len(simulation.server.evicted) == barred
    assert simulation.server.evicted <= set(HOSTILE)
    for number, record in enumerate(simulation.records):
        kinds = list(out(record).values())
        assert kinds.count("abstained") == 3 - barred
        assert kinds.count("evicted") == (barred if number == 0 else 0)
    undecided = {v.client for v in simulation.records[-1].verdicts if v.decision == "abstained"}
    assert undecided == set(HOSTILE) - simulation.server.evicted


def test_majority_is_never_evicted_unless_evictions_are_unbounded() -> None:
    server = {"detectors": [{"name": "norm_bound", "threshold": 1e-6}]}
    bounded = run(experiment({}, server=server))
    assert len(bounded.server.evicted) == 3
    server["eviction"] = {"bounded": False}
    free = run(experiment({}, server=server))
    assert len(free.server.evicted) == 8
    assert len(free.records) == 1, "nobody is left"


def test_reinstating_a_client_frees_eviction_budget() -> None:
    simulation = Simulation.of(experiment({}, 2))
    simulation.step()
    (undecided,) = set(HOSTILE) - simulation.server.evicted
    assert out(simulation.step()) == {undecided: "abstained"}
    reinstated = max(simulation.server.evicted)
    simulation.server.evicted -= {reinstated}
    result = out(simulation.step())
    assert sorted(result.values()) == ["abstained", "evicted"]
    assert len(simulation.server.evicted) == 2


def test_rounds_fail_while_all_clients_are_quarantined() -> None:
    server = {
        "detectors": [{"name": "norm_bound", "threshold": 1e-6}],
        "eviction": {"mode": "quarantine", "rounds": 2, "bounded": False},
    }
    simulation = run(experiment({}, server=server))
    assert [record.status for record in simulation.records] == [
        *("published", "failed", "failed"),
        *("published", "failed", "failed"),
    ]
    assert simulation.records[1].reason == "every client is quarantined"
    assert simulation.records[3].participants == HONEST + HOSTILE
    away = [record.quarantined for record in simulation.records]
    everyone = HONEST + HOSTILE
    assert away == [[], everyone, everyone, [], everyone, everyone]
    counts = decisions(simulation.experiment, simulation.records)
    assert counts["decisions"]["honest"]["away"] == 4 * len(HONEST)
    assert counts["silenced"] == {"honest": 1.0, "hostile": 1.0}


@pytest.mark.parametrize(
    ("eviction", "decision"),
    [
        ({"mode": "quarantine", "rounds": 2}, "quarantined"),
        ({"by": "operator", "patience": 2}, "proposed"),
    ],
)
def test_rounds_succeed_while_barred_clients_leave_too_few_rows_for_f(
    eviction: dict[str, Any], decision: str
) -> None:
    """Krum needs 2f + 3 rows, so the five rows of the honest clients suffice for f = 1 only."""
    server = {"rule": "krum", "f": 2, "detectors": [{"name": "norm_bound", "threshold": 5.0}]}
    attackers = [{"count": 2, "attack": {"name": "gaussian", "std": 1.0}}]
    definition = experiment({}, server={**server, "eviction": eviction}, attackers=attackers)
    simulation = run(definition)
    assert [record.status for record in simulation.records] == ["published"] * 6
    away = HOSTILE[1:]
    assert [record.quarantined for record in simulation.records] == 2 * [[], away, away]
    for record in simulation.records:
        assert out(record) == ({} if record.quarantined else dict.fromkeys(away, decision))


def test_a_round_that_fails_records_the_clients_in_quarantine() -> None:
    """The next model overflows in both rounds, but round 0 is published for its verdicts."""
    server = {"learning_rate": 1e45, "detectors": [{"name": "norm_bound", "threshold": 5.0}]}
    server["eviction"] = {"mode": "quarantine", "rounds": 2}
    simulation = Simulation.of(experiment({}, server=server))
    first, second = simulation.step(), simulation.step()
    assert out(first) == dict.fromkeys(HOSTILE, "quarantined")
    assert (second.status, second.quarantined) == ("failed", HOSTILE)
    assert second.reason == "the next global model would not be finite"


def test_clients_rejoin_after_quarantine_under_the_buffered_policy() -> None:
    definition = experiment(
        {"mode": "quarantine", "rounds": 2}, policy="buffered", buffer=4, rounds=12
    )
    simulation = run(definition)
    barred: dict[str, int] = {}
    again = set()
    for record in simulation.records:
        for client, back in barred.items():
            if record.round < back:
                assert client not in record.participants
                assert client in record.quarantined
        for client, decision in out(record).items():
            assert decision == "quarantined" and client in HOSTILE
            again |= {client} & barred.keys()
            barred[client] = record.round + 3
    assert again, "somebody came back and was quarantined again"


@pytest.mark.parametrize("policy", ["sync", "buffered"])
def test_a_quarantine_survives_a_checkpoint(policy: str, tmp_path: Path) -> None:
    definition = experiment({"mode": "quarantine", "rounds": 2}, policy=policy)
    whole, path = Simulation.of(definition), tmp_path / "one.safetensors"
    for _ in range(3):
        whole.step()
    assert whole.server.quarantined
    checkpoint.save(path, whole.memory())
    resumed = Simulation.of(definition)
    resumed.recall(checkpoint.load(path), whole.records)
    for _ in range(3):
        mine, theirs = resumed.step(), whole.step()
        assert mine.model_copy(update={"timings": theirs.timings}) == theirs
