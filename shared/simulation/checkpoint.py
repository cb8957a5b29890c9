"""Checkpoints: the state of a simulated federation in one file, which is replaced atomically.

The file is in the safetensors format. The file holds every tensor unchanged. The rest of the state
(names, numbers, and the positions of the tensors in the state) is JSON in the file's metadata.
Nothing in the file can execute code.
"""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.robust.base import Rows, State
from rampart_fl.shared.robust.customizers import Customization
from rampart_fl.shared.robust.evidence.challenges import ChallengedModels, ConcatenatedModels
from rampart_fl.shared.robust.models import ClientModels, Mixture, ModelBlock
from rampart_fl.shared.robust.statistics import WithStatistics
from rampart_fl.shared.round.rounds import Neighbours
from rampart_fl.shared.runtime import durable
from rampart_fl.shared.simulation.buffered import Arrival, Work

TYPES: tuple[type[Any], ...] = (
    Rows,
    State,
    Customization,
    Mixture,
    ClientModels,
    ModelBlock,
    WithStatistics,
    Neighbours,
    ChallengedModels,
    ConcatenatedModels,
    Work,
    Arrival,
)
KEPT = {kind.__name__: kind for kind in TYPES}
"""The types that a state may hold in addition to plain values and tensors."""
DERIVED = {"pool_statistics", "traces", "storage", "files"}
"""Fields that are not saved: `pool_statistics` is computed again, and `traces` belong to a finished
round. `storage` and `files` say which tensors are in files, but a simulation keeps all tensors in
memory."""
HOST = {"index_K", "mix_MK", "mix_LM", "weights_M", "metadata"}
"""Fields whose tensors stay on the CPU, whatever device holds the models."""


def save(path: Path, memory: Mapping[str, Any]) -> None:
    """Replaces the file's content with this state; a failure leaves the file unchanged.

    Args:
        path: the file.
        memory: the state, which may nest plain values, tensors and `KEPT` types.
    Raises:
        TypeError: the state holds a value of a type that a checkpoint cannot store.
    """
    tensors: dict[str, Tensor] = {}
    encoded = json.dumps(_encode(memory, tensors, {}))
    with durable.replacing(path) as part:
        save_file(tensors, part, {"memory": encoded})


def load(path: Path, device: str = "cpu") -> dict[str, Any]:
    """Loads the state from a file; tensors go to `device`, except tensors of fields in `HOST`.

    Raises:
        ConfigurationError: the file is not a checkpoint.
    """
    try:
        with safe_open(path, "pt") as file:
            encoded = json.loads((file.metadata() or {})["memory"])
            # A tensor from the file and a new tensor can be aligned differently in memory. The
            # alignment can change the last bits of sums. A clone is aligned like any new tensor.
            tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118 - safe_open is not a mapping
    except (SafetensorError, KeyError, ValueError) as error:
        raise ConfigurationError(f"{path} is not a checkpoint of a simulation: {error}") from None
    there = {name: tensor.to(device) for name, tensor in tensors.items()}
    memory: dict[str, Any] = _decode(encoded, there, tensors)
    return memory


def _encode(value: Any, tensors: dict[str, Tensor], places: dict[Any, str]) -> Any:
    """Encodes a value as JSON; adds the value's tensors to `tensors`, each tensor once."""

    def inner(part: Any) -> Any:
        return _encode(part, tensors, places)

    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Tensor):
        place = (value.device, value.data_ptr(), value.dtype, value.shape, value.stride())
        if place not in places or not value.numel():
            places[place] = f"{len(tensors):06d}"
            tensors[places[place]] = _own(value)
        return {"tensor": places[place]}
    if is_dataclass(value) and type(value).__name__ in KEPT:
        parts = {f.name: getattr(value, f.name) for f in fields(value) if f.name not in DERIVED}
        return {"type": type(value).__name__, "fields": {n: inner(p) for n, p in parts.items()}}
    if isinstance(value, Mapping):
        assert all(isinstance(key, str) for key in value)
        return {"map": {key: inner(part) for key, part in value.items()}}
    if isinstance(value, frozenset):
        return {"set": [inner(part) for part in sorted(value)]}
    if isinstance(value, tuple):
        return {"tuple": [inner(part) for part in value]}
    if isinstance(value, list):
        return {"list": [inner(part) for part in value]}
    raise TypeError(f"a checkpoint cannot hold a {type(value).__name__}")


def _own(tensor: Tensor) -> Tensor:
    """The tensor on the CPU, in storage of its own, because safetensors refuses shared storage."""
    host = tensor.detach().cpu().contiguous()
    shared = host.untyped_storage().nbytes() != host.numel() * host.element_size()
    return host.clone() if shared else host


def _decode(encoded: Any, tensors: Mapping[str, Tensor], host: Mapping[str, Tensor]) -> Any:
    """Decodes a value from JSON; `host` holds the same tensors as `tensors`, but on the CPU."""
    if not isinstance(encoded, dict):
        return encoded
    ((kind, inside), *rest) = encoded.items()
    if kind == "tensor":
        return tensors[inside]
    if kind == "type":
        named = {
            name: _decode(part, host if name in HOST else tensors, host)
            for name, part in rest[0][1].items()
        }
        return KEPT[inside](**named)
    if kind == "map":
        return {key: _decode(part, tensors, host) for key, part in inside.items()}
    parts = [_decode(part, tensors, host) for part in inside]
    return {"set": frozenset, "tuple": tuple, "list": list}[kind](parts)
