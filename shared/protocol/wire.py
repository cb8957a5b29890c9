"""Reads and writes models and updates as safetensors bytes, without torch.

A safetensors file consists of the header's length (u64, little-endian), a JSON header, and one
gapless buffer. Rampart's files hold the tensors of a `ModelSpec` in order, all with the same
floating-point dtype. The buffer is therefore the vector (D,), and can be read in place. Rampart
does not trust files from the network: it validates every header against the spec before it changes
any state.

Legend: D parameters.
"""

import io
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from rampart_fl.shared.families.registry import explain
from rampart_fl.shared.modelspec import ModelSpec
from rampart_fl.shared.protocol.messages import ClientReport
from rampart_fl.shared.protocol.refusals import InvalidClaim, InvalidUpdate, Malformed, NotFinite

SIZES = {"F32": 4, "F16": 2, "BF16": 2}
"""Bytes per number, for each dtype that may be uploaded."""
LENGTH = struct.Struct("<Q")
CHUNK = 1 << 18
"""In one step, `check_finite` reads this number of bytes, and `read_vector` reads this number of
16-bit numbers. The data of one step fits into the processor's cache."""
MEDIA_TYPE = "application/vnd.safetensors"
TICKET_HEADER = "Rampart-Ticket"
"""HTTP response header with a client's ticket; the body is the model that the ticket names."""
RECEIPT_HEADER = "Rampart-Receipt"
"""HTTP response header with an upload's receipt; the body is the client's next ticket, or the model
that the next ticket names."""


@dataclass(frozen=True)
class Header:
    """A validated header: the buffer's offset and dtype, and the metadata."""

    start: int
    dtype: str
    metadata: Mapping[str, str]


def header(spec: ModelSpec, dtype: str = "F32", metadata: Mapping[str, str] | None = None) -> bytes:
    """The bytes before the buffer: the length and the JSON header, padded to a multiple of 8 bytes.

    >>> head = header(ModelSpec.of([("w", (2,))]))
    >>> head[8:].decode().strip()
    '{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
    """
    size = SIZES[dtype]
    entries: dict[str, Any] = {} if metadata is None else {"__metadata__": dict(metadata)}
    for tensor, (name, start, stop) in zip(spec.tensors, spec.layout, strict=True):
        offsets = [start * size, stop * size]
        entries[name] = {"dtype": dtype, "shape": list(tensor.shape), "data_offsets": offsets}
    return pack_header(entries)


