"""Stores the stages' state between rounds in a blob, and loads it."""

import io
import json
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from rampart_fl.services.aggregator.state.blobs import BlobReader, Blobs
from rampart_fl.services.aggregator.state.keys import SCHEMA
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.robust.base import State


def store_state(blobs: Blobs, state: State) -> str | None:
    """Writes the stages' state to a blob and returns its digest; None if the state is empty."""
    if not state.tensors and not state.ids:
        return None
    ids = {name: list(ids) for name, ids in state.ids.items()}
    metadata = {"schema": SCHEMA, "ids": json.dumps(ids, sort_keys=True)}
    if state.vectors:
        metadata["vectors"] = json.dumps(sorted(state.vectors))
    entries = _entries(state.tensors)
    with blobs.writer() as writer:
        # Equal states have equal bytes, because the keys of the header are sorted.
        writer.write(wire.pack_header({**entries, "__metadata__": metadata}, ordered=True))
        # A state can be as large as all updates, so it is written without a copy in memory.
        for name in entries:
            numbers = state.tensors[name].detach().cpu().contiguous().view(-1)
            if len(numbers):
                writer.write(numbers.view(torch.uint8).numpy().data)
        return writer.commit()


def _entries(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """The tensors' entries in a safetensors header, in the order of the tensors in the file."""
    # The library knows the names of dtypes, and the order that aligns all tensors.
    small = save_tensors({name: torch.zeros(1, dtype=t.dtype) for name, t in tensors.items()})
    _, known = wire.parse_header(io.BytesIO(small), len(small))
    entries, end = dict[str, Any](), 0
    for name in sorted(known, key=lambda name: known[name]["data_offsets"]):
        start, end = end, end + tensors[name].nbytes
        shape = list(tensors[name].shape)
        entries[name] = {**known[name], "shape": shape, "data_offsets": [start, end]}
    return entries


def load_state(
    blobs: BlobReader, digest: str | None, device: torch.device, here: slice | None = None
) -> State:
    """Loads a state that `store_state` wrote; keeps only the coordinates `here` of each vector."""
    if digest is None:
        return State()
    with blobs.open(digest) as file:
        data = file.read()
    _, head = wire.parse_header(io.BytesIO(data), len(data))
    ids: Mapping[str, Iterable[str]] = json.loads(head["__metadata__"]["ids"])
    vectors = frozenset(json.loads(head["__metadata__"].get("vectors", "[]")))
    tensors = {
        name: (t[here].clone() if here is not None and name in vectors else t).to(device)
        for name, t in load_tensors(data).items()
    }
    return State(tensors, {name: tuple(one) for name, one in ids.items()}, vectors)
