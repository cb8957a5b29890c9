"""The wire format: golden bytes, one test per refusal, and arbitrary bytes.

Legend: D parameters.
"""

import io
import json
import math
import struct
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load as load_numpy

from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol import wire
from rampart_fl.shared.protocol.messages import ClientReport
from rampart_fl.shared.protocol.refusals import (
    InvalidClaim,
    InvalidUpdate,
    Malformed,
    NotFinite,
    Refusal,
)

SPEC = ModelSpec.of([("b", (2,)), ("a", (1, 2))])
REPORT = {"report": '{"samples": 3}'}
ENTRIES: dict[str, Any] = {
    "a": {"dtype": "F32", "shape": [1, 2], "data_offsets": [0, 8]},
    "b": {"dtype": "F32", "shape": [2], "data_offsets": [8, 16]},
}


def file(entries: Any, buffer: bytes = bytes(16)) -> bytes:
    """A file with any header."""
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + buffer


def read(data: bytes, spec: ModelSpec = SPEC) -> wire.Header:
    return wire.read_header(io.BytesIO(data), len(data), spec)


def vector(data: bytes, spec: ModelSpec = SPEC) -> list[float]:
    numbers: list[float] = wire.read_model(data, spec).tolist()
    return numbers


# -- the format ----------------------------------------------------------------------------------


def test_encoding_matches_golden_bytes() -> None:
    vector_D = np.array([1.0, -2.0, 0.5, 65504.0], dtype=np.float32)
    golden = {
        "F32": (
            b'\x90\x00\x00\x00\x00\x00\x00\x00{"__metadata__":{"report":"{}"},'
            b'"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},'
            b'"b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}   ',
            "0000803f000000c00000003f00e07f47",
        ),
        "F16": (
            b'\x90\x00\x00\x00\x00\x00\x00\x00{"__metadata__":{"report":"{}"},'
            b'"a":{"dtype":"F16","shape":[1,2],"data_offsets":[0,4]},'
            b'"b":{"dtype":"F16","shape":[2],"data_offsets":[4,8]}}    ',
            "003c00c00038ff7b",
        ),
        "BF16": (
            b'\x90\x00\x00\x00\x00\x00\x00\x00{"__metadata__":{"report":"{}"},'
            b'"a":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]},'
            b'"b":{"dtype":"BF16","shape":[2],"data_offsets":[4,8]}}  ',
            "803f00c0003f8047",
        ),
    }
    for dtype, (head, buffer) in golden.items():
        written = wire.encode(SPEC, vector_D, {"report": "{}"}, dtype)
        assert written == head + bytes.fromhex(buffer)
        assert len(head) % 8 == 0, "the buffer is aligned"


def test_safetensors_library_reads_encoded_models() -> None:
    vector_D = np.array([1.5, -2, 3, 4], dtype=np.float32)
    result = load_numpy(wire.encode(SPEC, vector_D))
    assert {name: tensor.tolist() for name, tensor in result.items()} == {
        "a": [[1.5, -2.0]],
        "b": [3.0, 4.0],
    }


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=4, max_size=4))
def test_float32_values_round_trip_exactly(numbers: list[float]) -> None:
    assert vector(wire.encode(SPEC, np.array(numbers, dtype=np.float32))) == numbers


@given(st.lists(st.floats(-6e4, 6e4, width=32), min_size=4, max_size=4))
def test_16_bit_round_trip_error_is_at_most_half_a_unit_in_the_last_place(
    numbers: list[float],
) -> None:
    for dtype, digits, smallest in (("F16", 11, 2.0**-24), ("BF16", 8, 0.0)):
        back = vector(wire.encode(SPEC, np.array(numbers, dtype=np.float32), None, dtype))
        for before, after in zip(numbers, back, strict=True):
            assert abs(after - before) <= max(abs(before) * 2.0**-digits, smallest / 2, 2.0**-133)


@given(st.integers(0, 2**16 - 1), st.sampled_from(["F16", "BF16"]))
def test_16_bit_values_survive_widening_and_narrowing(bits: int, dtype: str) -> None:
    raw = np.array([bits], dtype=np.uint16)
    wide = wire.widen(raw, dtype)
    if math.isnan(wide[0]):
        return  # Not accepted in either form.
    assert wire.narrow(wide, dtype).tolist() == [bits]


def test_bfloat16_rounds_to_nearest_even() -> None:
    halfway = np.array([0x3F808000, 0x3F818000, 0x3F808001], dtype=np.uint32).view(np.float32)
    assert wire.narrow(halfway, "BF16").tolist() == [0x3F80, 0x3F82, 0x3F81]


