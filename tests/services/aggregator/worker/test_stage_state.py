"""The stages' state as a blob: equal state has equal bytes."""

from pathlib import Path

import torch

from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.worker.stage_state import load_state, store_state
from rampart_fl.shared.robust.base import State
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


def test_state_is_stored_without_a_copy_in_memory(tmp_path: Path) -> None:
    state = State({"history": torch.ones(40, 1 << 18)}, {"history": tuple(map(str, range(40)))})
    blobs = Blobs(tmp_path)
    store_state(blobs, state)
    assert most_held(lambda: store_state(blobs, state)) < state.tensors["history"].nbytes / 2
