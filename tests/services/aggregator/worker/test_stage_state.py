"""The stages' state as a blob: equal state has equal bytes."""

import multiprocessing
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import distributed

from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.worker.ranks import Ranks
from rampart_fl.services.aggregator.worker.stage_state import load_state, store_state
from rampart_fl.shared.robust.base import State
from rampart_fl.shared.robust.shards import Part
from rampart_fl.shared.runtime.disk_block import BlockStorage
from tests.contracts.test_streaming import most_held

CPU = torch.device("cpu")


def test_state_is_restored_bit_for_bit_with_the_same_digest(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    state = State(
        {
            "velocity": torch.tensor([1.0, -0.0, float("inf"), float("nan"), 1e-45]),
            "evidence": torch.tensor([0.1, 1 / 3], dtype=torch.float64),
            "count": torch.tensor(3),
            "half": torch.tensor([[1.5], [2.5]], dtype=torch.bfloat16).T,
        },
        {"evidence": ("b", "ä"), "nobody": ()},
    )
    first = store_state(blobs, state)
    again = load_state(blobs, first, CPU)
    assert again.ids == state.ids
    assert again.tensors.keys() == state.tensors.keys()
    for name, tensor in state.tensors.items():
        other = again.tensors[name]
        assert (other.dtype, other.shape) == (tensor.dtype, tensor.shape)
        assert other.contiguous().view(-1).view(torch.uint8).tolist() == (
            tensor.contiguous().view(-1).view(torch.uint8).tolist()
        )
    assert store_state(blobs, again) == first
    shuffled = State(dict(reversed(state.tensors.items())), dict(reversed(state.ids.items())))
    assert store_state(blobs, shuffled) == first, "the order of names does not matter"


def test_empty_state_stores_no_blob(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    assert store_state(blobs, State()) is None
    empty = load_state(blobs, None, CPU)
    assert (empty.tensors, empty.ids) == ({}, {})
    assert list(blobs.digests()) == []


def test_rank_loads_only_its_coordinates_of_vectors(tmp_path: Path) -> None:
    blobs, numbers = Blobs(tmp_path), torch.arange(5.0)
    state = State(
        {"velocity": numbers, "evidence": numbers.clone()}, vectors=frozenset({"velocity"})
    )
    held = load_state(blobs, store_state(blobs, state), CPU, slice(1, 3))
    assert held.vectors == {"velocity"}
    assert held.tensors["velocity"].tolist() == [1, 2]
    assert held.tensors["evidence"].tolist() == numbers.tolist()


def rows_of_clients() -> State:
    """A matrix with one row per client, and numbers that are no coordinates."""
    tensors = {"sum": torch.arange(12.0).view(3, 4), "count": torch.arange(3)}
    ids = {"sum": ("a", "b", "c"), "count": ("a", "b", "c")}
    return State(tensors, ids, frozenset({"sum"}))


def test_rows_of_clients_are_loaded_into_a_file_if_memory_is_full(tmp_path: Path) -> None:
    blobs, state = Blobs(tmp_path), rows_of_clients()
    digest = store_state(blobs, state)
    for memory, filed in ((None, False), (48, False), (47, True)):
        again = load_state(blobs, digest, CPU, storage=BlockStorage(memory, tmp_path))
        assert again.files.keys() == ({"sum"} if filed else set())
        assert again.ids == state.ids and again.vectors == state.vectors
        assert all(torch.equal(again.tensors[name], t) for name, t in state.tensors.items())
        assert store_state(blobs, again) == digest


def test_rank_loads_only_its_coordinates_of_the_rows_of_clients(tmp_path: Path) -> None:
    blobs, state = Blobs(tmp_path), rows_of_clients()
    storage = BlockStorage(0, tmp_path)
    held = load_state(blobs, store_state(blobs, state), CPU, slice(1, 3), storage)
    assert held.tensors["sum"].tolist() == [[1, 2], [5, 6], [9, 10]]
    assert held.tensors["count"].tolist() == [0, 1, 2]


def test_matrix_without_rows_is_restored(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    empty = State({"sum": torch.zeros(0, 4)}, {"sum": ()}, frozenset({"sum"}))
    again = load_state(blobs, store_state(blobs, empty), CPU)
    assert again.tensors["sum"].shape == (0, 4) and again.ids == {"sum": ()}


def test_state_is_stored_without_a_copy_in_memory(tmp_path: Path) -> None:
    state = State({"history": torch.ones(40, 1 << 18)}, {"history": tuple(map(str, range(40)))})
    blobs = Blobs(tmp_path)
    store_state(blobs, state)
    assert most_held(lambda: store_state(blobs, state)) < state.tensors["history"].nbytes / 2


PARTS = (slice(0, 3), slice(3, 4), slice(4, 4))
"""The coordinates of three ranks; the last rank has none."""


def store_as_rank(rank: int, folder: Path) -> None:
    """Stores the rows of clients as one of several ranks, and writes the digest to a file."""
    store = distributed.FileStore(str(folder / "store"), len(PARTS))
    distributed.init_process_group("gloo", store=store, rank=rank, world_size=len(PARTS))
    world, here, state = distributed.group.WORLD, PARTS[rank], rows_of_clients()
    vectors = {"sum": state.tensors["sum"], "velocity": torch.tensor([1.0, -0.0, 2.0, 1e-45])}
    held = {name: vector[..., here] for name, vector in vectors.items()}
    state = replace(state, tensors={**state.tensors, **held}, vectors=frozenset(vectors))
    part, ranks = Part(4, here.start, here.stop, world), Ranks(rank, len(PARTS), world, world)
    (folder / str(rank)).write_text(store_state(Blobs(folder), state, part, ranks) or "none")
    distributed.destroy_process_group()


@pytest.mark.processes
def test_ranks_together_store_the_same_bytes_as_one_process(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ranks = [context.Process(target=store_as_rank, args=(i, tmp_path)) for i in range(len(PARTS))]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(60)
    state = rows_of_clients()
    state.tensors["velocity"] = torch.tensor([1.0, -0.0, 2.0, 1e-45])
    state = replace(state, vectors=frozenset({"sum", "velocity"}))
    digest = store_state(Blobs(tmp_path / "alone"), state)
    assert [(tmp_path / str(rank)).read_text() for rank in range(len(PARTS))] == [digest] * 3
    assert list(Blobs(tmp_path).digests()) == [digest]
    assert list(Blobs(tmp_path).unfinished.iterdir()) == []
