"""Checkpoints restore all state, and a resumed simulation gives bit-identical results."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.learning.training.personalizers import personalizers
from rampart_fl.shared.robust.base import Rows, State
from rampart_fl.shared.robust.customizers import customizers
from rampart_fl.shared.simulation import Simulation, checkpoint
from tests.other_device import NAME, near, other_device

SMALL: dict[str, Any] = {
    "name": "small",
    "rounds": 5,
    "fraction": 0.7,
    "data": {"dataset": "digits", "clients": 8, "samples": 60},
    "model": {"name": "mlp", "hidden": [8]},
    "training": {"epochs": 1, "batch_size": 20, "momentum": 0.5},
    "personalizer": {"name": "fedcap", "lambda": 0.1},
    "server": {
        "rule": ["nnm", "trimmed_mean"],
        "f": 1,
        "detectors": ["robust_distance"],
        "customizer": {"name": "fedcap", "alpha": 10, "phi": 0.1},
        "momentum": 0.3,
        "calibrate": False,
    },
    "attackers": [{"count": 2, "attack": "model_replacement"}],
}
EXPERIMENT = Experiment.from_tables(SMALL)


def untimed(summary: dict[str, Any]) -> dict[str, Any]:
    """A summary without its timings, which depend on the machine."""
    return {name: v for name, v in summary.items() if not name.startswith("seconds")}


def test_checkpoint_restores_values_of_every_type(tmp_path: Path) -> None:
    shared_D = torch.arange(6.0)
    rows = Rows.of(shared_D.view(2, 3), ["b", "a"], weights=[1, 2], metadata={"loss_gap": [0, 1]})
    memory = {
        "rounds": 3,
        "nothing": None,
        "names": ("x", "y"),
        "evicted": frozenset({"z", "x"}),
        "list": [1.5, True],
        "rows": rows,
        "state": State({"v": shared_D[2:4], "empty": torch.zeros(0)}, {"v": ("a", "b")}),
        "half": torch.ones(2, dtype=torch.bfloat16),
    }
    path = tmp_path / "one.safetensors"
    checkpoint.save(path, memory)
    state = checkpoint.load(path)
    for name in ("rounds", "nothing", "names", "evicted", "list"):
        assert state[name] == memory[name]
    assert state["rows"].ids == ("a", "b")
    for name in ("block_ND", "index_K", "weights_M"):
        assert torch.equal(getattr(state["rows"], name), getattr(rows, name))
    assert state["rows"].metadata["loss_gap"].tolist() == [1, 0]
    assert state["state"].tensors["v"].tolist() == [2, 3]
    assert state["state"].ids == {"v": ("a", "b")}
    assert state["half"].dtype == torch.bfloat16


def test_loading_to_a_device_keeps_the_host_tensors_of_rows_on_the_host(tmp_path: Path) -> None:
    path, block_ND = tmp_path / "one.safetensors", torch.arange(6.0).view(2, 3)
    rows = Rows.of(block_ND, ["b", "a"], weights=[1, 2], metadata={"loss_gap": [0, 1]})
    checkpoint.save(path, {"rows": rows.mixed(torch.eye(2)), "model": block_ND[0]})
    with other_device():
        state = checkpoint.load(path, NAME)
        rows = state["rows"]
        assert near(state["model"]).tolist() == [0, 1, 2]
        assert near(rows.block_ND).tolist() == block_ND.tolist()
        held = (rows.index_K, rows.mix_MK, rows.weights_M, rows.metadata["loss_gap"])
        assert {tensor.device.type for tensor in held} == {"cpu"}


def test_shared_tensor_is_written_once(tmp_path: Path) -> None:
    path, model_D = tmp_path / "one.safetensors", torch.zeros(100_000)
    checkpoint.save(path, {"global": model_D, "reference": model_D, "other": model_D.clone()})
    assert 800_000 < path.stat().st_size < 900_000
    state = checkpoint.load(path)
    assert state["global"] is state["reference"] is not state["other"]


def test_unsupported_values_are_rejected_and_the_old_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "one.safetensors"
    checkpoint.save(path, {"kept": 1})
    with pytest.raises(TypeError, match=r"cannot hold a .*Path"):
        checkpoint.save(path, {"kept": path})
    assert checkpoint.load(path) == {"kept": 1}
    path.write_bytes(b"something else")
    with pytest.raises(ConfigurationError, match="not a checkpoint"):
        checkpoint.load(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("at", "policy"),
    [(0, "sync"), (1, "sync"), (3, "sync"), (5, "sync"), (0, "buffered"), (3, "buffered")],
)
def test_resumed_simulation_is_bit_identical(tmp_path: Path, at: int, policy: str) -> None:
    torch.set_num_threads(1)
    experiment = Experiment.from_tables({**SMALL, "policy": policy, "buffer": 4})
    whole, path = Simulation.of(experiment), tmp_path / "one.safetensors"
    while not whole.ended:
        if len(whole.records) == at:
            checkpoint.save(path, whole.memory())
        whole.step()
    if at == 5:
        checkpoint.save(path, whole.memory())
    resumed = Simulation.of(experiment)
    resumed.recall(checkpoint.load(path), whole.records)
    assert len(resumed.records) == at
    while not resumed.ended:
        resumed.step()
    for record, other in zip(resumed.records, whole.records, strict=True):
        assert record.model_copy(update={"timings": other.timings}) == other
    mine, theirs = resumed.result().summary(), whole.result().summary()
    assert mine["seconds"] > 0
    assert untimed(mine) == untimed(theirs)
    assert policy == "buffered" or theirs["evicted"]


@pytest.mark.parametrize(
    ("customizer", "personalizer"),
    [
        *((name, "none") for name in customizers.names()),
        *(("global_model", name) for name in personalizers.names()),
        ("fedcap", "fedcap"),
        ("fedfomo", "fedfomo"),
    ],
)
def test_checkpoint_keeps_the_state_of_every_customizer_and_personalizer(
    tmp_path: Path, customizer: str, personalizer: str
) -> None:
    torch.set_num_threads(1)
    server = {"customizer": customizer}
    tables = {**SMALL, "rounds": 3, "fraction": 1, "attackers": [], "server": server}
    training = {"epochs": 1, "batch_size": 20}
    experiment = Experiment.from_tables(
        {**tables, "training": training, "personalizer": personalizer}
    )
    try:
        whole = Simulation.of(experiment)
    except ConfigurationError as unfit:
        pytest.skip(str(unfit))
    path = tmp_path / "one.safetensors"
    for _ in range(2):
        whole.step()
    checkpoint.save(path, whole.memory())
    resumed = Simulation.of(experiment)
    resumed.recall(checkpoint.load(path), whole.records)
    assert resumed.step().metrics == whole.step().metrics
    assert untimed(resumed.result().summary()) == untimed(whole.result().summary())


def test_checkpoint_of_another_experiment_or_without_records_is_rejected() -> None:
    simulation = Simulation.of(EXPERIMENT)
    simulation.step()
    memory = simulation.memory()
    with pytest.raises(ConfigurationError, match="the records have 0"):
        Simulation.of(EXPERIMENT).recall(memory, [])
    other = Simulation.of(EXPERIMENT.model_copy(update={"seed": 5}))
    with pytest.raises(ConfigurationError, match="another experiment"):
        other.recall(memory, simulation.records)


def test_checkpoint_of_a_run_that_began_with_another_model_is_rejected(tmp_path: Path) -> None:
    """The experiment's digest does not cover the content of the file `model.start`."""
    file = tmp_path / "start.safetensors"
    experiment = EXPERIMENT.started_from(file)
    network = Simulation.of(EXPERIMENT).clients.learner.spec
    for value in (0.0, 1.0):
        save_file({one.name: torch.full(one.shape, value) for one in network.tensors}, file)
        simulation = Simulation.of(experiment)
        if value == 0.0:
            simulation.step()
            memory, records = simulation.memory(), simulation.records
            Simulation.of(experiment).recall(memory, records)
    with pytest.raises(ConfigurationError, match="began with another model"):
        simulation.recall(memory, records)
