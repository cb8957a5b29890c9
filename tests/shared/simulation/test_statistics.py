"""Networks with batch normalization in a whole federation: clients' statistics under attack."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.figures.client_metrics import sides
from rampart_fl.shared.simulation import Simulation, checkpoint, simulate

TABLES: dict[str, Any] = {
    "name": "normalized",
    "seed": 3,
    "rounds": 3,
    "fraction": 0.8,
    "data": {"dataset": "digits", "clients": 5, "samples": 24},
    "model": {"name": "wide_resnet", "depth": 10, "width": 1},
    "training": {"epochs": 1, "learning_rate": 0.05},
    "personalizer": {"name": "fedcap", "lambda": 0.1},
    "server": {
        "detectors": [{"name": "norm_bound", "threshold": 1e3}],
        "customizer": {"name": "fedcap", "phi": 0.1},
    },
    "attackers": [{"count": 1, "attack": {"name": "gaussian", "std": 100.0}}],
}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def statistics_of(run: Simulation, models: list[Tensor]) -> Tensor:
    return torch.stack(models)[:, run.clients.learner.spec.trainable :]


@pytest.mark.slow
def test_models_share_the_median_statistics_and_resumed_runs_agree(tmp_path: Path) -> None:
    run = Simulation.of(Experiment.from_tables(TABLES))
    evicted = set()
    path = tmp_path / "memory"
    while not run.ended:
        run.step()
        server = run.server
        evicted |= {v.client for v in run.records[-1].verdicts if v.decision == "evicted"}
        held = statistics_of(run, list(server.next_models(run.clients.names).values()))
        assert torch.equal(held, server.global_D[-held.shape[1] :].expand_as(held))
        assert bool((held.abs() < 20).all()), "noise of 100 would show"
        for name, start, stop in server.rounds.spec.statistics:
            if name.endswith("running_var"):
                assert bool((server.global_D[start:stop] > 0).all())
        if len(run.records) == 2:
            checkpoint.save(path, run.memory())
            records = list(run.records)
    assert evicted == set(sides(run.experiment)[1])

    resumed = Simulation.of(Experiment.from_tables(TABLES))
    resumed.recall(checkpoint.load(path), records)
    while not resumed.ended:
        resumed.step()
    assert resumed.result().summary()["models_digest"] == run.result().summary()["models_digest"]


def test_norms_exclude_running_statistics() -> None:
    """Statistics start at 0 and 1, far from those of images: norms over them would be larger."""
    tables = {**TABLES, "rounds": 1, "attackers": [], "server": {}, "personalizer": "none"}
    result = simulate(Experiment.from_tables(tables))
    run = Simulation.of(Experiment.from_tables(tables))
    names = sorted(result.records[0].norms)
    sent_KD = run.server.models(0, names, {})
    uploads = run.clients.train(names, sent_KD, run.server.global_D, 0)
    end = run.server.rounds.spec.trainable
    for name, norm in result.records[0].norms.items():
        update_D = uploads.update_KD[names.index(name)]
        assert norm == pytest.approx(update_D[:end].norm().item(), rel=1e-4)
        assert norm < 0.5 * update_D.norm().item()
