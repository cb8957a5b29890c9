"""Reads an experiment's initial model from a safetensors file.

The file's tensors may be named as in a `ModelSpec` (Rampart's own files) or as in a module's
`state_dict()` (files that PyTorch users save).

Legend: D elements of the whole vector.
"""

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.experiment.start import Start
from rampart_fl.shared.modelspec import STATISTIC, ModelSpec

COUNT = "num_batches_tracked"
"""Batch normalization counts batches in tensors whose names end with this word. No result depends
on these counts, so they are not read."""
DTYPES = {"F64", "F32", "F16", "BF16"}


def read_start(start: Start, spec: ModelSpec) -> Tensor:
    """The first global model (D,) in float32.

    Raises:
        ConfigurationError: `start` names a run instead of a file, the file does not exist, or its
            tensors do not match the model's tensors. The message names the cause.
    """
    if start.file is None:
        raise ConfigurationError(
            f"model.start: only the federation that stores the run {start.run!r} can start with "
            "the model of this run. In all other cases, export the run, and set model.start to "
            '{ file = "..." } with the path of the exported model'
        )
    return read_vector(Path(start.file), spec)


def read_vector(path: Path, spec: ModelSpec) -> Tensor:
    """The vector (D,) in float32 from a file that holds exactly the tensors of a spec.

    Raises:
        ConfigurationError: the file is missing or not in the safetensors format, a tensor is
            missing or unknown, a shape or dtype is wrong, or a number is not finite.
    """
    if not path.is_file():
        raise ConfigurationError(f"model.start: there is no file {path}")
    try:
        with safe_open(path, framework="pt") as file:
            names = _names(set(file.keys()), spec, path)
            parts = []
            for tensor in spec.tensors:
                name = names[tensor.name]
                held = file.get_slice(name)
                shape, dtype = tuple(held.get_shape()), held.get_dtype()
                if shape != tensor.shape:
                    raise ConfigurationError(
                        f"model.start: {name!r} in {path} has the shape {list(shape)}, but the "
                        f"experiment's model needs {list(tensor.shape)}"
                    )
                if dtype not in DTYPES:
                    raise ConfigurationError(
                        f"model.start: {name!r} in {path} holds {dtype}, not one of "
                        f"{', '.join(sorted(DTYPES))}"
                    )
                parts.append(file.get_tensor(name).float().flatten())
    except (SafetensorError, OSError) as error:
        raise ConfigurationError(f"model.start: cannot read {path}: {error}") from None
    model_D = torch.cat(parts)
    if not bool(model_D.isfinite().all()):
        raise ConfigurationError(f"model.start: {path} has a NaN or an infinity")
    return model_D


def _names(held: set[str], spec: ModelSpec, path: Path) -> dict[str, str]:
    """The names of the file's tensors, keyed by the names of the spec's tensors."""
    plain = {tensor.name: tensor.name.removeprefix(STATISTIC) for tensor in spec.tensors}
    names = {name: name if name in held else plain[name] for name in plain}
    missing = sorted(plain[name] for name in plain if names[name] not in held)
    counts = {name for name in held if name.rpartition(".")[2] == COUNT}
    unknown = sorted(held - set(names.values()) - counts)
    if missing:
        raise ConfigurationError(
            f"model.start: {path} lacks {_listed(missing)} of the experiment's model"
            + (f", and has {_listed(unknown)} instead" if unknown else "")
        )
    if unknown:
        raise ConfigurationError(
            f"model.start: {path} has {_listed(unknown)}, which the experiment's model does not "
            "have"
        )
    return names


def _listed(names: list[str]) -> str:
    shown = ", ".join(repr(name[:80]) for name in names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more tensors"
