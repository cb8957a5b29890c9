"""The worker's memory as pointers: equal state has equal bytes, and every pointer is named."""

from pathlib import Path

import pytest
import torch

from rampart_fl.services.aggregator.state.blobs import Blobs
from rampart_fl.services.aggregator.state.snapshot import Snapshot, load_state, store_state
from rampart_fl.shared.errors import ConfigurationError
from rampart_fl.shared.protocol.messages import Receipt
from rampart_fl.shared.robust.base import State

CPU = torch.device("cpu")


def digest(letter: str) -> str:
    return letter * 64


SNAPSHOT = Snapshot(
    global_model=digest("0"),
    reference=digest("1"),
    state=digest("2"),
    pool=(
        Receipt(
            round=3,
            kind="update",
            client="a",
            digest=digest("3"),
            started=digest("4"),
            samples=7,
            metrics={"loss": 0.1 + 0.2, "gap": 5e-324},
        ),
        Receipt(round=3, kind="update", client="b", digest=digest("5")),
    ),
    customized={"a": digest("6"), "b": digest("7")},
    assignment={"b": ("b", "a")},
    groups=("x:0",),
    voters=("a",),
    position="17-4",
    pulls=("b", "c"),
)


def test_a_snapshot_comes_back_byte_for_byte() -> None:
    text = SNAPSHOT.model_dump_json()
    again = Snapshot.model_validate_json(text)
    assert again == SNAPSHOT
    assert again.model_dump_json() == text
    assert Snapshot.parse(SNAPSHOT.model_dump(mode="json")) == SNAPSHOT


def test_a_snapshot_names_every_blob() -> None:
    assert SNAPSHOT.blobs() == {digest(str(n)) for n in range(8)}
    first = Snapshot(global_model=digest("0"), reference=digest("0"))
    assert first.blobs() == {digest("0")}


def test_a_client_is_handed_its_models_and_at_the_end_those_that_vote() -> None:
    assert SNAPSHOT.handed("a") == {"model": digest("6")}
    assert SNAPSHOT.handed("b") == {"model": digest("7"), "peer_00": digest("6")}
    assert SNAPSHOT.handed("b", final=True) == {"model": digest("7"), "vote_00": digest("6")}
    assert [SNAPSHOT.knows(client) for client in "abc"] == [True, True, True]
    first = Snapshot(global_model=digest("0"), reference=digest("0"))
    assert first.handed("a") == {"model": digest("0")} and not first.knows("a")


@pytest.mark.parametrize("version", ["0", "2", None])
def test_another_schema_is_refused(version: str | None) -> None:
    raw = {**SNAPSHOT.model_dump(mode="json"), "schema_version": version}
    with pytest.raises(ConfigurationError, match=f"schema {version}"):
        Snapshot.parse(raw)


def test_state_comes_back_bit_for_bit_and_to_the_same_digest(tmp_path: Path) -> None:
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


def test_no_state_is_no_blob(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    assert store_state(blobs, State()) is None
    empty = load_state(blobs, None, CPU)
    assert (empty.tensors, empty.ids) == ({}, {})
    assert list(blobs.digests()) == []