def pack_header(entries: Mapping[str, Any], ordered: bool = False) -> bytes:
    """Encodes a header's entries, sorted by name if `ordered` is set; inverse of `parse_header`."""
    text = json.dumps(entries, sort_keys=ordered, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return LENGTH.pack(len(text)) + text


def encode(
    spec: ModelSpec,
    vector_D: NDArray[np.float32],
    metadata: Mapping[str, str] | None = None,
    dtype: str = "F32",
) -> bytes:
    """Encodes a float32 vector (D,) as the bytes of a file with elements of type `dtype`."""
    assert vector_D.dtype == np.float32
    assert vector_D.shape == (spec.dim,)
    numbers = vector_D if dtype == "F32" else narrow(vector_D, dtype)
    return b"".join([header(spec, dtype, metadata), numbers.data.cast("B")])


def header_cap(spec: ModelSpec) -> int:
    """The largest length in bytes that a header for this model may have."""
    return 65_536 + sum(256 + 6 * len(tensor.name) for tensor in spec.tensors)


def size_cap(spec: ModelSpec) -> int:
    """The largest length in bytes that a file for this model may have."""
    return LENGTH.size + header_cap(spec) + 4 * spec.dim


def parse_header(file: BinaryIO, cap: int) -> tuple[int, dict[str, Any]]:
    """Reads a file's header without validating its entries.

    Args:
        file: the file, positioned at its beginning.
        cap: length in bytes of the longest header that is accepted.
    Returns:
        The offset of the buffer, and the header's entries.
    Raises:
        Malformed: the header is truncated, too long, or not a JSON object.
    """
    length = _header_length(file)
    if length > cap:
        raise Malformed(f"the header has {length} bytes; the limit is {cap}")
    text = file.read(length)
    if len(text) < length:
        raise Malformed("the file ends within its header")
    try:
        entries = json.loads(text, object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError):
        raise Malformed("the header is not a JSON object with distinct keys") from None
    if not isinstance(entries, dict):
        raise Malformed("the header is not a JSON object")
    return LENGTH.size + length, entries


def read_header(file: BinaryIO, size: int, spec: ModelSpec) -> Header:
    """Reads and validates the header of an uploaded file of `size` bytes.

    Raises:
        Malformed: the header is truncated, not JSON, or longer than `header_cap` allows.
        InvalidUpdate: a tensor is missing or unknown, has a wrong shape or dtype, or does not
            directly follow the previous tensor.
    """
    start, entries = parse_header(file, header_cap(spec))
    metadata = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise Malformed("__metadata__ must map names to strings")
    dtype = _check_entries(entries, spec)
    if size != start + SIZES[dtype] * spec.dim:
        raise InvalidUpdate(
            f"the buffer has {size - start} bytes; {spec.dim} {dtype} parameters need "
            f"{SIZES[dtype] * spec.dim}"
        )
    return Header(start, dtype, metadata)


def read_stored_header(file: BinaryIO, size: int, spec: ModelSpec) -> Header:
    """The header of a file that `read_header` accepted before the file was stored.

    If the length of the buffer shows that the numbers are float32, this function skips the JSON
    header. The result then has no metadata, because the metadata are in the JSON header.

    Raises:
        Malformed, InvalidUpdate: the file does not fit the spec.
    """
    start = LENGTH.size + _header_length(file)
    if size == start + SIZES["F32"] * spec.dim:
        return Header(start, "F32", {})
    file.seek(0)
    return read_header(file, size, spec)


def _header_length(file: BinaryIO) -> int:
    prefix = file.read(LENGTH.size)
    if len(prefix) < LENGTH.size:
        raise Malformed(f"{len(prefix)} bytes are too few for a safetensors file")
    length: int = LENGTH.unpack(prefix)[0]
    return length


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len({key for key, _ in pairs}) != len(pairs):
        raise ValueError("a key occurs twice")
    return dict(pairs)


def _check_entries(entries: Mapping[str, Any], spec: ModelSpec) -> str:
    expected = {tensor.name for tensor in spec.tensors}
    if missing := expected - entries.keys():
        raise InvalidUpdate(f"tensors are missing: {', '.join(sorted(missing))}")
    if extra := entries.keys() - expected:
        raise InvalidUpdate(f"unknown tensors: {', '.join(sorted(extra)[:5])[:200]}")
    for name, entry in entries.items():
        if not _well_formed(entry):
            raise InvalidUpdate(f"{name}: an entry must have dtype, shape and data_offsets")
    dtypes = {entry["dtype"] for entry in entries.values()}
    if len(dtypes) != 1 or not dtypes <= SIZES.keys():
        raise InvalidUpdate(
            f"all tensors must have the same dtype, one of {', '.join(SIZES)}; got "
            f"{', '.join(sorted(dtypes))[:200]}"
        )
    dtype: str = dtypes.pop()
    for tensor, (name, start, stop) in zip(spec.tensors, spec.layout, strict=True):
        entry, size = entries[name], SIZES[dtype]
        if entry["shape"] != list(tensor.shape):
            raise InvalidUpdate(
                f"{name}: the shape is {str(entry['shape'])[:100]}, but the model's tensor has the "
                f"shape {list(tensor.shape)}"
            )
        if entry["data_offsets"] != [start * size, stop * size]:
            raise InvalidUpdate(
                f"{name}: data_offsets are {str(entry['data_offsets'])[:100]}, but must be "
                f"{[start * size, stop * size]}: tensors must be in the model's order, without gaps"
            )
    return dtype


def _well_formed(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and entry.keys() == {"dtype", "shape", "data_offsets"}
        and isinstance(entry["dtype"], str)
        and all(
            isinstance(numbers, list) and all(type(number) is int for number in numbers)
            for numbers in (entry["shape"], entry["data_offsets"])
        )
    )


def read_report(head: Header, sample_cap: int) -> ClientReport:
    """Reads the client's report from the metadata, and checks that its values are within bounds.

    Raises:
        InvalidClaim: the report is missing, malformed or not finite, or claims more samples than
            the cap.
    """
    if "report" not in head.metadata:
        raise InvalidClaim("the metadata have no entry 'report'")
    if unknown := sorted(head.metadata.keys() - {"report", "format"}):
        names = ", ".join(unknown)[:200]
        raise InvalidClaim(f"the metadata may have only the entries report and format, not {names}")
    try:
        report = ClientReport.model_validate_json(head.metadata["report"])
    except ValidationError as error:
        raise InvalidClaim(f"report: {explain(error)[:500]}") from None
    if report.samples > sample_cap:
        raise InvalidClaim(
            f"the client claims {report.samples} samples; it may claim at most {sample_cap}"
        )
    return report


def read_vector(file: BinaryIO, head: Header, out_D: NDArray[np.float32], first: int = 0) -> None:
    """Reads the buffer, from element `first`, into a float32 vector; widens 16-bit numbers."""
    file.seek(head.start + SIZES[head.dtype] * first)
    if head.dtype == "F32":
        view = out_D.data.cast("B")
        if file.readinto(view) != len(view):  # type: ignore[attr-defined]  # files have it
            raise Malformed("the file ends within its buffer")
        return
    for start in range(0, len(out_D), CHUNK):
        raw = np.frombuffer(file.read(2 * min(CHUNK, len(out_D) - start)), dtype=np.uint16)
        out_D[start : start + len(raw)] = widen(raw, head.dtype)


def widen(raw: NDArray[np.uint16], dtype: str) -> NDArray[np.float32]:
    """Converts 16-bit numbers to float32.

    >>> float(widen(np.array([0x3F80], dtype=np.uint16), "BF16")[0])
    1.0
    """
    if dtype == "F16":
        return raw.view(np.float16).astype(np.float32)
    return (raw.astype(np.uint32) << 16).view(np.float32)


def narrow(vector_D: NDArray[np.float32], dtype: str) -> NDArray[np.uint16]:
    """Converts float32 to 16-bit numbers, rounded to nearest even; `widen` converts back.

    A NaN stays a NaN.

    >>> hex(narrow(np.array([1.0], dtype=np.float32), "BF16")[0])
    '0x3f80'
    """
    if dtype == "F16":
        return vector_D.astype(np.float16).view(np.uint16)
    bits = vector_D.view(np.uint32)
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)
    numbers = (rounded >> 16).astype(np.uint16)
    nan_D = np.isnan(vector_D)
    if nan_D.any():
        # Rounding turns some NaNs into infinities or zeros. Keep the upper bits instead. The upper
        # bits alone can be those of an infinity, so also set the bit that marks a quiet NaN.
        numbers[nan_D] = bits[nan_D] >> 16 | 0x40
    return numbers


