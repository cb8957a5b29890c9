"""A federation on another device gives the same models, and no training step waits for it."""

from pathlib import Path
from typing import Any

import pytest
import torch

from rampart_fl.shared.attacks.model import attacks
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.learning.training import steps
from rampart_fl.shared.learning.training.objectives import objectives
from rampart_fl.shared.learning.training.personalizers import personalizers
from rampart_fl.shared.simulation import Simulation, checkpoint, simulate
from tests.other_device import NAME, SUMS, near, other_device

EXPERIMENTS = [
    "digits-buffered",
    "digits-clustered",
    "digits-dba",
    "digits-fedfomo",
    "digits-flcert",
    "digits-fltrust",
    "digits-hmsdfl",
    "digits-privacy",
    "digits-robust",
    "digits-sageflow",
    "digits-sign-flip",
]


@pytest.fixture(autouse=True)
def _without_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disables the compiled kernels, because other devices have none."""
    monkeypatch.setenv("RAMPART_KERNELS", "torch")


@pytest.fixture(autouse=True)
def _unaccounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skips computing ε: it is not compared here, and Opacus takes longer than the rounds."""
    monkeypatch.setattr("rampart_fl.shared.learning.training.privacy.epsilon", lambda *_: 0.0)


def short(name: str, **changes: object) -> Experiment:
    """A shipped experiment with few rounds of a few steps: more would repeat the same ones."""
    experiment = Experiment.load(name)
    training = experiment.training.model_copy(update={"epochs": 1})
    data = experiment.data.model_copy(update={"samples": 20})
    less = {"rounds": 2, "training": training, "data": data}
    return experiment.model_copy(update={**less, **changes})


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_rounds_on_another_device_give_the_same_models(name: str) -> None:
    here = Simulation.of(short(name))
    expected = [here.step() for _ in range(2)]
    with other_device():
        there = Simulation.of(short(name), NAME)
        result = [there.step() for _ in range(2)]
    torch.testing.assert_close(near(there.server.global_D), here.server.global_D, **SUMS)
    for one, other in zip(result, expected, strict=True):
        assert one.participants == other.participants and one.status == other.status
        assert {v.client: v.decision for v in one.verdicts} == {
            v.client: v.decision for v in other.verdicts
        }
    for key, tensor_K in here.clients.personal.items():
        torch.testing.assert_close(near(there.clients.personal[key]), tensor_K, **SUMS)


SMALL: dict[str, Any] = {
    "name": "small",
    "rounds": 2,
    "data": {"dataset": "digits", "clients": 6, "samples": 60},
    "model": {"name": "mlp", "hidden": [8]},
    "training": {"epochs": 1, "batch_size": 40},
    "server": {"rule": "trimmed_mean", "f": 2},
}
NEEDED: dict[str, dict[str, Any]] = {
    "schedule": {"attacks": ["ipm"]},
    "sybil_clones": {"attack": "min_max"},
}
"""Options that some attacks require."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "part",
    [
        # fedfomo needs a customizer that offers models: digits-fedfomo above has both.
        *({"personalizer": name} for name in personalizers.names() if name != "fedfomo"),
        {"personalizer": {"name": "interpolated", "mode": "exact"}},
        *({"training": {"objective": [name]}} for name in objectives.names()),
        {"training": {"momentum": 0.9, "output_noise": 0.1}},
        *(
            {"attackers": [{"count": 2, "attack": {"name": name, **NEEDED.get(name, {})}}]}
            for name in attacks.names()
        ),
    ],
    ids=str,
)
def test_every_member_gives_the_same_models_on_another_device(part: dict[str, Any]) -> None:
    training = {**SMALL["training"], **part.get("training", {})}
    experiment = Experiment.from_tables({**SMALL, **part, "training": training})
    here = simulate(experiment)
    with other_device():
        there = simulate(experiment, device=NAME)
    torch.testing.assert_close(near(there.global_D), here.global_D, **SUMS)
    for name, model_D in here.models.items():
        torch.testing.assert_close(near(there.models[name]), model_D, **SUMS)


@pytest.mark.parametrize("name", ["digits-sign-flip", "digits-hmsdfl", "digits-privacy"])
def test_training_steps_do_not_wait_for_the_device(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    take = steps.take_steps

    def counted(*args: Any) -> Any:
        before = device.waits.total()
        made = take(*args)
        counts.append(device.waits.total() - before)
        return made

    monkeypatch.setattr("rampart_fl.shared.learning.training.local.take_steps", counted)
    with other_device() as device:
        Simulation.of(short(name), NAME).step()
    assert counts and not any(counts), device.waits


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits-sign-flip", "digits-buffered", "digits-fedfomo"])
def test_run_resumes_on_another_device_from_its_checkpoint(name: str, tmp_path: Path) -> None:
    path, here = tmp_path / "checkpoint.safetensors", Simulation.of(short(name, rounds=3))
    for _ in range(2):
        here.step()
    checkpoint.save(path, here.memory())
    expected = here.step()
    with other_device():
        there = Simulation.of(short(name, rounds=3), NAME)
        there.recall(checkpoint.load(path, NAME), list(here.records[:2]))
        result = there.step()
    assert result.participants == expected.participants
    torch.testing.assert_close(near(there.server.global_D), here.server.global_D, **SUMS)
