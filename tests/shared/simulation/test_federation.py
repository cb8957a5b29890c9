"""A whole federation in one process: reproducible, and as the services would run it."""

from typing import Any

import pytest
import torch

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.figures.client_metrics import accuracies, sides
from rampart_fl.shared.figures.run_result import SimulationSummary
from rampart_fl.shared.learning.data.server_data import server_data
from rampart_fl.shared.learning.training.learner import Learner
from rampart_fl.shared.robust.evidence.trials import from_state
from rampart_fl.shared.robust.pipeline import split_state
from rampart_fl.shared.simulation import Simulation, SimulationResult, simulate

SMALL: dict[str, Any] = {
    "name": "small",
    "seed": 3,
    "rounds": 4,
    "data": {
        "dataset": "digits",
        "partition": {"name": "classes_per_client", "classes": 2},
        "clients": 10,
        "samples": 60,
    },
    "model": {"name": "cnn", "channels": [4, 8], "hidden": 16},
    "training": {"epochs": 1},
    "personalizer": {"name": "fedcap", "lambda": 0.1},
    "server": {
        "detectors": ["robust_distance"],
        "customizer": {"name": "fedcap", "alpha": 10, "phi": 0.1},
    },
}


def run(**tables: Any) -> SimulationResult:
    return simulate(Experiment.from_tables({**SMALL, **tables}))


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.slow
def test_runs_are_bit_reproducible() -> None:
    attackers = [{"count": 3, "attack": "sign_flip"}]
    first, again = (run(attackers=attackers, fraction=0.6) for _ in range(2))
    for result in (first, again):
        assert len(result.records) == 4
    summaries = [
        {key: v for key, v in result.summary().items() if not key.startswith("seconds")}
        for result in (first, again)
    ]
    assert summaries[0] == summaries[1]
    assert [r.model_copy(update={"timings": {}}) for r in first.records] == [
        r.model_copy(update={"timings": {}}) for r in again.records
    ]


def test_summary_has_the_stable_keys() -> None:
    summary = run(rounds=1).summary()
    assert set(summary) - {"largest_gap"} == {
        *("experiment", "experiment_digest", "models_digest", "rounds", "accuracy"),
        *("accuracy_customized", "accuracy_local", "accuracy_personalized", "attack_success"),
        *("dacc", "fpr", "fnr", "evicted", "rounds_to_accuracy", "failed_rounds"),
        *("decisions", "silenced", "bytes_per_client", "seconds_per_round", "seconds"),
    }
    assert SimulationSummary.__required_keys__ <= set(summary)
    assert set(summary) <= SimulationSummary.__required_keys__ | SimulationSummary.__optional_keys__


def test_overwhelming_attackers_are_rejected_in_round_0_and_evicted_in_round_1() -> None:
    result = run(attackers=[{"count": 3, "attack": "model_replacement"}])
    honest, hostile = sides(result.experiment)
    actual = [
        sorted(v.client for v in record.verdicts if v.decision != "accepted")
        for record in result.records
    ]
    assert actual == [hostile, hostile, [], []]
    assert result.figures["evicted"] == hostile
    assert result.records[1].probed == hostile
    assert result.records[2].participants == honest


def test_label_flipping_changes_only_the_attackers_losses() -> None:
    honest = run(rounds=1, server={})
    flipped = run(rounds=1, server={}, attackers=[{"count": 3, "data_attack": "label_flip"}])
    same, other = honest.records[0].metrics, flipped.records[0].metrics
    for name, role in zip(honest.experiment.client_names, flipped.experiment.roles, strict=True):
        assert (same[name]["loss_before"] != other[name]["loss_before"]) == (role is not None)


def test_attack_starts_in_its_configured_round() -> None:
    sleeper = {"name": "model_replacement", "from_round": 2}
    result = run(attackers=[{"count": 2, "attack": sleeper}], rounds=3)
    out = [any(v.decision != "accepted" for v in r.verdicts) for r in result.records]
    assert out == [False, False, True]


def test_half_the_clients_are_drawn_and_those_absent_last_round_are_probed() -> None:
    result = run(fraction=0.5, rounds=3)
    for before, record in zip(result.records, result.records[1:], strict=False):
        assert len(record.participants) == 5
        assert record.probed == sorted(set(record.participants) - set(before.participants))
    drawn = {tuple(record.participants) for record in result.records}
    assert len(drawn) > 1


def test_records_state_bytes_per_client_and_seconds_per_step() -> None:
    """A probed client loads a second model and sends a second upload."""
    result = run(fraction=0.5, rounds=3)
    size = 4 * len(result.global_D)
    for record in result.records:
        assert set(record.timings) == {
            *("probe", "models", "train", "calibrate"),
            *("screen", "aggregate", "audit", "customize", "record"),
        }
        for name in record.participants:
            times = 1 + (name in record.probed)
            assert times * size < record.bytes_down[name] < times * (size + 1000)
            assert times * size < record.bytes_up[name] < times * (size + 1500)


def test_without_customizer_everyone_gets_the_global_model() -> None:
    result = run(server={}, personalizer="none", rounds=2)
    for model_D in result.models.values():
        assert torch.equal(model_D, result.global_D)
    assert result.figures["accuracy_personalized"] is None
    assert result.figures["accuracy"] == result.figures["accuracy_customized"]


