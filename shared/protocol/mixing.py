"""Reads and writes the mixing weights of a round's models as the bytes of a safetensors file.

The file has one tensor `mixing`, with one row per model and one column per client. The file's
metadata contains the names of the models and clients as the JSON lists `models` and `clients`.

Legend: L models, N clients.
"""

import io
import json
from collections.abc import Mapping

import numpy as np

from rampart_fl.shared.protocol import wire

NAME = "mixing"
DTYPES = {"F32": "<f4", "F64": "<f8"}
Mixing = Mapping[str, Mapping[str, float]]


def encode_mixing(mixing: Mixing) -> bytes:
    """Encodes the weight of each client in each model.

    The weights are stored in float32 if float32 represents all of them exactly, and otherwise in
    float64.

    Args:
        mixing: weights, keyed by model and then by client; all models must have the same clients.

    >>> decode_mixing(encode_mixing({"a": {"a": 0.75, "b": 0.25}}))
    {'a': {'a': 0.75, 'b': 0.25}}
    """
    clients = list(next(iter(mixing.values()), {}))
    weights_LN = np.array([[row[c] for c in clients] for row in mixing.values()], dtype="<f8")
    weights_LN = weights_LN.reshape(len(mixing), len(clients))
    with np.errstate(over="ignore"):
        narrow_LN = weights_LN.astype("<f4")
    exact = bool((narrow_LN == weights_LN).all())
    data = (narrow_LN if exact else weights_LN).tobytes()
    entry = {
        "dtype": "F32" if exact else "F64",
        "shape": list(weights_LN.shape),
        "data_offsets": [0, len(data)],
    }
    metadata = {"models": json.dumps(list(mixing)), "clients": json.dumps(clients)}
    return wire.pack_header({"__metadata__": metadata, NAME: entry}) + data


def decode_mixing(data: bytes) -> dict[str, dict[str, float]]:
    """The inverse of `encode_mixing`."""
    start, entries = wire.parse_header(io.BytesIO(data), len(data))
    entry, metadata = entries[NAME], entries["__metadata__"]
    weights_LN = np.frombuffer(data[start:], DTYPES[entry["dtype"]]).reshape(entry["shape"])
    clients = json.loads(metadata["clients"])
    return {
        model: dict(zip(clients, weights_N.tolist(), strict=True))
        for model, weights_N in zip(json.loads(metadata["models"]), weights_LN, strict=True)
    }
