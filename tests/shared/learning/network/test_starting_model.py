"""Starting models: read bit for bit under both naming schemes, and each mismatch is named."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment import Experiment
from rampart_fl.shared.experiment.start import Start
from rampart_fl.shared.learning.network.starting_model import read_start, read_vector
from rampart_fl.shared.learning.network.vector import flatten, initial_model, spec_of, unflatten
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.simulation import simulate
from rampart_fl.shared.validation import validate


@pytest.fixture
def module() -> nn.Module:
    """A module whose running statistics differ from those of a new module."""
    torch.manual_seed(1)
    built = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    built(torch.randn(16, 3))
    return built


def cloned(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies of the tensors; safetensors refuses tensors that share memory."""
    return {name: tensor.clone() for name, tensor in tensors.items()}


def test_rampart_files_and_state_dicts_give_the_same_model(
    module: nn.Module, tmp_path: Path
) -> None:
    model_D, spec = flatten(module), spec_of(module)
    files = [tmp_path / name for name in ("wire", "named", "state")]
    files[0].write_bytes(wire.encode(spec, model_D.numpy()))
    save_file(cloned(unflatten(model_D, spec)), files[1])
    save_file(module.state_dict(), files[2])
    for file in files:
        assert torch.equal(read_vector(file, spec), model_D)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_other_floating_point_types_are_converted_to_float32(
    module: nn.Module, tmp_path: Path, dtype: torch.dtype
) -> None:
    file, model_D, spec = tmp_path / "file", flatten(module), spec_of(module)
    tensors = cloned(unflatten(model_D, spec))
    save_file({name: tensor.to(dtype) for name, tensor in tensors.items()}, file)
    found_D = read_vector(file, spec)
    assert found_D.dtype == torch.float32
    assert torch.equal(found_D, model_D.to(dtype).float())


def changed(tensors: Mapping[str, Tensor], name: str, tensor: Tensor | None) -> dict[str, Tensor]:
    """The tensors with this name's tensor replaced or left out."""
    rest = {key: value for key, value in tensors.items() if key != name}
    return rest if tensor is None else {**rest, name: tensor}


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("0.weight", None, "lacks '0.weight' of the experiment's model$"),
        ("9.weight", torch.zeros(2), "has '9.weight', which the experiment's model does not have"),
        ("0.weight", torch.zeros(3, 4), r"the shape \[3, 4\], but .* needs \[4, 3\]"),
        ("0.bias", torch.zeros(4, dtype=torch.int64), "'0.bias' in .* holds I64, not one of BF16"),
        ("0.bias", torch.full((4,), torch.nan), "has a NaN or an infinity"),
        ("0.bias", torch.full((4,), torch.inf), "has a NaN or an infinity"),
    ],
)
def test_mismatched_tensors_are_rejected_and_named(
    module: nn.Module, tmp_path: Path, name: str, tensor: Tensor | None, message: str
) -> None:
    file = tmp_path / "file"
    save_file(changed(module.state_dict(), name, tensor), file)
    with pytest.raises(ConfigurationError, match=message):
        read_vector(file, spec_of(module))


def test_error_for_different_tensor_names_shows_both(module: nn.Module, tmp_path: Path) -> None:
    file = tmp_path / "file"
    save_file({f"net.{name}": tensor for name, tensor in module.state_dict().items()}, file)
    expected = "lacks '0.bias', .* and 3 more tensors of .*, and has 'net.0.bias', .* instead"
    with pytest.raises(ConfigurationError, match=expected):
        read_vector(file, spec_of(module))


@pytest.mark.parametrize(
    "content", [b"", b"no", b"\xff" * 64, (2**40).to_bytes(8, "little") + b"{}"]
)
def test_unreadable_or_missing_files_are_rejected(
    module: nn.Module, tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    with pytest.raises(ConfigurationError, match="cannot read"):
        read_vector(file, spec_of(module))
    with pytest.raises(ConfigurationError, match="there is no file"):
        read_vector(tmp_path, spec_of(module))


def test_start_from_a_run_needs_a_federation(module: nn.Module) -> None:
    with pytest.raises(ConfigurationError, match="only the federation that stores the run 'a-1'"):
        read_start(Start(run="a-1"), spec_of(module))


TABLES: dict[str, Any] = {
    "name": "small",
    "rounds": 2,
    "data": {"dataset": "digits", "clients": 4, "samples": 60},
    "model": {"name": "mlp", "hidden": [8]},
    "training": {"epochs": 1},
    "personalizer": "ditto",
}


def saved(model_D: Tensor, experiment: Experiment, folder: Path) -> Experiment:
    """The experiment, started from this model's file in this folder."""
    file = folder / "start.safetensors"
    file.write_bytes(wire.encode(initial_model(experiment)[0], model_D.numpy()))
    return experiment.started_from(file)


def test_simulation_continues_from_a_saved_model(tmp_path: Path) -> None:
    drawn = Experiment.from_tables(TABLES)
    half = simulate(drawn)
    further = saved(half.global_D, drawn, tmp_path)
    assert torch.equal(initial_model(further)[1], half.global_D)
    first, again = (simulate(one).summary()["accuracy_customized"] for one in (drawn, further))
    assert again > first


def test_personal_models_start_from_the_saved_model(tmp_path: Path) -> None:
    """A client that is not selected keeps its first model, which is the experiment's start."""
    drawn = Experiment.from_tables({**TABLES, "rounds": 1, "fraction": 0.25})
    given_D = initial_model(drawn)[1] + 1
    result = simulate(saved(given_D, drawn, tmp_path))
    kept = [torch.equal(own["model"], given_D) for own in result.personal.values()]
    assert sorted(kept) == [False, True, True, True]


def test_validation_checks_the_start_against_the_network(tmp_path: Path) -> None:
    drawn = Experiment.from_tables(TABLES)
    started = saved(initial_model(drawn)[1], drawn, tmp_path)
    assert validate(started) == started
    wider = {**started.model, "hidden": [9]}
    with pytest.raises(ConfigurationError, match=r"shape \[8\], but .* needs \[9\]"):
        validate(started.model_copy(update={"model": wider}))
