"""Stores the stages' state between rounds in a blob, and loads it.

A tensor with one row per client can be as large as all updates of a round together. To save memory,
such a tensor is written and read one row at a time.
"""

import io
import json
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from rampart_fl.services.aggregator.state.blobs import BlobReader, Blobs, converted_disk_errors
from rampart_fl.services.aggregator.state.keys import SCHEMA
from rampart_fl.services.aggregator.state.shared_blob import SharedBlob
from rampart_fl.services.aggregator.worker.ranks import Ranks
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.robust.base import State
from rampart_fl.shared.robust.shards import Part
from rampart_fl.shared.runtime.disk_block import Block, BlockStorage


def store_state(
    blobs: Blobs, state: State, part: Part | None = None, ranks: Ranks | None = None
) -> str | None:
    """Writes the stages' state to a blob; returns the blob's digest, or None for an empty state.

    Args:
        blobs: the run's blobs.
        state: the state.
        part: which coordinates of `state.vectors` this rank has; None for all coordinates.
        ranks: the processes of the worker, which all call this function.
    """
    if not state.tensors and not state.ids:
        return None
    ids = {name: list(ids) for name, ids in state.ids.items()}
    metadata = {"schema": SCHEMA, "ids": json.dumps(ids, sort_keys=True)}
    if state.vectors:
        metadata["vectors"] = json.dumps(sorted(state.vectors))
    entries = _entries(state, part)
    # Equal states have equal bytes, because the keys of the header are sorted.
    header = wire.pack_header({**entries, "__metadata__": metadata}, ordered=True)
    if part is None or ranks is None:
        return _write_alone(blobs, state, header, entries)
    return _write_together(blobs, state, header, entries, part, ranks)


def _write_alone(
    blobs: Blobs, state: State, header: bytes, entries: Mapping[str, Mapping[str, Any]]
) -> str:
    """Writes and hashes all tensors in one pass."""
    with blobs.writer() as writer:
        writer.write(header)
        for name in entries:
            block = state.block(name)
            for row, held in enumerate(_rows(block.tensor)):
                writer.write(_bytes(held))
                block.release(row)
        return writer.commit()


def _write_together(
    blobs: Blobs,
    state: State,
    header: bytes,
    entries: Mapping[str, Mapping[str, Any]],
    part: Part,
    ranks: Ranks,
) -> str:
    """Writes this rank's coordinates of all vectors; rank 0 writes the rest and hashes the blob."""
    with ExitStack() as stack:
        path = Path()
        if not ranks.rank:
            size = max((entry["data_offsets"][1] for entry in entries.values()), default=0)
            path = stack.enter_context(SharedBlob.created(blobs, len(header) + size))
        file = stack.enter_context(SharedBlob(blobs, ranks.broadcast(path)))
        if not ranks.rank:
            file.write_at(0, header)
        for name, entry in entries.items():
            block, first = state.block(name), len(header) + entry["data_offsets"][0]
            if name in state.vectors:
                number = block.tensor.element_size()
                lines = block.tensor.unsqueeze(0).flatten(0, -2).unbind(0)
                for row, held in enumerate(lines):
                    file.write_at(first + number * (row * part.dim + part.start), _bytes(held))
                    block.release(row)
            elif not ranks.rank:
                file.write_at(first, _bytes(block.tensor))
        ranks.wait()
        digest = ""
        if not ranks.rank:
            digest = file.digest()
            file.commit(digest)
        return ranks.broadcast(digest)


def _bytes(tensor: Tensor) -> memoryview:
    """The bytes of a tensor's numbers."""
    if not tensor.numel():
        return memoryview(b"")  # A view of an empty array cannot be written.
    return tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data


def _rows(tensor: Tensor) -> Iterable[Tensor]:
    """The rows of a matrix; if the tensor is not a matrix, the tensor itself."""
    return tensor.unbind(0) if tensor.ndim == 2 else (tensor,)


def _entries(state: State, part: Part | None) -> dict[str, Any]:
    """The tensors' entries in a safetensors header, in the order of the tensors in the file."""
    # Let safetensors choose the names of dtypes, and an order in which all tensors are aligned.
    small = save_tensors({name: torch.zeros(1, dtype=t.dtype) for name, t in state.tensors.items()})
    _, known = wire.parse_header(io.BytesIO(small), len(small))
    entries, end = dict[str, Any](), 0
    for name in sorted(known, key=lambda name: known[name]["data_offsets"]):
        tensor = state.tensors[name]
        shape = list(tensor.shape)
        if part is not None and name in state.vectors:
            shape[-1] = part.dim
        size = tensor.element_size() * torch.Size(shape).numel()
        start, end = end, end + size
        entries[name] = {**known[name], "shape": shape, "data_offsets": [start, end]}
    return entries


def load_state(
    blobs: BlobReader,
    digest: str | None,
    device: torch.device,
    here: slice | None = None,
    storage: BlockStorage | None = None,
) -> State:
    """Loads a state that `store_state` wrote.

    Args:
        blobs: the run's blobs.
        digest: digest of the state; None for an empty state.
        device: the device of the tensors.
        here: which coordinates of each vector are kept; None for all coordinates.
        storage: where matrices with one row per client are kept; in memory by default.
    """
    if digest is None:
        return State()
    storage = BlockStorage() if storage is None else storage
    with converted_disk_errors(FileNotFoundError), blobs.open(digest) as file:
        size = file.seek(0, 2)
        file.seek(0)
        begin, head = wire.parse_header(file, size)
        metadata = head.pop("__metadata__")
        ids: Mapping[str, Iterable[str]] = json.loads(metadata["ids"])
        vectors = frozenset(json.loads(metadata.get("vectors", "[]")))
        tensors, files = dict[str, Tensor](), {}
        for name, entry in head.items():
            file.seek(begin + entry["data_offsets"][0])
            kept = here if name in vectors else None
            if name in vectors and len(entry["shape"]) == 2:
                block = _load_rows(file, entry, device, kept, storage)
                tensors[name] = block.tensor
                if block.file is not None:
                    files[name] = block.file
            else:
                tensors[name] = _load(file, entry, kept).to(device)
    return State(tensors, {name: tuple(one) for name, one in ids.items()}, vectors, files)


def _load(file: BinaryIO, entry: Mapping[str, Any], here: slice | None) -> Tensor:
    """Reads the tensor at the current position of the file."""
    start, end = entry["data_offsets"]
    # safetensors knows every dtype, but needs a header. Make a header that describes this tensor
    # only.
    head = wire.pack_header({"tensor": {**entry, "data_offsets": [0, end - start]}})
    tensor = load_tensors(head + file.read(end - start))["tensor"]
    return tensor if here is None else tensor[..., here].clone()


def _load_rows(
    file: BinaryIO,
    entry: Mapping[str, Any],
    device: torch.device,
    here: slice | None,
    storage: BlockStorage,
) -> Block:
    """Reads the matrix at the current position of the file; the matrix has one row per client."""
    rows, dim = entry["shape"]
    start, end = entry["data_offsets"]
    one = {**entry, "shape": [dim], "data_offsets": [0, (end - start) // max(rows, 1)]}
    block: Block | None = None
    for row in range(rows):
        held_D = _load(file, one, here).to(device)
        if block is None:
            block = storage.zeros(rows, held_D)
        block.tensor[row] = held_D
        block.release(row)
    return Block(_load(file, entry, here).to(device)) if block is None else block
