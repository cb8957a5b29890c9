"""Hostile bytes sent to a running federation: each file is refused with its own problem type.

test_hostile_requests.py continues with the same federation and checks its state at the end.

Legend: D parameters.
"""

import json
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import zstandard

from rampart_fl.shared.protocol import wire

Case = Callable[[Any], Any]
CASES: list[Any] = []


def refused(slug: str, status: int) -> Callable[[Case], Case]:
    """Registers a hostile upload, with the problem type and status that it must get."""

    def add(case: Case) -> Case:
        CASES.append(pytest.param(case, slug, status, id=case.__name__))
        return case

    return add


def safetensors(entries: dict[str, Any], buffer: bytes, **metadata: str) -> bytes:
    """A safetensors file with any header and any buffer."""
    head = {"__metadata__": {"report": '{"samples": 3}', **metadata}, **entries}
    text = json.dumps(head).encode()
    return struct.pack("<Q", len(text)) + text + buffer


def entries(siege: Any, dtype: str = "F32", size: int = 4) -> dict[str, Any]:
    """The header's entries of a valid update."""
    return {
        name: {
            "dtype": dtype,
            "shape": list(tensor.shape),
            "data_offsets": [start * size, stop * size],
        }
        for tensor, (name, start, stop) in zip(siege.spec.tensors, siege.spec.layout, strict=True)
    }


def changed(siege: Any, **change: Any) -> Any:
    """A valid update but for one field of its first tensor."""
    head = entries(siege)
    head[next(iter(head))].update(change)
    return siege.put("mallory", safetensors(head, bytes(4 * siege.spec.dim)))


@refused("not-finite", 422)
def one_nan(siege: Any) -> Any:
    data = bytearray(siege.update())
    data[-4:] = struct.pack("<f", float("nan"))
    return siege.put("mallory", bytes(data))


@refused("not-finite", 422)
def infinities(siege: Any) -> Any:
    return siege.put("mallory", siege.update(float("-inf")))


@refused("not-finite", 422)
def float16_infinities(siege: Any) -> Any:
    with np.errstate(over="ignore"):
        return siege.put("mallory", siege.update(1e9, "F16"))


@refused("not-finite", 422)
def bfloat16_nans(siege: Any) -> Any:
    head = wire.header(siege.spec, "BF16", {"report": '{"samples": 3}'})
    return siege.put("mallory", head + b"\xff\x7f" * siege.spec.dim)


@refused("invalid-update", 422)
def one_number_for_all(siege: Any) -> Any:
    return changed(siege, shape=[1])


@refused("invalid-update", 422)
def reversed_shape(siege: Any) -> Any:
    head = entries(siege)
    head["hidden.weight"]["shape"].reverse()
    return siege.put("mallory", safetensors(head, bytes(4 * siege.spec.dim)))


@refused("invalid-update", 422)
def float64(siege: Any) -> Any:
    data = safetensors(entries(siege, "F64", 8), bytes(8 * siege.spec.dim))
    packed = zstandard.compress(data[: 4 * siege.spec.dim])
    return siege.put("mallory", packed, Content_Encoding="zstd")


@refused("invalid-update", 422)
def two_dtypes(siege: Any) -> Any:
    return changed(siege, dtype="F16")


@refused("invalid-update", 422)
def missing_tensor(siege: Any) -> Any:
    head = entries(siege)
    head.popitem()
    return siege.put("mallory", safetensors(head, bytes(4 * siege.spec.dim)))


@refused("invalid-update", 422)
def extra_tensor(siege: Any) -> Any:
    head = entries(siege)
    head["zz"] = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    return siege.put("mallory", safetensors(head, bytes(4 * siege.spec.dim)))


@refused("invalid-update", 422)
def renamed_tensor(siege: Any) -> Any:
    head = entries(siege)
    head["\ud800"] = head.pop("output.bias")
    return siege.put("mallory", safetensors(head, bytes(4 * siege.spec.dim)))


@refused("malformed", 400)
def tensor_twice(siege: Any) -> Any:
    text = json.dumps(entries(siege))
    text = text[:-1] + "," + text[1:]
    return siege.put("mallory", struct.pack("<Q", len(text)) + text.encode())


@refused("invalid-update", 422)
def overlapping_tensors(siege: Any) -> Any:
    return changed(siege, data_offsets=[4, 4 + 4 * siege.spec.tensors[0].size])


@refused("invalid-update", 422)
def hole_between_tensors(siege: Any) -> Any:
    head = entries(siege)
    last = head[siege.spec.tensors[-1].name]
    last["data_offsets"] = [offset + 8 for offset in last["data_offsets"]]
    return siege.put("mallory", safetensors(head, bytes(4 * siege.spec.dim + 8)))


@refused("invalid-update", 422)
def offsets_beyond_the_file(siege: Any) -> Any:
    return changed(siege, data_offsets=[-(2**63), 2**64])


@refused("malformed", 400)
def header_bomb(siege: Any) -> Any:
    return siege.put("mallory", struct.pack("<Q", 2**64 - 1) + b"{}")


@refused("malformed", 400)
def nested_header(siege: Any) -> Any:
    text = b"[" * 30_000
    return siege.put("mallory", struct.pack("<Q", len(text)) + text)


@refused("malformed", 400)
def header_that_is_a_list(siege: Any) -> Any:
    return siege.put("mallory", struct.pack("<Q", 2) + b"[]")


@refused("invalid-update", 422)
def truncated_buffer(siege: Any) -> Any:
    return siege.put("mallory", siege.update()[:-1])


@refused("malformed", 400)
def truncated_header(siege: Any) -> Any:
    return siege.put("mallory", siege.update()[:100])


@refused("malformed", 400)
def no_bytes(siege: Any) -> Any:
    return siege.put("mallory", b"")


@refused("too-large", 413)
def oversize(siege: Any) -> Any:
    return siege.put("mallory", bytes(wire.size_cap(siege.spec) + 1))


@refused("too-large", 413)
def decompression_bomb(siege: Any) -> Any:
    packer = zstandard.ZstdCompressor().compressobj()
    zeros = bytes(1 << 20)
    bomb = b"".join(packer.compress(zeros) for _ in range(1024)) + packer.flush()
    return siege.put("mallory", bomb, Content_Encoding="zstd")


@refused("malformed", 400)
def huge_zstd_window(siege: Any) -> Any:
    window = zstandard.ZstdCompressionParameters(window_log=27, write_content_size=False)
    packer = zstandard.ZstdCompressor(compression_params=window).compressobj()
    data = packer.compress(siege.update()) + packer.flush()
    return siege.put("mallory", data, Content_Encoding="zstd")


@refused("malformed", 400)
def not_zstd(siege: Any) -> Any:
    return siege.put("mallory", b"plain bytes", Content_Encoding="zstd")


@refused("invalid-update", 422)
def truncated_zstd(siege: Any) -> Any:
    noise_D = np.random.default_rng(1).normal(size=siege.spec.dim).astype(np.float32)
    data = wire.encode(siege.spec, noise_D, {"report": '{"samples": 3}'})
    packed = zstandard.compress(data)
    return siege.put("mallory", packed[: len(packed) // 2], Content_Encoding="zstd")


@pytest.mark.parametrize(("case", "slug", "status"), CASES)
def test_hostile_update_is_refused_with_its_problem_type(
    siege: Any, case: Case, slug: str, status: int
) -> None:
    reply = case(siege)
    assert (reply.slug, reply.status) == (slug, status), reply.body
