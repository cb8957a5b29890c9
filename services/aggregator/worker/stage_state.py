"""Stores the stages' state between rounds in a blob, and loads it."""

import io
import json
from collections.abc import Iterable, Mapping

import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from rampart_fl.services.aggregator.state.blobs import BlobReader, Blobs
from rampart_fl.services.aggregator.state.keys import SCHEMA
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.robust.base import State


def store_state(blobs: Blobs, state: State) -> str | None:
    """Writes the stages' state to a blob and returns its digest; None if the state is empty."""
    if not state.tensors and not state.ids:
        return None
    tensors = {name: t.detach().cpu().contiguous() for name, t in sorted(state.tensors.items())}
    ids = {name: list(ids) for name, ids in state.ids.items()}
    metadata = {"schema": SCHEMA, "ids": json.dumps(ids, sort_keys=True)}
    if state.vectors:
        metadata["vectors"] = json.dumps(sorted(state.vectors))
    return blobs.put(_ordered(save_tensors(tensors, metadata)))


def _ordered(data: bytes) -> bytes:
    """Sorts the keys in the header of a safetensors file, so that equal states have equal bytes."""
    start, entries = wire.parse_header(io.BytesIO(data), len(data))
    return wire.pack_header(entries, ordered=True) + data[start:]


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