NANS = np.array(
    [
        sign << 31 | 0xFF << 23 | high << 16 | low
        for sign in (0, 1)
        for high in range(0x80)
        for low in (0, 1, 2, 0x3FFF, 0x4000, 0x7FFF, 0x8000, 0x8001, 0xC000, 0xFFFE, 0xFFFF)
        if high or low
    ],
    dtype=np.uint32,
)
"""Bit patterns of NaNs in float32: quiet and signalling ones, and CUDA's 0x7FFFFFFF."""


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_every_nan_stays_a_nan_and_keeps_its_sign(dtype: str) -> None:
    assert {0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0x7FC00000} <= {*NANS.tolist()}
    for bits in NANS:
        wide = np.array([0x3F800000, bits, 0x40000000], dtype=np.uint32).view(np.float32)
        back = wire.widen(wire.narrow(wide, dtype), dtype)
        assert math.isnan(back[1]), hex(bits)
        assert math.copysign(1, back[1]) == (-1 if bits >> 31 else 1), hex(bits)
        assert (back[0], back[2]) == (1, 2)
    together = wire.widen(wire.narrow(NANS.view(np.float32), dtype), dtype)
    assert np.isnan(together).all()


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_infinities_stay_infinities(dtype: str) -> None:
    both = np.array([np.inf, 1, -np.inf, np.nan], dtype=np.float32)
    back = wire.widen(wire.narrow(both, dtype), dtype)
    assert back[:3].tolist() == [math.inf, 1, -math.inf]


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1))
def test_bfloat16_agrees_with_torch(patterns: list[int]) -> None:
    """The payload of a NaN may differ."""
    wide = np.array(patterns, dtype=np.uint32).view(np.float32)
    expected = torch.from_numpy(wide.copy()).to(torch.bfloat16).float().numpy()
    back = wire.widen(wire.narrow(wide, "BF16"), "BF16")
    np.testing.assert_array_equal(back, expected)


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_range_of_a_vector_can_be_read_alone(dtype: str) -> None:
    spec = ModelSpec.of([("w", (9,))])
    file = io.BytesIO(wire.encode(spec, np.arange(9, dtype=np.float32), {}, dtype))
    head, part = wire.read_header(file, len(file.getvalue()), spec), np.empty(4, np.float32)
    wire.read_vector(file, head, part, 3)
    assert part.tolist() == [3, 4, 5, 6]


def test_size_cap_admits_the_largest_valid_file() -> None:
    report = json.dumps(
        {"samples": 10**9, "metrics": {f"{'m' * 62}{i:02}": -1e15 for i in range(64)}}
    )
    longest = wire.encode(SPEC, np.zeros(4, dtype=np.float32), {"report": report})
    assert len(longest) <= wire.size_cap(SPEC)
    assert wire.read_report(read(longest), 10**9).samples == 10**9


# -- refusals of headers -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "too few"),
        (bytes(7), "too few"),
        (struct.pack("<Q", 2**64 - 1), "header has 18446744073709551615 bytes"),
        (struct.pack("<Q", 100) + b"{}", "ends within its header"),
        (file(b""), "not a JSON object"),
        (file(b"{"), "not a JSON object"),
        (file(b"\xff\xfe"), "not a JSON object"),
        (file(b'{"a": 1, "a": 2}'), "distinct keys"),
        (file(b'{"a": {"dtype": 1, "dtype": 2}}'), "distinct keys"),
        (file(b"[" * 60_000), "not a JSON object"),
        (file(b'{"a":' * 10_000), "not a JSON object"),
        (file(b'{"a": ' + b"9" * 5000 + b"}"), "not a JSON object"),
        (file(b"[]"), "not a JSON object"),
        (file(b"null"), "not a JSON object"),
        (file({"__metadata__": 1, **ENTRIES}), "__metadata__"),
        (file({"__metadata__": {"a": 1}, **ENTRIES}), "__metadata__"),
    ],
)
def test_files_that_are_not_safetensors_are_malformed(data: bytes, reason: str) -> None:
    with pytest.raises(Malformed, match=reason):
        read(data)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"b": None}, "missing: b"),
        ({"c": ENTRIES["b"]}, "unknown tensors: c"),
        ({"a": 1}, "an entry must have"),
        ({"a": []}, "an entry must have"),
        ({"a": {**ENTRIES["a"], "stride": 1}}, "an entry must have"),
        ({"a": {"dtype": "F32", "shape": [1, 2]}}, "an entry must have"),
        ({"a": {**ENTRIES["a"], "dtype": ["F32"]}}, "an entry must have"),
        ({"a": {**ENTRIES["a"], "dtype": "F64"}}, "the same dtype"),
        ({"a": {**ENTRIES["a"], "dtype": "F16"}}, "the same dtype"),
        ({"a": {**ENTRIES["a"], "shape": [2, 1]}}, "a: the shape is"),
        ({"a": {**ENTRIES["a"], "shape": [1]}}, "a: the shape is"),
        ({"a": {**ENTRIES["a"], "shape": [1.0, 2.0]}}, "an entry must have"),
        ({"a": {**ENTRIES["a"], "shape": [True, 2]}}, "an entry must have"),
        ({"a": {**ENTRIES["a"], "data_offsets": [8, 16]}}, "a: data_offsets"),
        ({"b": {**ENTRIES["b"], "data_offsets": [9, 17]}}, "b: data_offsets"),
        ({"b": {**ENTRIES["b"], "data_offsets": [-8, 0]}}, "b: data_offsets"),
        ({"b": {**ENTRIES["b"], "data_offsets": [8, 2**64]}}, "b: data_offsets"),
    ],
)
def test_header_that_does_not_match_the_model_is_an_invalid_update(
    change: dict[str, Any], reason: str
) -> None:
    entries = {k: v for k, v in {**ENTRIES, **change}.items() if v is not None}
    with pytest.raises(InvalidUpdate, match=reason):
        read(file(entries))