def spec_in(model: bytes) -> ModelSpec:
    """Reads a model's spec from its header, for callers that do not know the spec.

    Use this function only for files that the aggregator sent. The function reads only the header;
    `read_model` checks the rest of the file.

    >>> spec_in(encode(ModelSpec.of([("w", (2,))]), np.zeros(2, np.float32))).layout
    (('w', 0, 2),)
    """
    _, entries = parse_header(io.BytesIO(model), len(model))
    entries.pop("__metadata__", None)
    try:
        named = sorted((entry["data_offsets"], name) for name, entry in entries.items())
        return ModelSpec.of((name, entries[name]["shape"]) for _, name in named)
    except (ValueError, KeyError, TypeError):
        raise Malformed("the header does not name the tensors of a model") from None


def read_model(data: bytes, spec: ModelSpec) -> NDArray[np.float32]:
    """Reads the vector (D,) of a model that the aggregator sent."""
    head = read_header(io.BytesIO(data), len(data), spec)
    vector_D = np.empty(spec.dim, dtype=np.float32)
    read_vector(io.BytesIO(data), head, vector_D)
    return vector_D


def check_finite(file: BinaryIO, head: Header) -> None:
    """Raises `NotFinite` if any number in the buffer is a NaN or an infinity."""
    file.seek(head.start)
    dtype = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}[head.dtype]
    numbers = np.empty(CHUNK // SIZES[head.dtype], dtype)
    while size := file.readinto(numbers.data.cast("B")):  # type: ignore[attr-defined]  # files have it
        read = numbers[: size // SIZES[head.dtype]]
        finite = (read & 0x7F80) != 0x7F80 if head.dtype == "BF16" else np.isfinite(read)
        if not finite.all():
            raise NotFinite("the update has a NaN or an infinity")
