"""Figures of whole runs: equal to the final figures of `rampart up` and to hand calculation."""

from typing import Any

import pytest
import torch

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.figures.comparison import differences, run_figures
from rampart_fl.shared.figures.run_result import RunFigures
from rampart_fl.shared.protocol.messages import RoundRecord
from rampart_fl.shared.simulation import simulate

TABLES: dict[str, Any] = {
    "name": "four",
    "seed": 1,
    "rounds": 3,
    "data": {"dataset": "digits", "clients": 4, "samples": 60},
    "model": {"name": "mlp", "hidden": [8]},
    "training": {"epochs": 1},
    "attackers": [{"count": 1, "attack": "sign_flip"}],
}


def record(round_: int, status: str = "published", **facts: Any) -> RoundRecord:
    return RoundRecord.model_validate({"round": round_, "status": status, **facts})


def measured(correct: float, samples: float = 10) -> dict[str, float]:
    return {"test_samples": samples, "correct_customized": correct, "correct_local": correct + 1}


def test_run_figures_equal_the_final_summary() -> None:
    torch.set_num_threads(1)
    experiment = Experiment.from_tables({**TABLES, "server": {"detectors": ["robust_distance"]}})
    result = simulate(experiment)
    summary = result.summary()
    slots = {client: slot for slot, client in enumerate(experiment.client_names)}
    figures = run_figures(experiment, result.records, slots, summary["evicted"], 2.0)
    same = figures.keys() & summary.keys() - {"seconds"}
    assert same >= {"accuracy", "accuracy_local", "dacc", "fpr", "fnr", "evicted", "rounds"}
    assert {key: figures[key] for key in same} == {key: summary[key] for key in same}


def test_run_figures_support_custom_client_names_and_empty_slots() -> None:
    """Slot 2 is empty. The attacker's measurements do not count."""
    experiment = Experiment.from_tables({**TABLES, "placement": "last"})
    slots = {"zoe": 0, "adam": 1, "eve": 3}
    records = [
        record(
            0,
            metrics={"zoe": measured(2), "adam": measured(3), "eve": measured(10)},
            bytes_down={"zoe": 100, "adam": 100},
            bytes_up={"zoe": 30},
        ),
        record(1, status="failed", metrics={"zoe": measured(4)}, bytes_down={"zoe": 40}),
    ]
    figures = run_figures(experiment, iter(records), slots, ["eve", "adam"], None)
    assert figures == {
        "experiment": "four",
        "experiment_digest": experiment.digest(),
        "clients": 3,
        "rounds": 2,
        "failed_rounds": 1,
        "accuracy": pytest.approx(7 / 20),
        "accuracy_customized": pytest.approx(7 / 20),
        "accuracy_local": pytest.approx(9 / 20),
        "accuracy_personalized": None,
        "dacc": pytest.approx(2 / 3),
        "fpr": pytest.approx(1 / 2),
        "fnr": 0.0,
        "evicted": ["adam", "eve"],
        "bytes_per_client": {"down": 80, "up": 30},
        "bytes": 270,
        "seconds": None,
    }


def test_detection_figures_are_absent_without_attackers() -> None:
    figures = run_figures(Experiment.from_tables({**TABLES, "attackers": []}), [], {"a": 0}, ["a"])
    assert figures.keys() == RunFigures.__required_keys__
    assert not figures.keys() & {"dacc", "fpr", "fnr"}
    assert figures["accuracy"] is None
    assert figures["bytes_per_client"] == {"down": None, "up": None}


def test_differences_list_single_settings_but_whole_members() -> None:
    one = Experiment.from_tables(TABLES)
    other = Experiment.from_tables(
        {**TABLES, "seed": 2, "personalizer": "ditto", "training": {"privacy": {}, "epochs": 1}}
    )
    result = differences([one.tables(), other.tables(), one.tables()])
    assert result["seed"] == [1, 2, 1]
    assert [value["name"] for value in result["personalizer"]] == ["none", "ditto", "none"]
    assert result["training.privacy.clip"] == [None, 1.0, None]
    assert set(result) == {
        *("seed", "personalizer"),
        *(f"training.privacy.{key}" for key in ("clip", "noise_multiplier", "delta")),
    }
    assert differences([one.tables(), one.tables()]) == {}