@pytest.mark.parametrize("buffer", [bytes(15), bytes(17), b"", bytes(8)])
def test_buffer_of_the_wrong_size_is_rejected(buffer: bytes) -> None:
    with pytest.raises(InvalidUpdate, match="the buffer has"):
        read(file(ENTRIES, buffer))


def test_header_nested_to_the_recursion_limit_is_rejected() -> None:
    for depth in range(900, 1010, 5):
        nested = b"[" * depth + b"]" * depth
        for key in (b"dtype", b"shape"):
            with pytest.raises((Malformed, InvalidUpdate)):
                read(file(b'{"a":{"%s":%s},"b":1}' % (key, nested)))


# -- refusals of claims --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"format": "pt"},
        {**REPORT, "more": ""},
        {"report": ""},
        {"report": "[]"},
        {"report": "{}"},
        {"report": '{"samples": 0}'},
        {"report": '{"samples": -1}'},
        {"report": '{"samples": 1.5}'},
        {"report": '{"samples": 1e12}'},
        {"report": '{"samples": NaN}'},
        {"report": '{"samples": 11}'},
        {"report": '{"samples": 3, "metrics": {"a": NaN}}'},
        {"report": '{"samples": 3, "metrics": {"a": Infinity}}'},
        {"report": '{"samples": 3, "metrics": {"a": 1e16}}'},
        {"report": '{"samples": 3, "metrics": {"A": 1}}'},
        {"report": '{"samples": 3, "metrics": {"test_samples": 1, "correct_local": 2}}'},
        {"report": '{"samples": 3, "metrics": {"a": "1e999"}}'},
        {"report": '{"samples": 3, "metrics": {"a": "1"}}'},
        {"report": '{"samples": 3, "metrics": {"a": true}}'},
        {"report": '{"samples": true}'},
        {"report": '{"samples": "3"}'},
        {"report": '{"samples": 3, "weight": 1}'},
        {"report": '{"samples": 3, "samples": 4, "x": 1}'},
        {"report": "[" * 5000},
        {"report": "\ud800"},
        {"report": '{"samples": 3, "\ud800": 1}'},
    ],
)
def test_malformed_or_out_of_bounds_claims_are_rejected(metadata: dict[str, str]) -> None:
    with pytest.raises(InvalidClaim):
        wire.read_report(read(file({"__metadata__": metadata, **ENTRIES})), sample_cap=10)


@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({}, "the metadata have no entry 'report'"),
        ({**REPORT, "more": "", "also": ""}, "entries report and format, not also, more"),
        ({"report": "{"}, "report: Invalid JSON"),
        ({"report": '{"samples": 3, "weight": 1}'}, "report: weight: no such key"),
        ({"report": '{"samples": 11}'}, "the client claims 11 samples; it may claim at most 10"),
    ],
)
def test_refusal_of_a_report_says_what_is_wrong(metadata: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidClaim, match=text) as refused:
        wire.read_report(read(file({"__metadata__": metadata, **ENTRIES})), sample_cap=10)
    assert refused.value.title == "A report is missing, malformed or impossible"