def test_similarity_uses_raw_uploads_if_calibration_is_off() -> None:
    """In round 0, all clients start from the same model, so calibration changes nothing."""
    calibrated = run(rounds=3)
    table = {**SMALL["server"], "calibrate": False}
    raw = run(rounds=3, server=table)
    assert calibrated.records[0].mixing == raw.records[0].mixing
    assert calibrated.records[1].mixing != raw.records[1].mixing


def test_federated_averaging_equals_the_weighted_mean_of_local_updates() -> None:
    """One round of plain averaging equals the weighted mean of the clients' own rounds."""
    from rampart_fl.shared.learning.data.client_data import client_data
    from rampart_fl.shared.learning.training.learner import Learner
    from rampart_fl.shared.learning.training.local import train_round

    experiment = Experiment.from_tables({**SMALL, "rounds": 1, "server": {}})
    result, learner = simulate(experiment), Learner.of(experiment)
    initial_D = learner.initial_model()
    total_D, samples = torch.zeros_like(initial_D), 0
    for slot, name in enumerate(experiment.client_names):
        data = client_data(experiment.data, slot, experiment.seed)
        state = learner.first_state(initial_D)
        own = train_round(learner, data, initial_D, state, seed=3, client=name, round_=0)
        total_D += len(data.y_train) * own.update_D
        samples += len(data.y_train)
    assert torch.allclose(result.global_D, initial_D + total_D / samples, rtol=0, atol=1e-6)


@pytest.mark.slow
def test_detectors_compare_colluders_with_the_challenges_of_selected_clients() -> None:
    attackers = [{"count": 3, "attack": {"name": "min_max"}}]
    simulation = Simulation.of(
        Experiment.from_tables(
            {
                "name": "colluders",
                "rounds": 8,
                "data": {"dataset": "digits", "clients": 10, "partition": "iid"},
                "model": "logistic",
                "server": {"rule": "weighted_mean", "detectors": ["challenge"]},
                "attackers": attackers,
            }
        )
    )
    for _ in range(8):
        simulation.step()
    known, _ = from_state(split_state(simulation.server.state)["detector-0-challenge"], 1)
    compared = {client for client, one in known.items() if one.compared}
    assert compared == set(sides(simulation.experiment)[1])


def test_fraction_may_refer_to_all_founders_after_evictions() -> None:
    """With seven of ten founders left, a round draws 60 % of ten clients, not of seven."""
    tables: dict[str, Any] = {
        "attackers": [{"count": 3, "attack": {"name": "sign_flip"}}],
        "rounds": 4,
        "fraction": 0.6,
        "fraction_of": "founders",
        "server": {
            "detectors": [{"name": "norm_bound", "threshold": 1e-3}],
            "eviction": {"bounded": False},
        },
    }
    drawn = [len(record.participants) for record in run(**tables).records]
    assert drawn == [6, 4]  # The bound evicts all six; four are left to be drawn.
    evicted = ["client-00", "client-01", "client-02"]
    left = sorted(set(Experiment.from_tables(SMALL).client_names) - set(evicted))
    of_all = Experiment.from_tables({**SMALL, "fraction": 0.6, "fraction_of": "founders"})
    of_left = Experiment.from_tables({**SMALL, "fraction": 0.6})
    assert (len(of_all.draw(1, left)), len(of_left.draw(1, left))) == (6, 5)
    assert set(of_left.draw(1, left)) < set(of_all.draw(1, left))


def test_final_evaluation_measures_the_models_of_the_last_aggregation() -> None:
    """The models of one round are those that the next round measures before its training."""
    tables: dict[str, Any] = {**SMALL, "server": {"rule": "median"}, "personalizer": "ditto"}
    ended = simulate(Experiment.from_tables({**tables, "rounds": 2}), accuracy_of="end").figures
    after = simulate(Experiment.from_tables({**tables, "rounds": 3}))
    measured = [record.metrics for record in after.records]
    shares = accuracies(after.experiment, measured)
    assert ended["accuracy_customized"] == shares[2]["customized"]
    assert ended["accuracy_personalized"] == shares[1]["personalized"]
    assert ended["accuracy_local"] == shares[1]["local"]


def test_final_evaluation_gives_undrawn_clients_customized_models() -> None:
    tables = {"fraction": 0.3, "rounds": 2, "training": {"epochs": 5}}
    simulation = Simulation.of(Experiment.from_tables({**SMALL, **tables}))
    while not simulation.ended:
        simulation.step()
    scores = simulation.evaluate()
    assert list(scores) == simulation.clients.names
    assert simulation.server.clients_to_probe(simulation.clients.names)
    customized = {name: own["correct_customized"] for name, own in scores.items()}
    common = simulation.clients.measure(
        simulation.clients.names, simulation.server.global_D.repeat(10, 1)
    )
    assert customized != {name: own["correct_customized"] for name, own in common.items()}


def test_the_server_tests_every_global_model_on_its_own_samples() -> None:
    data = {**SMALL["data"], "reserved": 150}
    test = {"dataset": "digits", "size": 120}
    result = run(data=data, server={"test": test}, personalizer="none", rounds=2)
    held = server_data("digits", 120, result.experiment.data, 3, "test", labels=True)
    network = Learner.of(result.experiment).network
    logits_nC = network.logits(result.global_D.unsqueeze(0), held.x.unsqueeze(0))[0]
    hits = int((logits_nC.argmax(1) == held.y).sum())
    assert result.records[-1].tested == {"test_samples": 120, "correct_customized": hits}
    assert result.figures["accuracy_server"] == hits / 120
