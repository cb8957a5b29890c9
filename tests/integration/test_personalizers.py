"""Agents over HTTP and the simulator get the same personal models with each personalizer."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.figures.final import final_figures
from rampart_fl.shared.simulation import simulate
from tests.integration.in_process_federation import Hosted, vector

TINY = """
name = "personal"
seed = 3
rounds = 2
[data]
dataset = "digits"
partition = {{ name = "classes_per_client", classes = 3 }}
clients = 3
samples = 60
[model]
name = "mlp"
hidden = [8]
[training]
epochs = 2
learning_rate = 0.1
[personalizer]
name = "{name}"
[phases.collecting]
count = {{ min = 1.0 }}
"""


@pytest.mark.parametrize("name", ["apfl", "ditto", "fedbabu", "fedper", "fedrod"])
def test_personal_models_of_agents_match_the_simulator(
    host: Callable[..., Hosted], tmp_path: Path, name: str
) -> None:
    experiment = Experiment.parse(TINY.format(name=name))
    expected, hosted = simulate(experiment), host(experiment)
    hosted.honest(experiment.client_names, tmp_path / "agents")
    global_D = torch.from_numpy(vector(hosted.model("global")))
    assert torch.allclose(global_D, expected.global_D, rtol=0, atol=1e-5)
    for slot, client in enumerate(experiment.client_names):
        folder = tmp_path / f"agents/client-{slot}/runs/{hosted.run.id}"
        kept = load_file(folder / "personal.safetensors")
        assert kept.keys() == expected.personal[client].keys() != set()
        for key, tensor in expected.personal[client].items():
            assert torch.allclose(kept[key], tensor, rtol=0, atol=1e-5), key
    records = hosted.run.rounds()
    metrics = final_figures(experiment, [record.metrics for record in records], [])
    for figure, value in expected.figures.items():
        if figure.startswith("accuracy"):
            assert metrics[figure] == pytest.approx(value, abs=0.005), figure