def test_report_at_the_sample_cap_is_accepted() -> None:
    metadata = {"report": '{"samples": 10, "metrics": {"a": -1e15}}', "format": "pt"}
    head = read(file({"__metadata__": metadata, **ENTRIES}))
    assert wire.read_report(head, 10) == ClientReport(samples=10, metrics={"a": -1e15})


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_non_finite_numbers_are_detected_at_any_position(dtype: str, number: float) -> None:
    spec = ModelSpec.of([("w", (wire.CHUNK // 2 + 3,))])
    for place in (0, wire.CHUNK // wire.SIZES[dtype], spec.dim - 1):
        vector_D = np.zeros(spec.dim, dtype=np.float32)
        wire_bytes = bytearray(wire.encode(spec, vector_D, None, dtype))
        head = read(bytes(wire_bytes), spec)
        wire.check_finite(io.BytesIO(wire_bytes), head)
        bits = wire.encode(ModelSpec.of([("x", (1,))]), np.array([number], "f4"), None, dtype)
        size = wire.SIZES[dtype]
        start = head.start + min(place, spec.dim - 1) * size
        wire_bytes[start : start + size] = bits[-size:]
        with pytest.raises(NotFinite):
            wire.check_finite(io.BytesIO(wire_bytes), head)


# -- any bytes -----------------------------------------------------------------------------------

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
entry = st.fixed_dictionaries(
    {
        "dtype": st.sampled_from(["F32", "F16", "BF16", "F64", ""]) | json_values,
        "shape": st.sampled_from([[1, 2], [2], [2, 1]]) | json_values,
        "data_offsets": st.sampled_from([[0, 8], [8, 16], [0, 4], [4, 8]]) | json_values,
    }
)
headers = st.dictionaries(
    st.sampled_from(["a", "b", "__metadata__", "c"]),
    entry | st.sampled_from([REPORT, *ENTRIES.values()]) | json_values,
)


@given(
    st.binary(max_size=64)
    | st.builds(file, headers | st.binary(max_size=40), st.binary(max_size=20))
    | st.builds(file, headers, st.just(bytes(16)))
)
def test_arbitrary_bytes_are_a_valid_header_or_raise_a_refusal(data: bytes) -> None:
    try:
        head = read(data)
        report = wire.read_report(head, 10)
        wire.check_finite(io.BytesIO(data), head)
    except Refusal:
        return
    assert 1 <= report.samples <= 10
    assert head.dtype in wire.SIZES
    assert len(data) == head.start + wire.SIZES[head.dtype] * SPEC.dim
    assert np.isfinite(vector(data)).all()


@given(st.integers(0, 200), st.binary(min_size=1, max_size=4))
def test_corrupted_file_is_valid_or_raises_a_refusal(place: int, noise: bytes) -> None:
    data = bytearray(wire.encode(SPEC, np.ones(4, dtype=np.float32), REPORT))
    data[place : place + len(noise)] = noise
    try:
        wire.read_report(read(bytes(data)), 10)
    except Refusal:
        return
    assert len(data) == read(bytes(data)).start + 16


def test_model_spec_is_recovered_from_an_encoded_model() -> None:
    assert wire.spec_in(wire.encode(SPEC, np.zeros(4, np.float32), REPORT)) == SPEC


@pytest.mark.parametrize("data", [b"", b"\2\0\0\0\0\0\0\0[]", file({"a": 1}), file(b"{")])
def test_model_without_a_valid_header_is_malformed(data: bytes) -> None:
    with pytest.raises(Malformed, match=r"header|too few"):
        wire.spec_in(data)


# -- stored files ----------------------------------------------------------------------------------


def stored(data: bytes, spec: ModelSpec = SPEC) -> wire.Header:
    return wire.read_stored_header(io.BytesIO(data), len(data), spec)


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_vector_of_a_stored_file_is_the_vector_that_was_checked(dtype: str) -> None:
    vector_D = np.array([1.0, -2.0, 0.5, 4.0], dtype=np.float32)
    data = wire.encode(SPEC, vector_D, REPORT, dtype)
    head = stored(data)
    assert (head.start, head.dtype) == (read(data).start, dtype)
    out_D = np.empty(SPEC.dim, np.float32)
    wire.read_vector(io.BytesIO(data), head, out_D)
    assert out_D.tolist() == vector_D.tolist()


def test_json_of_a_stored_float32_file_is_not_parsed_again() -> None:
    text = b"this was checked before"
    head = stored(struct.pack("<Q", len(text)) + text + bytes(4 * SPEC.dim))
    assert head == wire.Header(8 + len(text), "F32", {})


@pytest.mark.parametrize("kept", [0, 3, 8, 40, -1])
def test_stored_file_that_was_cut_is_refused(kept: int) -> None:
    with pytest.raises((Malformed, InvalidUpdate)):
        stored(wire.encode(SPEC, np.zeros(SPEC.dim, np.float32), REPORT)[:kept])
