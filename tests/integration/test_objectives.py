"""Local objectives over HTTP: agents and simulator agree, and privacy noise is unpredictable."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.learning.training.privacy import STEPS
from rampart_fl.shared.simulation import simulate
from tests.integration.in_process_federation import Hosted, vector

TINY = """
name = "objectives"
seed = 3
rounds = 2
[data]
dataset = "digits"
clients = 3
samples = 60
[model]
name = "mlp"
hidden = [8]
[training]
epochs = 2
learning_rate = 0.1
{training}
[phases.collecting]
count = {{ min = 1.0 }}
"""
TERMS = """
schedule = "cosine"
objective = [{ name = "fedprox", mu = 0.1 }, { name = "hmsdfl", lambda = 1e-3 }, "msdfl"]
"""


def run(host: Callable[..., Hosted], experiment: Experiment, folder: Path) -> Hosted:
    """Runs a federation of honest agents to its end."""
    hosted = host(experiment)
    hosted.honest(experiment.client_names, folder / "agents")
    return hosted


def test_agents_with_local_objectives_match_the_simulator(
    host: Callable[..., Hosted], tmp_path: Path
) -> None:
    experiment = Experiment.parse(TINY.format(training=TERMS))
    expected, hosted = simulate(experiment), run(host, experiment, tmp_path)
    global_D = torch.from_numpy(vector(hosted.model("global")))
    assert torch.allclose(global_D, expected.global_D, rtol=0, atol=1e-5)
    for theirs, ours in zip(hosted.run.rounds(), expected.records, strict=True):
        assert theirs.metrics.keys() == ours.metrics.keys()
        for client, metrics in ours.metrics.items():
            assert theirs.metrics[client]["jacobian_norm"] == pytest.approx(
                metrics["jacobian_norm"], rel=1e-3
            )


@pytest.mark.skipif(find_spec("opacus") is None, reason="the accountant is an optional extra")
def test_privacy_noise_is_not_derived_from_the_experiment_seed(
    host: Callable[..., Hosted], tmp_path: Path
) -> None:
    experiment = Experiment.parse(TINY.format(training="privacy = { noise_multiplier = 1 }"))
    expected, hosted = simulate(experiment), run(host, experiment, tmp_path)
    global_D = torch.from_numpy(vector(hosted.model("global")))
    assert not torch.allclose(global_D, expected.global_D, rtol=0, atol=1e-2)
    for theirs, ours in zip(hosted.run.rounds(), expected.records, strict=True):
        for client, metrics in ours.metrics.items():
            assert theirs.metrics[client]["epsilon"] == pytest.approx(metrics["epsilon"])
    for slot, client in enumerate(experiment.client_names):
        folder = tmp_path / f"agents/client-{slot}/runs/{hosted.run.id}"
        kept = load_file(folder / "personal.safetensors")
        assert kept[STEPS] == expected.personal[client][STEPS] > 0
