"""Files with mixing weights: they are lossless, and other libraries can read them."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load

from rampart_fl.shared.protocol.mixing import decode_mixing, encode_mixing

NAMES = st.lists(st.text(min_size=1, max_size=9), min_size=1, max_size=5, unique=True)


@st.composite
def mixings(draw: st.DrawFn) -> dict[str, dict[str, float]]:
    models, clients = draw(NAMES), draw(NAMES)
    weight = st.floats(allow_nan=False, width=draw(st.sampled_from([32, 64])))
    return {model: {client: draw(weight) for client in clients} for model in models}


@given(mixings())
def test_mixing_weights_round_trip_exactly(mixing: dict[str, dict[str, float]]) -> None:
    result = decode_mixing(encode_mixing(mixing))
    assert result == mixing
    assert [list(row) for row in result.values()] == [list(row) for row in mixing.values()]
    assert list(result) == list(mixing)


@pytest.mark.parametrize(("weight", "dtype"), [(0.25, np.float32), (0.1, np.float64)])
def test_safetensors_library_reads_files_with_mixing_weights(
    weight: float, dtype: Any, tmp_path: Any
) -> None:
    data = encode_mixing({"a": {"x": weight, "y": 1.0, "z": 0.0}, "b": {"x": 0, "y": 0, "z": 2.0}})
    tensor = load(data)["mixing"]
    assert tensor.dtype == dtype
    np.testing.assert_array_equal(tensor, [[weight, 1, 0], [0, 0, 2]])
    (tmp_path / "file").write_bytes(data)
    with safe_open(tmp_path / "file", "numpy") as file:
        metadata = file.metadata()
    assert {name: json.loads(text) for name, text in metadata.items()} == {
        "models": ["a", "b"],
        "clients": ["x", "y", "z"],
    }
